package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/base64"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// provenance writes the sources and the compiler of files, as an in-toto statement with SLSA's predicate. SHA256SUMS has its
// sum, so it is worth what the signature of SHA256SUMS is worth. It has no times and no invocation, because those would
// differ from run to run.
func provenance(w io.Writer, version string, files []string) error {
	var subjects, materials []object
	var source, compiler string
	var architectures []string
	modules := map[string]string{}
	modified := false
	for _, file := range files {
		content := must(os.ReadFile(file))
		name := filepath.Base(file)
		subjects = append(subjects, object{"name": name, "digest": object{"sha256": fmt.Sprintf("%x", sha256.Sum256(content))}})
		info, err := buildinfo.ReadFile(file)
		if err != nil {
			continue // no binary
		}
		architectures = append(architectures, setting(info, "GOARCH"))
		source, compiler = setting(info, "vcs.revision"), info.GoVersion
		modified = modified || setting(info, "vcs.modified") == "true"
		for _, m := range info.Deps {
			modules["pkg:golang/"+m.Path+"@"+m.Version] = m.Sum
		}
	}
	if compiler == "" {
		return fmt.Errorf("none of %d files is a binary of Go's", len(files))
	}
	from := object{"uri": "git+https://" + module}
	if source != "" { // there is none in a source archive
		from["digest"] = object{"gitCommit": source}
	}
	if modified {
		from["annotations"] = object{"modified": true}
	}
	materials = append(materials, from)
	sums := must(os.ReadFile("go.sum"))
	materials = append(materials,
		object{"name": "go.sum", "digest": object{"sha256": fmt.Sprintf("%x", sha256.Sum256(sums))}},
		object{"name": "go", "uri": "pkg:golang/std@" + strings.TrimPrefix(compiler, "go")})
	for _, uri := range slices.Sorted(maps.Keys(modules)) {
		sum, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(modules[uri], "h1:"))
		if err != nil {
			return fmt.Errorf("the sum of %s: %w", uri, err)
		}
		materials = append(materials, object{"uri": uri, "digest": object{"dirHash1": fmt.Sprintf("%x", sum)}})
	}
	builder := os.Getenv("BUILDER_ID")
	if builder == "" {
		builder = "https://" + module + "/blob/main/docs/releasing.md"
	}
	return writeJSON(w, object{
		"_type":         "https://in-toto.io/Statement/v1",
		"subject":       subjects,
		"predicateType": "https://slsa.dev/provenance/v1",
		"predicate": object{
			"buildDefinition": object{
				"buildType":            "https://" + module + "/blob/main/docs/releasing.md#make-release",
				"externalParameters":   object{"version": version, "architectures": architectures},
				"resolvedDependencies": materials,
			},
			"runDetails": object{"builder": object{"id": builder, "version": object{"go": compiler}}},
		},
	})
}
