// Command packaging makes the parts of a release that need Go: archives, container images, npm packages, Python wheels, a
// feature for dev containers, the types of a report, the list of linked modules, their licenses, and the
// provenance.
//
// It runs in the root of the repository. What it writes depends on that, its arguments and SOURCE_DATE_EPOCH alone.
package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"time"
)

const module = "github.com/seed-126c5d8a/fini"

func main() {
	var r release
	flag.StringVar(&r.version, "version", "", "the version of fini")
	flag.StringVar(&r.image, "name", "fini", "what to call the image")
	flag.StringVar(&r.dist, "dist", "", "the folder to write packages to")
	if len(os.Args) < 2 {
		os.Args = append(os.Args, "")
	}
	_ = flag.CommandLine.Parse(os.Args[2:]) // it exits where it can't
	switch os.Args[1] {
	case "notices":
		notices(os.Stdout)
	case "types":
		_, _ = os.Stdout.Write(map[string]language{"ts": typeScript, "py": python}[flag.Arg(0)].types())
	case "release":
		r.make(flag.Args())
	default:
		check(errors.New("want notices, types or release"))
	}
}

// A release is made of the binaries of all architectures.
type release struct {
	version, image string
	dist           string
	at             time.Time // which everything in it carries
	notices        []byte
	binaries       []binary
}

func (r *release) make(files []string) {
	seconds, err := strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64)
	if err != nil {
		err = fmt.Errorf("SOURCE_DATE_EPOCH: %w", err)
	}
	r.at = time.Unix(must(seconds, err), 0).UTC()
	r.notices = must(os.ReadFile("internal/NOTICES"))
	for _, file := range files {
		r.binaries = append(r.binaries, readBinary(file))
	}
	r.archives()
	r.images()
	r.dockerfile()
	r.feature()
	r.npm()
	r.wheels()
	r.parts()
	r.provenance() // of all that is there
}

// write writes a file of the release.
func (r *release) write(name string, content []byte) {
	check(os.WriteFile(filepath.Join(r.dist, name), content, 0o644))
}

// archives are for each architecture: the binary, its man page, licenses and completions.
func (r *release) archives() {
	for _, b := range r.binaries {
		folder := fmt.Sprintf("fini-%s-linux-%s/", r.version, b.arch)
		files := []file{
			{folder + "fini", 0o755, b.content},
			read(folder+"fini-sh", 0o755, "packaging/fini-sh"),
			read(folder+"fini.1", 0o644, "docs/fini.1"),
			{folder + "NOTICES", 0o644, r.notices},
			read(folder+"CHANGELOG.md", 0o644, "CHANGELOG.md"),
		}
		for _, shell := range []string{"bash", "zsh", "fish"} {
			files = append(files, read(folder+"completions/fini."+shell, 0o644, "packaging/completions/fini."+shell))
		}
		r.write(fmt.Sprintf("fini_%s_linux_%s.tar.gz", r.version, b.arch), r.compressed(files))
	}
}

// A file is in an archive.
type file struct {
	name    string
	mode    os.FileMode
	content []byte
}

func read(name string, mode os.FileMode, from string) file {
	return file{name, mode, must(os.ReadFile(from))}
}

// tar is an archive in which all that could differ from one run to the next is fixed.
func (r *release) tar(files []file) []byte {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, f := range files {
		check(w.WriteHeader(&tar.Header{
			Name: f.name, Mode: int64(f.mode), Size: int64(len(f.content)), ModTime: r.at, Format: tar.FormatUSTAR,
		}))
		_ = must(w.Write(f.content))
	}
	check(w.Close())
	return out.Bytes()
}

func (r *release) compressed(files []file) []byte {
	var out bytes.Buffer
	w := must(gzip.NewWriterLevel(&out, gzip.BestCompression))
	_ = must(w.Write(r.tar(files)))
	check(w.Close())
	return out.Bytes()
}

// A binary is a fini of a release.
type binary struct {
	name    string
	content []byte
	info    *debug.BuildInfo
	arch    string // GOARCH
}

func readBinary(path string) binary {
	content := must(os.ReadFile(path))
	info, err := buildinfo.Read(bytes.NewReader(content))
	if err != nil {
		err = fmt.Errorf("%s: %w", path, err)
	}
	return binary{filepath.Base(path), content, must(info, err), setting(info, "GOARCH")}
}

func setting(info *debug.BuildInfo, key string) string {
	for _, s := range info.Settings {
		if s.Key == key {
			return s.Value
		}
	}
	return ""
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

type object = map[string]any

func mustJSON(value any) []byte {
	return must(json.Marshal(value)) // with the keys of a map in order
}

// writeJSON writes JSON that people can read.
func writeJSON(w io.Writer, value any) {
	out := json.NewEncoder(w)
	out.SetIndent("", "  ")
	out.SetEscapeHTML(false)
	check(out.Encode(value))
}
