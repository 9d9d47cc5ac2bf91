package main

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"time"
)

// licenses are those of the modules that are linked into fini, and their files. One that is missing here is an error, so that
// nothing is shipped without its license.
var licenses = map[string][2]string{
	"github.com/alecthomas/kong": {"MIT", "COPYING"},
	"golang.org/x/sys":           {"BSD-3-Clause", "LICENSE"},
	"std":                        {"BSD-3-Clause", "LICENSE"},
}

const (
	slsa      = "https://slsa.dev/provenance/v1"
	releasing = "https://" + module + "/blob/main/packaging/README.md"
)

func sum(content []byte) string { return fmt.Sprintf("%x", sha256.Sum256(content)) }

// parts writes the list of parts of all binaries.
func (r *release) parts() {
	var out bytes.Buffer
	writeJSON(&out, r.spdx(r.binaries))
	r.write(fmt.Sprintf("fini_%s.spdx.json", r.version), out.Bytes())
}

// spdx is what the binaries say they are built from, in SPDX 2.3.
func (r *release) spdx(binaries []binary) object {
	var packages, relations []object
	known := map[string]bool{}
	var all []byte
	add := func(from, how, id string, p object) {
		relations = append(relations, object{"spdxElementId": from, "relationshipType": how, "relatedSpdxElement": id})
		if !known[id] {
			known[id] = true
			packages = append(packages, p)
			p["SPDXID"], p["filesAnalyzed"], p["downloadLocation"], p["copyrightText"] = id, false, "NOASSERTION", "NOASSERTION"
		}
	}
	describe := func(name, version, license, purl string) object {
		return object{
			"name": name, "versionInfo": version, "licenseConcluded": license, "licenseDeclared": license,
			"externalRefs": []object{{
				"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": purl,
			}},
		}
	}
	for _, b := range binaries {
		all = append(all, b.content...)
		id := "SPDXRef-" + b.name
		p := describe("fini", r.version, "MIT", "pkg:golang/"+module+"@v"+r.version+"?goarch="+b.arch+"&goos=linux")
		p["packageFileName"], p["primaryPackagePurpose"] = b.name, "APPLICATION"
		p["checksums"] = []object{{"algorithm": "SHA256", "checksumValue": sum(b.content)}}
		if revision := setting(b.info, "vcs.revision"); revision != "" {
			p["sourceInfo"] = "built from commit " + revision
		}
		add("SPDXRef-DOCUMENT", "DESCRIBES", id, p)
		for _, m := range append(b.info.Deps, &debug.Module{Path: "std", Version: strings.TrimPrefix(b.info.GoVersion, "go")}) {
			license := licenses[m.Path][0]
			if license == "" || m.Replace != nil {
				check(fmt.Errorf("%s has %s linked in, whose license packaging/parts.go does not know", b.name, m.Path))
			}
			number := strings.TrimPrefix(m.Version, "v")
			add(id, "STATIC_LINK", "SPDXRef-"+strings.ReplaceAll(m.Path, "/", "-")+"-"+number,
				describe(m.Path, number, license, "pkg:golang/"+m.Path+"@"+m.Version))
		}
	}
	return object{
		"spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT",
		"name":              "fini-" + r.version,
		"documentNamespace": fmt.Sprintf("https://%s/spdx/%s/%s", module, r.version, sum(all)),
		"creationInfo":      object{"created": r.at.Format(time.RFC3339), "creators": []string{"Tool: fini-packaging"}},
		"packages":          packages, "relationships": relations,
	}
}

// provenance writes the sources and the compiler of all files. SHA256SUMS has its sum, so it is worth what the signature of
// SHA256SUMS is worth. It has no times and no invocation, because those would differ from run to run.
func (r *release) provenance() {
	var subjects []object
	for _, path := range must(filepath.Glob(filepath.Join(r.dist, "*"))) {
		subjects = append(subjects, object{"name": filepath.Base(path), "digest": object{"sha256": sum(must(os.ReadFile(path)))}})
	}
	var out bytes.Buffer
	writeJSON(&out, statement(slsa, r.built(r.binaries), subjects))
	r.write("provenance.json", out.Bytes())
}

// A statement is in-toto's.
func statement(kind string, predicate object, subjects []object) object {
	return object{"_type": "https://in-toto.io/Statement/v1", "subject": subjects, "predicateType": kind, "predicate": predicate}
}

// built is from what and by what binaries were built, as SLSA's predicate.
func (r *release) built(binaries []binary) object {
	from := object{"uri": "git+https://" + module}
	modules := map[string]string{}
	var architectures []string
	for _, b := range binaries {
		architectures = append(architectures, b.arch)
		if revision := setting(b.info, "vcs.revision"); revision != "" { // there is none in a source archive
			from["digest"] = object{"gitCommit": revision}
		}
		if setting(b.info, "vcs.modified") == "true" {
			from["annotations"] = object{"modified": true}
		}
		for _, m := range b.info.Deps {
			modules["pkg:golang/"+m.Path+"@"+m.Version] = m.Sum
		}
	}
	compiler := binaries[0].info.GoVersion
	materials := []object{from,
		{"name": "go.sum", "digest": object{"sha256": sum(must(os.ReadFile("go.sum")))}},
		{"name": "go", "uri": "pkg:golang/std@" + strings.TrimPrefix(compiler, "go")}}
	for _, uri := range slices.Sorted(maps.Keys(modules)) {
		hash := must(base64.StdEncoding.DecodeString(strings.TrimPrefix(modules[uri], "h1:")))
		materials = append(materials, object{"uri": uri, "digest": object{"dirHash1": fmt.Sprintf("%x", hash)}})
	}
	return object{
		"buildDefinition": object{
			"buildType":            releasing + "#make-release",
			"externalParameters":   object{"version": r.version, "architectures": architectures},
			"resolvedDependencies": materials,
		},
		"runDetails": object{"builder": object{"id": cmp.Or(os.Getenv("BUILDER_ID"), releasing), "version": object{"go": compiler}}},
	}
}

// notices writes the licenses of fini and of each linked module. Each license must go along with the binary.
func notices(w io.Writer) {
	fmt.Fprintf(w, "%s", must(os.ReadFile("LICENSE")))
	for _, path := range slices.Sorted(maps.Keys(licenses)) {
		args, name := []string{"list", "-m", "-f", "{{.Dir}}", path}, path
		if path == "std" {
			args, name = []string{"env", "GOROOT"}, "the Go runtime and standard library"
		}
		dir, err := exec.Command("go", args...).Output()
		if err != nil {
			err = fmt.Errorf("go %q: %w", args, err)
		}
		text := must(os.ReadFile(filepath.Join(strings.TrimSpace(string(must(dir, err))), licenses[path][1])))
		fmt.Fprintf(w, "\n%s\n\nLinked into fini: %s\n\n%s", strings.Repeat("-", 78), name, text)
	}
}
