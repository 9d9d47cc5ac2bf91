package main

import (
	"archive/zip"
	"bytes"
	"compress/flate"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
)

// elsewhere are the systems for which there is a wheel with the module alone, which runs the command without fini and says so.
// There is none for a Linux that has no binary: pip says that no wheel fits.
var elsewhere = []string{"macosx_10_9_x86_64", "macosx_11_0_arm64", "win32", "win_amd64", "win_arm64"}

// wheels writes one for each architecture, and one for other systems. The binary is a script of it, so pip puts it among the
// programs of the environment and no Python runs before it.
func (r *release) wheels() {
	version := pythonVersion(r.version)
	project := strings.ReplaceAll(registryName, "-", "_") + "-" + version
	info := project + ".dist-info/"
	metadata := bytes.Replace(must(os.ReadFile("packaging/fini_init/METADATA")), []byte("0.0.0"), []byte(version), 1)
	common := []file{
		read("fini_init/__init__.py", 0o644, "packaging/fini_init/__init__.py"),
		{"fini_init/report.py", 0o644, python.types()},
		{"fini_init/py.typed", 0o644, nil}, // its annotations are for type checkers: see PEP 561
		{info + "METADATA", 0o644, append(metadata, must(os.ReadFile("packaging/registries.md"))...)},
		{info + "LICENSE", 0o644, r.notices},
	}
	write := func(platforms []string, files ...file) {
		tags := "Wheel-Version: 1.0\nGenerator: fini-packaging\nRoot-Is-Purelib: false\n"
		for _, platform := range platforms {
			tags += "Tag: py3-none-" + platform + "\n"
		}
		files = slices.Concat(files, common, []file{{info + "WHEEL", 0o644, []byte(tags)}})
		r.write(project+"-py3-none-"+strings.Join(platforms, ".")+".whl", r.wheel(files, info+"RECORD"))
	}
	for _, b := range r.binaries {
		// uvx and pipx run the program that is called like the package. It is there once: two would be twice the size.
		scripts := project + ".data/scripts/"
		write(wheelPlatforms(names[b.arch].wheel), file{scripts + registryName, 0o755, b.content},
			file{scripts + "fini", 0o755, []byte(besideItself)}, read(scripts+"fini-sh", 0o755, "packaging/fini-sh"))
	}
	write(elsewhere)
}

// wheelPlatforms are all that a static binary fits. There is no older glibc for riscv64. The binary for ARM runs on ARMv6, for
// which there is no manylinux.
func wheelPlatforms(arch string) []string {
	if arch == "riscv64" {
		return []string{"manylinux_2_31_riscv64", "musllinux_1_1_riscv64"}
	}
	platforms := []string{"manylinux_2_17_" + arch, "manylinux2014_" + arch, "musllinux_1_1_" + arch}
	if arch == "armv7l" {
		platforms = append(platforms, "linux_armv6l")
	}
	return platforms
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

// besideItself executes the binary of its own folder, even if it is called by a symbolic link.
const besideItself = `#!/bin/sh
self=$0
[ ! -L "$self" ] || self=$(readlink -f "$self")
exec "${self%/*}/` + registryName + `" "$@"
`

// wheel is a zip with a list of what is in it. The list has itself without a sum.
func (r *release) wheel(files []file, list string) []byte {
	var out bytes.Buffer
	w := zip.NewWriter(&out)
	w.RegisterCompressor(zip.Deflate, func(out io.Writer) (io.WriteCloser, error) {
		return flate.NewWriter(out, flate.BestCompression)
	})
	record := ""
	for _, f := range files {
		hash := sha256.Sum256(f.content)
		record += fmt.Sprintf("%s,sha256=%s,%d\n", f.name, base64.RawURLEncoding.EncodeToString(hash[:]), len(f.content))
	}
	for _, f := range append(files, file{list, 0o644, []byte(record + list + ",,\n")}) {
		h := &zip.FileHeader{Name: f.name, Method: zip.Deflate, Modified: r.at}
		h.SetMode(f.mode)
		_ = must(must(w.CreateHeader(h)).Write(f.content))
	}
	check(w.Close())
	return out.Bytes()
}
