// Command packaging makes the parts of a release that need no tool but Go: container
// images, a list of what is in the binaries, and the licenses of it all.
//
// Everything it writes depends on its arguments and SOURCE_DATE_EPOCH alone.
package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"
)

const module = "github.com/seed-126c5d8a/fini"

// part is a module that is linked into fini.
type part struct{ license, file string }

// parts are what fini is built from, besides itself. One that is missing here is an error,
// so that nothing is shipped without its license.
var parts = map[string]part{
	"github.com/alecthomas/kong": {"MIT", "COPYING"},
	"golang.org/x/sys":           {"BSD-3-Clause", "LICENSE"},
	"std":                        {"BSD-3-Clause", "LICENSE"},
}

func main() {
	name := flag.String("name", "fini", "what to call the image")
	version := flag.String("version", "", "the version of fini")
	if len(os.Args) < 2 {
		os.Args = append(os.Args, "")
	}
	_ = flag.CommandLine.Parse(os.Args[2:]) // it exits where it can't
	var err error
	switch os.Args[1] {
	case "image":
		err = image(os.Stdout, *name, *version, flag.Arg(0))
	case "sbom":
		err = sbom(os.Stdout, *version, flag.Args())
	case "notices":
		err = notices(os.Stdout)
	default:
		err = errors.New("want image, sbom or notices")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "packaging:", err)
		os.Exit(1)
	}
}

// builtAt is the time that a release carries.
func builtAt() (time.Time, error) {
	seconds, err := strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("SOURCE_DATE_EPOCH: %w", err)
	}
	return time.Unix(seconds, 0).UTC(), nil
}

func setting(info *debug.BuildInfo, key string) string {
	for _, s := range info.Settings {
		if s.Key == key {
			return s.Value
		}
	}
	return ""
}

// A blob is a file of an image that is named by its sum.
type blob struct {
	MediaType string `json:"mediaType"`
	Digest    string `json:"digest"`
	Size      int    `json:"size"`
	content   []byte
}

func newBlob(mediaType string, content []byte) blob {
	return blob{mediaType, fmt.Sprintf("sha256:%x", sha256.Sum256(content)), len(content), content}
}

func (b blob) path() string { return "blobs/sha256/" + strings.TrimPrefix(b.Digest, "sha256:") }

// image writes an archive of an image that holds /fini and nothing else. It is an OCI layout
// and has the manifest.json by which `docker load` finds its way in it.
func image(w io.Writer, name, version, binary string) error {
	at, err := builtAt()
	if err != nil {
		return err
	}
	content, err := os.ReadFile(binary)
	if err != nil {
		return err
	}
	info, err := buildinfo.Read(bytes.NewReader(content))
	if err != nil {
		return fmt.Errorf("%s: %w", binary, err)
	}
	var root bytes.Buffer
	files := newArchive(&root, at)
	files.add("fini", 0o755, content)
	if err := files.close(); err != nil {
		return err
	}
	labels := map[string]string{
		"org.opencontainers.image.title":    "fini",
		"org.opencontainers.image.version":  version,
		"org.opencontainers.image.licenses": "MIT",
		"org.opencontainers.image.source":   "https://" + module,
	}
	if revision := setting(info, "vcs.revision"); revision != "" {
		labels["org.opencontainers.image.revision"] = revision
	}
	variant := map[string]string{"arm": "v7", "arm64": "v8"}[setting(info, "GOARCH")]
	layer := newBlob("application/vnd.oci.image.layer.v1.tar", root.Bytes())
	created := at.Format(time.RFC3339)
	type object = map[string]any
	platform := object{"os": "linux", "architecture": setting(info, "GOARCH")}
	if variant != "" {
		platform["variant"] = variant
	}
	described := object{
		"created": created,
		"config":  object{"Entrypoint": []string{"/fini"}, "Labels": labels},
		"rootfs":  object{"type": "layers", "diff_ids": []string{layer.Digest}},
		"history": []object{{"created": created, "created_by": "COPY fini /fini"}},
	}
	for key, value := range platform {
		described[key] = value
	}
	config := newBlob("application/vnd.oci.image.config.v1+json", mustJSON(described))
	const manifestType = "application/vnd.oci.image.manifest.v1+json"
	manifest := newBlob(manifestType, mustJSON(object{
		"schemaVersion": 2, "mediaType": manifestType, "config": config, "layers": []blob{layer},
	}))

	out := newArchive(w, at)
	out.add("oci-layout", 0o644, mustJSON(object{"imageLayoutVersion": "1.0.0"}))
	out.add("index.json", 0o644, mustJSON(object{
		"schemaVersion": 2,
		"manifests": []object{{
			"mediaType": manifest.MediaType, "digest": manifest.Digest, "size": manifest.Size, "platform": platform,
			"annotations": object{"org.opencontainers.image.ref.name": version},
		}},
	}))
	out.add("manifest.json", 0o644, mustJSON([]object{{
		"Config": config.path(), "RepoTags": []string{name + ":" + tag(version)}, "Layers": []string{layer.path()},
	}}))
	for _, b := range []blob{layer, config, manifest} {
		out.add(b.path(), 0o644, b.content)
	}
	return out.close()
}

// tag is a version as an image's tag, which has no "+".
func tag(version string) string { return strings.ReplaceAll(version, "+", "-") }

// An archive is a tar in which all that could differ from one run to the next is fixed.
type archive struct {
	w   *tar.Writer
	at  time.Time
	err error
}

func newArchive(w io.Writer, at time.Time) *archive { return &archive{w: tar.NewWriter(w), at: at} }

func (a *archive) add(name string, mode int64, content []byte) {
	if a.err != nil {
		return
	}
	a.err = a.w.WriteHeader(&tar.Header{
		Name: name, Mode: mode, Size: int64(len(content)), ModTime: a.at, Format: tar.FormatUSTAR,
	})
	if a.err == nil {
		_, a.err = a.w.Write(content)
	}
}

func (a *archive) close() error { return errors.Join(a.err, a.w.Close()) }

func mustJSON(value any) []byte {
	text, err := json.Marshal(value) // with the keys of a map in order
	if err != nil {
		panic(err)
	}
	return text
}

// sbom writes what the binaries say they are built from, in SPDX 2.3.
func sbom(w io.Writer, version string, binaries []string) error {
	at, err := builtAt()
	if err != nil {
		return err
	}
	type object = map[string]any
	var packages, relations []object
	known := map[string]bool{}
	all := sha256.New()
	relate := func(from, how, to string) {
		relations = append(relations, object{"spdxElementId": from, "relationshipType": how, "relatedSpdxElement": to})
	}
	describe := func(id, name, version, license, purl string) object {
		return object{
			"SPDXID": id, "name": name, "versionInfo": version, "filesAnalyzed": false,
			"downloadLocation": "NOASSERTION", "copyrightText": "NOASSERTION",
			"licenseConcluded": license, "licenseDeclared": license,
			"externalRefs": []object{{
				"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": purl,
			}},
		}
	}
	for _, binary := range binaries {
		content, err := os.ReadFile(binary)
		if err != nil {
			return err
		}
		info, err := buildinfo.Read(bytes.NewReader(content))
		if err != nil {
			return fmt.Errorf("%s: %w", binary, err)
		}
		all.Write(content)
		file := filepath.Base(binary)
		id := "SPDXRef-" + file
		p := describe(id, "fini", version, "MIT", "pkg:golang/"+module+"@v"+version+"?goarch="+setting(info, "GOARCH")+"&goos=linux")
		p["packageFileName"] = file
		p["primaryPackagePurpose"] = "APPLICATION"
		p["checksums"] = []object{{"algorithm": "SHA256", "checksumValue": fmt.Sprintf("%x", sha256.Sum256(content))}}
		if revision := setting(info, "vcs.revision"); revision != "" {
			p["sourceInfo"] = "built from commit " + revision
		}
		packages = append(packages, p)
		relate("SPDXRef-DOCUMENT", "DESCRIBES", id)
		for _, m := range append(info.Deps, &debug.Module{Path: "std", Version: info.GoVersion}) {
			linked, ok := parts[m.Path]
			if !ok || m.Replace != nil {
				return fmt.Errorf("%s has %s linked in, whose license packaging/main.go does not know", binary, m.Path)
			}
			number := strings.TrimPrefix(strings.TrimPrefix(m.Version, "go"), "v")
			id2 := "SPDXRef-" + strings.ReplaceAll(m.Path, "/", "-") + "-" + number
			if !known[id2] {
				known[id2] = true
				purl := "pkg:golang/" + m.Path + "@" + m.Version
				if m.Path == "std" {
					purl = "pkg:golang/std@" + number
				}
				packages = append(packages, describe(id2, m.Path, number, linked.license, purl))
			}
			relate(id, "STATIC_LINK", id2)
		}
	}
	out := json.NewEncoder(w)
	out.SetIndent("", "  ")
	out.SetEscapeHTML(false)
	return out.Encode(object{
		"spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT",
		"name":              "fini-" + version,
		"documentNamespace": fmt.Sprintf("https://%s/spdx/%s/%x", module, version, all.Sum(nil)),
		"creationInfo":      object{"created": at.Format(time.RFC3339), "creators": []string{"Tool: fini-packaging"}},
		"packages":          packages, "relationships": relations,
	})
}

// notices writes fini's license and that of each part, all of which ask to be handed on
// with the binary.
func notices(w io.Writer) error {
	paths := []string{}
	for path := range parts {
		paths = append(paths, path)
	}
	slices.Sort(paths)
	text, err := os.ReadFile("LICENSE")
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "%s", text)
	for _, path := range paths {
		args, name := []string{"list", "-m", "-f", "{{.Dir}}", path}, path
		if path == "std" {
			args, name = []string{"env", "GOROOT"}, "the Go runtime and standard library"
		}
		dir, err := exec.Command("go", args...).Output()
		if err != nil {
			return fmt.Errorf("go %q: %w", args, err)
		}
		if text, err = os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), parts[path].file)); err != nil {
			return err
		}
		fmt.Fprintf(w, "\n%s\n\nLinked into fini: %s\n\n%s", strings.Repeat("-", 78), name, text)
	}
	return nil
}
