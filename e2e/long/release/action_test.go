package release

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/e2e/rig/recipes"
	"github.com/seed-126c5d8a/fini/internal/tests/need"
)

// newKey makes one that signs sums: the public part is as the action takes it, and the secret one a file.
func newKey(t *testing.T) (public, secret string) {
	t.Helper()
	need.Program(t, "minisign")
	dir := t.TempDir()
	rig.Run(t, "minisign", "-G", "-W", "-p", dir+"/public", "-s", dir+"/secret")
	words := strings.Fields(rig.ReadFile(t, dir+"/public"))
	return words[len(words)-1], dir + "/secret"
}

// sign signs the sums in a folder, and returns the signature.
func sign(t *testing.T, dir, version, secret string) string {
	t.Helper()
	rig.Run(t, "env", "MINISIGN_KEY="+secret, "sh", "../packaging/sign.sh", dir, version)
	return rig.ReadFile(t, filepath.Join(dir, "SHA256SUMS.minisig"))
}

// A throw-away key signs the sums, twice the same. Whether the signature fits is asked for by releaseAction.
func releaseSigned(t *testing.T, r release) {
	dir := t.TempDir()
	_, secret := newKey(t)
	rig.Put(t, dir+"/SHA256SUMS", r.sums, 0o644)
	if sign(t, dir, r.version, secret) != sign(t, dir, r.version, rig.ReadFile(t, secret)) {
		t.Error("the same key, from a file and as text, makes two signatures")
	}
	out, err := exec.Command("env", "MINISIGN_KEY=no such file and no key", "sh", "../packaging/sign.sh", dir, r.version).CombinedOutput()
	if err == nil {
		t.Errorf("signed without a key: %s", out)
	}
}

// The script of the GitHub action puts fini on the PATH of the next steps, and nothing that is
// not what was released.
func releaseAction(t *testing.T, r release) {
	need.Program(t, "curl")
	public, secret := newKey(t)
	binary := "fini-linux-" + runtime.GOARCH
	// It changes one byte in the middle of a file.
	const damage = `perl -0777 -i -pe 'substr($_, length() / 2, 1) ^= "\1"' `
	for _, tt := range []struct {
		name    string
		version string
		key     string
		change  string // of the release, by a script
		fails   string
		gh      string // a stand-in for GitHub's program, which asks GitHub
	}{
		{"sums", r.version, "", "", "", ""},
		{"signed", "v" + r.version, public, "", "", ""},
		{"changed binary", r.version, "", damage + binary, "is not what SHA256SUMS says", ""},
		{"changed sums", r.version, public, damage + "SHA256SUMS", "not signed", ""},
		{"other release", "99.0.0", public, "", "and not fini 99.0.0", ""},
		{"no signature", r.version, public, "rm SHA256SUMS.minisig", "cannot get", ""},
		{"no binary", r.version, "", "rm " + binary, "cannot get", ""},
		{"version of the changelog", "", public, "", "", ""},
		{"attested", r.version, "", "", "", "true"},
		{"not attested", r.version, "", "", "has no attestation as fini " + r.version, "false"},
		{"no version", "main", public, "", `"main" is no version of fini`, ""},
		{"not among the sums", r.version, "", ">SHA256SUMS", "does not name", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir, temp := t.TempDir(), t.TempDir()
			rig.Run(t, "cp", r.binary(runtime.GOARCH), filepath.Join(r.dir, "SHA256SUMS"), dir)
			sign(t, dir, r.version, secret)
			rig.Run(t, "env", "-C", dir, "sh", "-ec", tt.change)
			url := "file://" + dir
			if tt.name == "signed" {
				server := httptest.NewServer(http.FileServer(http.Dir(dir)))
				defer server.Close()
				url = server.URL + "/"
			}
			cmd := exec.Command("sh", "../packaging/action/install.sh")
			cmd.Env = append(os.Environ(), "RUNNER_TEMP="+temp, "GITHUB_PATH="+temp+"/path", "GITHUB_OUTPUT="+temp+"/output",
				"RELEASE_VERSION="+tt.version, "RELEASE_URL="+url, "MINISIGN_PUBLIC_KEY="+tt.key, "no_proxy=*")
			if tt.gh != "" {
				rig.Put(t, temp+"/gh", "#!/bin/sh\necho \"$*\" | grep -q '^attestation verify "+binary+" --repo .*/v"+r.version+
					"$' && "+tt.gh+"\n", 0o755)
				cmd.Env = append(cmd.Env, "ATTESTATION=true", "PATH="+temp+":"+os.Getenv("PATH"))
			}
			out, err := cmd.CombinedOutput()
			path, _ := os.ReadFile(temp + "/path")
			if tt.fails != "" {
				if err == nil || !strings.Contains(string(out), "::error title=fini::") || !strings.Contains(string(out), tt.fails) ||
					len(path) > 0 {
					t.Errorf("%v, PATH has got %q: %s", err, path, out)
				}
				return
			}
			if err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			installed := filepath.Join(strings.TrimSpace(string(path)), "fini")
			if got := rig.ReadFile(t, temp+"/output"); got != "path="+installed+"\n" {
				t.Errorf("the action says %q, and PATH has %s", got, installed)
			}
			recipes.MustBeAs(t, installed, r.binary(runtime.GOARCH), 0o755)
		})
	}
}

// actDir is a directory in which act runs a workflow.
type actDir struct {
	*recipes.Dir
	t *testing.T
}

func newActDir(t *testing.T, standIns map[string]string) actDir {
	t.Helper()
	need.Program(t, "act", "curl", "git", "bash")
	k := actDir{recipes.NewDir(t, standIns), t}
	// What lies beside fini is this fini's folder, which is not to be on PATH here.
	k.Env = append(slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "PATH=") }),
		"HOME="+k.in("home"), "XDG_CACHE_HOME="+k.in("cache"),
		"PATH="+k.in("bin")+":"+os.Getenv("PATH"), "GOCACHE="+recipes.GoCache(t), "GOFLAGS=-modcacherw",
		"GOMODCACHE="+strings.TrimSpace(rig.Run(t, "go", "env", "GOMODCACHE")))
	return k
}

func (k actDir) in(name string) string { return filepath.Join(k.Dir.Dir, name) }

// mustAct makes a folder a repository with a commit of what is there, and has act run its workflow, and say these things.
func (k actDir) mustAct(folder string, args []string, status int, says ...string) {
	k.t.Helper()
	rig.Run(k.t, "sh", "-c", `cd "$1" && git init -q && git add -A && git -c user.name=a -c user.email=a@b -c commit.gpgsign=false commit -q -m all`, "sh", k.in(folder))
	out := k.MustLeaveNothing(k.Start(append([]string{"sh", "-c",
		`cd ` + folder + ` && exec act push -P ubuntu-latest=-self-hosted "$@"`, "sh"}, args...)...), status)
	for _, want := range says {
		if !strings.Contains(out, want) {
			k.t.Errorf("act says nothing of %q: %s", want, out)
		}
	}
}

// act runs the workflow of the recipe: the action is taken from this tree, and gets the release that the changelog
// beside it names, as the signature shows. A step before it says which shell it wants.
func TestGitHubActionsByAct(t *testing.T) {
	t.Parallel()
	k := newActDir(t, map[string]string{"make": recipes.Leaky})
	public, secret := newKey(t)
	// A part of the tree, and a release with one file.
	rig.Run(t, "sh", "-ec", `mkdir -p "$2/tree/packaging" "$2/dist" && cp -r ../packaging/action "$2/tree/packaging/" && cp ../action.yml ../CHANGELOG.md "$2/tree"
		cp "$1" "$2/dist/fini-linux-$3" && cd "$2/dist" && sha256sum fini-linux-$3 >SHA256SUMS`, "sh", rig.Fini, k.in(""), runtime.GOARCH)
	sign(t, k.in("dist"), strings.Fields(rig.Run(t, rig.Fini, "--version"))[2], secret)
	recipe := recipes.BlockWith(t, "../docs/ci.md", `shell: "fini`)
	m := regexp.MustCompile(`(?m)^( +)- uses: (\S+/fini)@(v\S+)\n`).FindStringSubmatch(recipe)
	if m == nil {
		t.Fatalf("no action in %s", recipe)
	}
	workflow := strings.Replace(recipe, m[0], fmt.Sprintf("%[1]s- run: echo before\n%[1]s  shell: bash\n%[2]s%[1]s  with:\n%[1]s    url: file://%[3]s\n%[1]s    minisign-key: %[4]s\n",
		m[1], m[0], k.in("dist"), public), 1)
	k.File("work/.github/workflows/tests.yml", workflow, 0o644)
	k.mustAct("work", []string{"--local-repository", m[2] + "@" + m[3] + "=" + k.in("tree")}, 1, "before", "Failure - Main make e2e",
		"stopping leftover ") // a leak fails the step
}

// act runs the job of the project's own workflow that uses the action of its tree.
func TestActionOfThisTreeByAct(t *testing.T) {
	t.Parallel()
	k := newActDir(t, nil)
	setUpGo := regexp.MustCompile(`actions/setup-go@\w+`).FindString(rig.ReadFile(t, "../.github/workflows/ci.yml"))
	k.File("setup-go/action.yml", "name: a stand-in\nruns:\n  using: composite\n  steps:\n    - {run: go version, shell: sh}\n", 0o644)
	rig.Run(t, "sh", "-c", `mkdir "$1" && cd .. && git ls-files -z --cached --others --exclude-standard ':!e2e' | xargs -0 cp --parents -t "$1"`, "sh", k.in("tree"))
	k.mustAct("tree", []string{"-j", "action", "--local-repository", setUpGo + "=" + k.in("setup-go")}, 0,
		"Success - Main ./", "fini ends this step at once", "stopping leftover ")
}
