package main

import (
	"archive/zip"
	"bytes"
	"compress/flate"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

//go:embed fini_init/__init__.py
var pythonModule []byte

// wheels writes one for each architecture, and one for all other systems, which has the module alone. The binary is a script of it, so pip puts it among the
// programs of the environment and no Python runs before it.
func wheels(dist, version string, files []string) error {
	at := builtAt()
	notice := must(os.ReadFile("internal/NOTICES"))
	version = pythonVersion(version)
	project := strings.ReplaceAll(registryName, "-", "_") + "-" + version
	for _, file := range append(files, "") {
		w, platforms := newWheel(at), []string{"any"}
		if file != "" {
			b := readBinary(file)
			platforms = wheelPlatforms(names[b.arch].wheel)
			w.add(project+".data/scripts/"+registryName, 0o755, b.content)
			// uvx and pipx run the program that is called like the package. It is there once: two
			// would be twice the size.
			w.add(project+".data/scripts/fini", 0o755, []byte(besideItself))
			w.add(project+".data/scripts/fini-sh", 0o755, shell)
		}
		w.add("fini_init/__init__.py", 0o644, pythonModule)
		w.add("fini_init/py.typed", 0o644, nil) // its annotations are for type checkers: see PEP 561
		info := project + ".dist-info/"
		w.add(info+"METADATA", 0o644, wheelMetadata(version))
		w.add(info+"WHEEL", 0o644, wheelTags(platforms, file == ""))
		w.add(info+"licenses/LICENSE", 0o644, notice)
		content := must(w.close(info + "RECORD"))
		name := project + "-py3-none-" + strings.Join(platforms, ".") + ".whl"
		check(os.WriteFile(filepath.Join(dist, name), content, 0o644))
	}
	return nil
}

// wheelPlatforms are all that a static binary fits. There is no older glibc for riscv64.
func wheelPlatforms(arch string) []string {
	if arch == "riscv64" {
		return []string{"manylinux_2_31_riscv64", "musllinux_1_1_riscv64"}
	}
	return []string{"manylinux_2_17_" + arch, "manylinux2014_" + arch, "musllinux_1_1_" + arch}
}

func wheelMetadata(version string) []byte {
	var b bytes.Buffer
	for _, field := range [][2]string{
		{"Metadata-Version", "2.4"},
		{"Name", registryName},
		{"Version", version},
		{"Summary", summary},
		{"License-Expression", "MIT"},
		{"License-File", "LICENSE"},
		{"Project-URL", "Source, https://" + module},
		{"Keywords", "init,subreaper,orphans,ci,mcp"},
		{"Classifier", "Environment :: Console"},
		{"Classifier", "Operating System :: POSIX :: Linux"},
		{"Requires-Python", ">=3.8"},
		{"Description-Content-Type", "text/markdown"},
	} {
		fmt.Fprintf(&b, "%s: %s\n", field[0], field[1])
	}
	fmt.Fprintf(&b, "\n%s", registriesPage)
	return b.Bytes()
}

func wheelTags(platforms []string, pure bool) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "Wheel-Version: 1.0\nGenerator: fini-packaging\nRoot-Is-Purelib: %t\n", pure)
	for _, platform := range platforms {
		fmt.Fprintf(&b, "Tag: py3-none-%s\n", platform)
	}
	return b.Bytes()
}

var (
	preRelease = regexp.MustCompile(`^(\d+\.\d+\.\d+)-(alpha|beta|rc)\.?(\d+)$`)
	anyVersion = regexp.MustCompile(`^(\d+\.\d+\.\d+)[-+](.+)$`)
)

// pythonVersion writes a version as Python does: 1.0.0-rc.1 as 1.0.0rc1, and the version of a commit as a local version.
func pythonVersion(version string) string {
	if m := preRelease.FindStringSubmatch(version); m != nil {
		return m[1] + map[string]string{"alpha": "a", "beta": "b", "rc": "rc"}[m[2]] + m[3]
	}
	if m := anyVersion.FindStringSubmatch(version); m != nil {
		local := regexp.MustCompile(`[^a-z0-9]+`).ReplaceAllString(strings.ToLower(m[2]), ".")
		return m[1] + ".dev0+" + local
	}
	return version
}

// A wheel is a zip with a list of what is in it.
type wheel struct {
	out    bytes.Buffer
	zip    *zip.Writer
	at     time.Time
	record bytes.Buffer
	err    error
}

// besideItself executes the binary of its own folder, even if it is called by a symbolic link.
const besideItself = `#!/bin/sh
self=$0
[ ! -L "$self" ] || self=$(readlink -f "$self")
exec "${self%/*}/` + registryName + `" "$@"
`

func newWheel(at time.Time) *wheel {
	w := &wheel{at: at}
	w.zip = zip.NewWriter(&w.out)
	w.zip.RegisterCompressor(zip.Deflate, func(out io.Writer) (io.WriteCloser, error) {
		return flate.NewWriter(out, flate.BestCompression)
	})
	return w
}

func (w *wheel) add(name string, mode os.FileMode, content []byte) {
	if w.err != nil {
		return
	}
	sum := sha256.Sum256(content)
	fmt.Fprintf(&w.record, "%s,sha256=%s,%d\n", name, base64.RawURLEncoding.EncodeToString(sum[:]), len(content))
	w.err = w.write(name, mode, content)
}

func (w *wheel) write(name string, mode os.FileMode, content []byte) error {
	h := &zip.FileHeader{Name: name, Method: zip.Deflate, Modified: w.at}
	h.SetMode(mode)
	out, err := w.zip.CreateHeader(h)
	if err == nil {
		_, err = out.Write(content)
	}
	return err
}

// close adds the list, which has itself without a sum.
func (w *wheel) close(list string) ([]byte, error) {
	if w.err != nil {
		return nil, w.err
	}
	fmt.Fprintf(&w.record, "%s,,\n", list)
	if err := w.write(list, 0o644, w.record.Bytes()); err != nil {
		return nil, err
	}
	err := w.zip.Close()
	return w.out.Bytes(), err
}
