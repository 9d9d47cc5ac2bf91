package main

import (
	"bytes"
	"fmt"
	"os"
	"strings"
)

// registryName is what fini is called where its own name is taken.
const registryName = "fini-init"

const summary = "Runs a command and leaves nothing behind: an init for containers and a wrapper for commands"

// names are what Node and Python call an architecture.
var names = map[string]struct{ node, wheel string }{
	"amd64":   {"x64", "x86_64"},
	"arm64":   {"arm64", "aarch64"},
	"arm":     {"arm", "armv7l"},
	"386":     {"ia32", "i686"},
	"ppc64le": {"ppc64", "ppc64le"},
	"s390x":   {"s390x", "s390x"},
	"riscv64": {"riscv64", "riscv64"},
}

// npm writes a package with the binary for each architecture, and the main package, which depends on the package for the
// machine and runs its binary. The packages run no script when they are installed. Those with a binary have a scope, in which
// nobody else can take a name.
func (r *release) npm() {
	pack := func(name string, manifest []byte, files ...file) {
		files = append([]file{{"package/package.json", 0o644, manifest}, {"package/LICENSE", 0o644, r.notices}}, files...)
		r.write(name+"-"+r.version+".tgz", r.compressed(files))
	}
	parts := object{}
	platform := string(r.versioned("packaging/npm/platform.json"))
	for _, b := range r.binaries {
		cpu := names[b.arch].node
		name := "@" + registryName + "/linux-" + cpu
		parts[name] = r.version
		pack(registryName+"-linux-"+cpu, []byte(strings.ReplaceAll(platform, "CPU", cpu)),
			file{"package/bin/fini", 0o755, b.content},
			file{"package/README.md", 0o644, fmt.Appendf(nil, "# %s\n\nThe binary of `%s` for Linux on %s.\n", name, registryName, cpu)})
	}
	var dependencies bytes.Buffer
	writeJSON(&dependencies, parts)
	pack(registryName, bytes.Replace(r.versioned("packaging/npm/package.json"), []byte("{}"),
		bytes.ReplaceAll(bytes.TrimSpace(dependencies.Bytes()), []byte("\n"), []byte("\n  ")), 1),
		read("package/bin/fini", 0o755, "packaging/npm/fini"),
		read("package/bin/fini-sh", 0o755, "packaging/fini-sh"),
		read("package/index.js", 0o644, "packaging/npm/index.js"),
		read("package/index.d.ts", 0o644, "packaging/npm/index.d.ts"),
		file{"package/report.d.ts", 0o644, typeScript.types()},
		read("package/flags.json", 0o644, "packaging/npm/flags.json"),
		read("package/README.md", 0o644, "packaging/registries.md"))
}

// feature writes the feature that puts fini into dev containers.
func (r *release) feature() {
	const from = "packaging/devcontainer/"
	files := []file{
		{"devcontainer-feature.json", 0o644, r.versioned(from + "devcontainer-feature.json")},
		read("install.sh", 0o755, from+"install.sh"), read("pid1.sh", 0o644, from+"pid1.sh"),
		read("fini-sh", 0o755, "packaging/fini-sh"), {"NOTICES", 0o644, r.notices},
	}
	for _, b := range r.binaries {
		if b.arch == "amd64" || b.arch == "arm64" {
			files = append(files, file{b.name, 0o755, b.content})
		}
	}
	r.write("devcontainer-feature-fini.tgz", r.compressed(files))
}

// versioned is a file of the tree with the release's version in it.
func (r *release) versioned(path string) []byte {
	return bytes.Replace(must(os.ReadFile(path)), []byte("0.0.0"), []byte(r.version), 1)
}
