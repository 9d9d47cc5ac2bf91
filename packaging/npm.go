package main

import (
	"bytes"
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
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

var (
	//go:embed npm/fini
	npmProgram []byte
	//go:embed npm/index.js
	npmModule []byte
	//go:embed npm/index.d.ts
	npmTypes []byte
	//go:embed npm/report.d.ts
	npmReportTypes []byte
	//go:embed fini-sh
	shell []byte
	//go:embed registries.md
	registriesPage []byte
)

// npm writes a package with the binary for each architecture, and the main package, which depends on the package for the
// machine and runs its binary. The packages run no script when they are installed.
func npm(dist, version, helpFile string, files []string) error {
	at := builtAt()
	help := must(os.ReadFile(helpFile))
	flags := options(string(help))
	notice := must(os.ReadFile("internal/NOTICES"))
	write := func(manifest object, content ...func(*compressed)) error {
		name := manifest["name"].(string)
		manifest["version"] = version
		manifest["license"] = "MIT"
		manifest["repository"] = object{"type": "git", "url": "git+https://" + module + ".git"}
		out := newCompressed(filepath.Join(dist, name+"-"+version+".tgz"), at)
		var text bytes.Buffer
		check(writeJSON(&text, manifest))
		out.add("package/package.json", 0o644, text.Bytes())
		for _, add := range content {
			add(out)
		}
		out.add("package/LICENSE", 0o644, notice)
		return out.close()
	}
	parts := object{}
	for _, file := range files {
		b := readBinary(file)
		cpu := names[b.arch].node
		name := registryName + "-linux-" + cpu
		parts[name] = version
		check(write(object{
			"name": name, "description": "The binary of " + registryName + " for Linux on " + cpu,
			"os": []string{"linux"}, "cpu": []string{cpu}, "preferUnplugged": true,
		}, func(out *compressed) {
			out.add("package/bin/fini", 0o755, b.content)
			out.add("package/README.md", 0o644, fmt.Appendf(nil, "# %s\n\nThe binary of `%s` for Linux on %s.\n", name, registryName, cpu))
		}))
	}
	return write(object{
		"name": registryName, "description": summary,
		"keywords":             []string{"init", "tini", "dumb-init", "subreaper", "pid1", "mcp", "npx", "orphans", "ci"},
		"bin":                  object{registryName: "bin/fini", "fini": "bin/fini", "fini-sh": "bin/fini-sh"},
		"main":                 "index.js",
		"types":                "index.d.ts",
		"engines":              object{"node": ">=16.6"},
		"optionalDependencies": parts,
	}, func(out *compressed) {
		out.add("package/bin/fini", 0o755, npmProgram)
		out.add("package/bin/fini-sh", 0o755, shell)
		out.add("package/index.js", 0o644, npmModule)
		out.add("package/index.d.ts", 0o644, npmTypes)
		out.add("package/report.d.ts", 0o644, npmReportTypes)
		out.add("package/flags.json", 0o644, append(mustJSON(takeValue(flags)), '\n'))
		out.add("package/README.md", 0o644, registriesPage)
	})
}
