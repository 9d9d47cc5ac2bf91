package install

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/internal/tests/need"
)

// registry plays npm and its registry, a file of what is published: once only, and a pre-release only with a tag.
const registry = `#!/bin/sh
manifest() { tar -xzOf "$1" package/package.json; }
case $1 in
view) grep -x "$2" registry || { echo "npm error code E404" >&2; exit 1; } ;;
publish)
	for package do :; done
	id=$(manifest "$package" | sed 's/.*"name": "\([^"]*\)", "version": "\([^"]*\)".*/\1@\2/')
	! grep -qx "$id" registry || { echo "npm error You cannot publish over the previously published versions" >&2; exit 1; }
	case ${id##*@} in *-*) case "$*" in *"--tag "*) ;; *) echo "npm error You must specify a tag using --tag when publishing a prerelease version." >&2; exit 1 ;; esac ;; esac
	echo "$id" >>registry
	echo "$*" >>calls ;;
esac
`

// The workflow publishes the npm packages of a release, those with a binary first, and goes on after a run that came only
// half of the way.
func TestPublishNPM(t *testing.T) {
	rig.Long(t)
	t.Parallel()
	need.Program(t, "node")
	workflow := rig.ReadFile(t, "../.github/workflows/release.yml")
	_, job, _ := strings.Cut(workflow, "\n  npm:\n")
	job, _, _ = strings.Cut(job, "\n  pypi:\n")
	runs := regexp.MustCompile(`(?m)^      - run: (.*)$`).FindAllStringSubmatch(job, -1)
	if len(runs) != 1 {
		t.Fatalf("the job runs %q", runs)
	}
	packaging, err := filepath.Abs("../packaging")
	rig.NoError(t, err)
	for _, tt := range []struct{ version, there, tag string }{
		{"1.0.0", "", "latest"},
		{"1.0.0-rc.1", "", "next"},
		{"1.0.0", "@fini-init/linux-arm64@1.0.0\n", "latest"},
	} {
		t.Run(tt.version+" after "+tt.there, func(t *testing.T) {
			dir := t.TempDir()
			rig.NoError(t, os.Symlink(packaging, filepath.Join(dir, "packaging")))
			rig.Put(t, filepath.Join(dir, "bin/npm"), registry, 0o755)
			rig.Put(t, filepath.Join(dir, "registry"), tt.there, 0o644)
			var want []string
			for _, name := range []string{"@fini-init/linux-arm64", "@fini-init/linux-x64", "fini-init"} {
				file := strings.ReplaceAll(strings.TrimPrefix(name, "@"), "/", "-") + "-" + tt.version + ".tgz"
				rig.Put(t, filepath.Join(dir, "package/package.json"), `{"name": "`+name+`", "version": "`+tt.version+`"}`, 0o644)
				rig.Put(t, filepath.Join(dir, "dist/.keep"), "", 0o644)
				rig.Run(t, "tar", "-C", dir, "-czf", filepath.Join(dir, "dist", file), "package")
				want = append(want, name+"@"+tt.version)
			}
			cmd := exec.Command("sh", "-ec", runs[0][1])
			cmd.Dir, cmd.Env = dir, append(os.Environ(), "PATH="+filepath.Join(dir, "bin")+":"+os.Getenv("PATH"))
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v: %s", err, out)
			}
			got := strings.Fields(rig.ReadFile(t, filepath.Join(dir, "registry")))
			rig.Equal(t, "published", strings.Join(got, " "), strings.Join(want, " "))
			calls := rig.ReadFile(t, filepath.Join(dir, "calls"))
			rig.Equal(t, "those with the tag", strings.Count(calls, "--tag "+tt.tag+" "), strings.Count(calls, "\n"))
		})
	}
}

// The wheel's METADATA has no field that its version of the format lacks: packaging.metadata refuses it, and so may an index.
func TestMetadataOfTheWheel(t *testing.T) {
	t.Parallel()
	fields := strings.Fields(`Metadata-Version Name Version Platform Supported-Platform Summary Description Description-Content-Type Keywords
		Home-page Download-URL Author Author-email Maintainer Maintainer-email License Classifier Requires-Dist Requires-Python
		Requires-External Project-URL Provides-Extra Provides-Dist Obsoletes-Dist`)
	text := rig.ReadFile(t, "../packaging/fini_init/METADATA")
	if !strings.HasPrefix(text, "Metadata-Version: 2.1\n") {
		t.Fatal("another version, which has other fields")
	}
	for line := range strings.SplitSeq(strings.TrimSpace(text), "\n") {
		if field, _, _ := strings.Cut(line, ": "); !slices.Contains(fields, field) {
			t.Errorf("version 2.1 has no field %s", field)
		}
	}
}
