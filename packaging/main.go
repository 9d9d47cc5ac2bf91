// Command packaging makes the parts of a release that need only Go: archives, container images, npm packages, Python
// wheels, shell completions, the list of linked modules, their licenses, and the provenance.
//
// Everything it writes depends on its arguments and SOURCE_DATE_EPOCH alone.
package main

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
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
	help := flag.String("help-text", "", "a file with what fini --help prints")
	dist := flag.String("dist", "", "the folder to write packages to")
	if len(os.Args) < 2 {
		os.Args = append(os.Args, "")
	}
	_ = flag.CommandLine.Parse(os.Args[2:]) // it exits where it can't
	var err error
	switch os.Args[1] {
	case "archive":
		err = archives(*dist, *version, *help, flag.Args())
	case "completion":
		err = completion(os.Stdout, flag.Arg(0), *help)
	case "dockerfile":
		err = dockerfile(os.Stdout, *version, flag.Args())
	case "image":
		err = image(os.Stdout, *name, *version, flag.Arg(0))
	case "index":
		err = index(os.Stdout, *name, *version, flag.Args())
	case "npm":
		err = npm(*dist, *version, *help, flag.Args())
	case "wheel":
		err = wheels(*dist, *version, flag.Args())
	case "sbom":
		err = sbom(os.Stdout, *version, flag.Args())
	case "provenance":
		err = provenance(os.Stdout, *version, flag.Args())
	case "notices":
		err = notices(os.Stdout)
	default:
		err = errors.New("want archive, completion, dockerfile, image, index, npm, wheel, sbom, provenance or notices")
	}
	check(err)
}

// must is a value that there is, or else the end: what goes wrong here is for whoever makes the release.
func must[T any](value T, err error) T {
	check(err)
	return value
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "packaging:", err)
		os.Exit(1)
	}
}

// builtAt is the time that a release carries.
func builtAt() time.Time {
	seconds, err := strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64)
	if err != nil {
		err = fmt.Errorf("SOURCE_DATE_EPOCH: %w", err)
	}
	return time.Unix(must(seconds, err), 0).UTC()
}

func setting(info *debug.BuildInfo, key string) string {
	for _, s := range info.Settings {
		if s.Key == key {
			return s.Value
		}
	}
	return ""
}

// A binary is a fini of a release.
type binary struct {
	file    string // its path
	content []byte
	info    *debug.BuildInfo
	arch    string // GOARCH
}

func readBinary(file string) binary {
	content := must(os.ReadFile(file))
	info, err := buildinfo.Read(bytes.NewReader(content))
	if err != nil {
		err = fmt.Errorf("%s: %w", file, err)
	}
	return binary{file, content, must(info, err), setting(info, "GOARCH")}
}

func mustJSON(value any) []byte {
	return must(json.Marshal(value)) // with the keys of a map in order
}

// writeJSON writes JSON that people can read.
func writeJSON(w io.Writer, value any) error {
	out := json.NewEncoder(w)
	out.SetIndent("", "  ")
	out.SetEscapeHTML(false)
	return out.Encode(value)
}

// sbom writes what the binaries say they are built from, in SPDX 2.3.
func sbom(w io.Writer, version string, binaries []string) error {
	at := builtAt()
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
	for _, path := range binaries {
		b := readBinary(path)
		info := b.info
		all.Write(b.content)
		file := filepath.Base(path)
		id := "SPDXRef-" + file
		p := describe(id, "fini", version, "MIT", "pkg:golang/"+module+"@v"+version+"?goarch="+b.arch+"&goos=linux")
		p["packageFileName"] = file
		p["primaryPackagePurpose"] = "APPLICATION"
		p["checksums"] = []object{{"algorithm": "SHA256", "checksumValue": fmt.Sprintf("%x", sha256.Sum256(b.content))}}
		if revision := setting(info, "vcs.revision"); revision != "" {
			p["sourceInfo"] = "built from commit " + revision
		}
		packages = append(packages, p)
		relate("SPDXRef-DOCUMENT", "DESCRIBES", id)
		for _, m := range append(info.Deps, &debug.Module{Path: "std", Version: info.GoVersion}) {
			linked, ok := parts[m.Path]
			if !ok || m.Replace != nil {
				return fmt.Errorf("%s has %s linked in, whose license packaging/main.go does not know", path, m.Path)
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
	return writeJSON(w, object{
		"spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT",
		"name":              "fini-" + version,
		"documentNamespace": fmt.Sprintf("https://%s/spdx/%s/%x", module, version, all.Sum(nil)),
		"creationInfo":      object{"created": at.Format(time.RFC3339), "creators": []string{"Tool: fini-packaging"}},
		"packages":          packages, "relationships": relations,
	})
}

// notices writes the licenses of fini and of each linked module. Each license must go along with the binary.
func notices(w io.Writer) error {
	text := must(os.ReadFile("LICENSE"))
	fmt.Fprintf(w, "%s", text)
	for _, path := range slices.Sorted(maps.Keys(parts)) {
		args, name := []string{"list", "-m", "-f", "{{.Dir}}", path}, path
		if path == "std" {
			args, name = []string{"env", "GOROOT"}, "the Go runtime and standard library"
		}
		dir, err := exec.Command("go", args...).Output()
		if err != nil {
			return fmt.Errorf("go %q: %w", args, err)
		}
		text = must(os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), parts[path].file)))
		fmt.Fprintf(w, "\n%s\n\nLinked into fini: %s\n\n%s", strings.Repeat("-", 78), name, text)
	}
	return nil
}
