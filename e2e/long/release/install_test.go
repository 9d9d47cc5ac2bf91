package release

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/need"
	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/e2e/rig/clients"
	"github.com/seed-126c5d8a/fini/e2e/rig/containers"
	"github.com/seed-126c5d8a/fini/e2e/rig/procfs"
	"github.com/seed-126c5d8a/fini/e2e/rig/pty"
	"github.com/seed-126c5d8a/fini/e2e/rig/recipes"
	"golang.org/x/sys/unix"
)

// Each way to get fini from a release, and what is got.

// mostBytes is what an npm package or a wheel may have, compressed.
const mostBytes = 2_000_000

// packageName is what fini is called where its own name is taken.
const packageName = "fini-init"

// mustBeFini runs an installed fini, which has the release's version, passes statuses on, and
// leaves nothing.
func mustBeFini(t *testing.T, r release, argv ...string) {
	t.Helper()
	if out := rig.Run(t, argv[0], append(argv[1:], "--version")...); !strings.HasPrefix(out, "fini version "+r.version+" ") {
		t.Errorf("%q says that it is %q", argv, out)
	}
	k := recipes.NewDir(t, nil)
	k.Env = nil // without another fini on PATH
	k.MustLeaveNothing(k.Start(append(argv, "--linger=0", "--", "sh", "-c", "setsid sleep 1000 & exit 7")...), 7)
}

func releaseArchive(t *testing.T, r release) {
	dir := t.TempDir()
	rig.Run(t, "tar", "-xzf", r.file(t, "fini_*_linux_"+runtime.GOARCH+".tar.gz"), "-C", dir)
	dir = filepath.Join(dir, "fini-"+r.version+"-linux-"+runtime.GOARCH)
	recipes.MustBeAs(t, filepath.Join(dir, "fini"), r.binary(runtime.GOARCH), 0o755)
	recipes.MustBeAs(t, filepath.Join(dir, "fini.1"), "../docs/fini.1", 0o644)
	recipes.MustBeAs(t, filepath.Join(dir, "NOTICES"), "../internal/NOTICES", 0o644)
	for _, shell := range []string{"bash", "zsh", "fish"} {
		if rig.ReadFile(t, filepath.Join(dir, "completions", "fini."+shell)) != r.completions[shell] {
			t.Errorf("another completion for %s than that of this fini", shell)
		}
	}
	mustBeFini(t, r, filepath.Join(dir, "fini"))
}

// mustHoldFini looks into the only layer of an image, which has this binary and nothing else.
func mustHoldFini(t *testing.T, layer []byte, binary string) {
	t.Helper()
	in := tar.NewReader(bytes.NewReader(layer))
	h, err := in.Next()
	if err != nil || h.Name != "fini" || h.Mode != 0o755 || h.Uid != 0 {
		t.Fatalf("the first file is %+v (%v)", h, err)
	}
	if content, _ := io.ReadAll(in); string(content) != rig.ReadFile(t, binary) {
		t.Errorf("/fini of the image is another than %s", binary)
	}
	if h, err := in.Next(); err != io.EOF {
		t.Errorf("there is more: %+v (%v)", h, err)
	}
}

// releaseIndex follows the index of the image for all architectures to each binary, and has podman run
// the one that it takes for this machine.
func releaseIndex(t *testing.T, r release) {
	archive := r.file(t, "fini_*_linux.oci.tar")
	content := map[string][]byte{}
	f, err := os.Open(archive)
	rig.NoError(t, err)
	defer func() { _ = f.Close() }()
	for in := tar.NewReader(f); ; {
		h, err := in.Next()
		if err == io.EOF {
			break
		}
		if err == nil {
			content[h.Name], err = io.ReadAll(in)
		}
		rig.NoError(t, err)
	}
	type descriptor struct {
		MediaType, Digest string
		Size              int
		Platform          struct{ OS, Architecture, Variant string }
		Annotations       map[string]string
	}
	blob := func(d descriptor) []byte {
		text := content["blobs/"+strings.Replace(d.Digest, ":", "/", 1)]
		if got := fmt.Sprintf("sha256:%x", sha256.Sum256(text)); got != d.Digest || len(text) != d.Size {
			t.Fatalf("%s has %d bytes and the sum %s, want %d", d.Digest, len(text), got, d.Size)
		}
		return text
	}
	var found, attested []string
	architectures := map[string]string{} // of a digest
	var layout, index struct {
		Manifests   []descriptor
		Annotations map[string]string
	}
	rig.MustParse(t, content["index.json"], &layout)
	if len(layout.Manifests) != 1 {
		t.Fatalf("%d indexes", len(layout.Manifests))
	}
	rig.MustParse(t, blob(layout.Manifests[0]), &index)
	for _, d := range index.Manifests {
		var manifest struct {
			Config descriptor
			Layers []descriptor
		}
		rig.MustParse(t, blob(d), &manifest)
		if image := d.Annotations["vnd.docker.reference.digest"]; image != "" {
			if d.Annotations["vnd.docker.reference.type"] != "attestation-manifest" || d.Platform.OS != "unknown" || architectures[image] == "" {
				t.Errorf("an attestation of %q is %+v", architectures[image], d)
			}
			for _, layer := range manifest.Layers {
				var statement struct {
					PredicateType string
					Subject       []struct{ Digest struct{ SHA256 string } }
					Predicate     struct {
						Packages []struct{ Name, PackageFileName string }
					}
				}
				rig.MustParse(t, blob(layer), &statement)
				if kind := layer.Annotations["in-toto.io/predicate-type"]; kind != statement.PredicateType || "sha256:"+statement.Subject[0].Digest.SHA256 != image {
					t.Errorf("%s of %s: %+v", kind, image, statement)
				}
				what := statement.PredicateType
				for _, part := range statement.Predicate.Packages {
					what += " " + part.Name + part.PackageFileName
				}
				attested = append(attested, what)
			}
			continue
		}
		architectures[d.Digest] = d.Platform.Architecture
		var config struct{ OS, Architecture, Variant string }
		rig.MustParse(t, blob(manifest.Config), &config)
		if config != d.Platform || len(manifest.Layers) != 1 {
			t.Errorf("an image for %v in the place of one for %v, with %d layers", config, d.Platform, len(manifest.Layers))
		}
		mustHoldFini(t, blob(manifest.Layers[0]), r.binary(config.Architecture))
		found = append(found, config.Architecture)
	}
	slices.Sort(found)
	if want := []string{"386", "amd64", "arm", "arm64"}; !slices.Equal(found, want) {
		t.Errorf("images for %q, want %q", found, want)
	}
	for _, arch := range found {
		want := "https://spdx.dev/Document finifini-linux-" + arch + " github.com/alecthomas/kong golang.org/x/sys std"
		if !slices.Contains(attested, want) || len(attested) != 2*len(found) || !slices.Contains(attested, "https://slsa.dev/provenance/v1") {
			t.Errorf("the index has %q, want %q", attested, want)
		}
	}
	mustBeLabelled(t, r, index.Annotations)
	// As it is published: skopeo checks each sum, and copies all of it.
	copied := t.TempDir()
	rig.Run(t, need.Program(t, "skopeo"), "copy", "-q", "--all", "oci-archive:"+archive, "oci:"+copied+":"+r.version)
	if blobs, _ := filepath.Glob(copied + "/blobs/sha256/*"); len(blobs) < 7*len(found) {
		t.Errorf("skopeo copies %d blobs", len(blobs))
	}

	// The image has one name, whoever loads it from either archive, and a Dockerfile's COPY --from finds it by that.
	name := r.image + ":" + r.version
	if got := layout.Manifests[0].Annotations; got["org.opencontainers.image.ref.name"] != name || got["io.containerd.image.name"] != "docker.io/library/"+name {
		t.Errorf("the index is called %q", got)
	}
	need.Program(t, "runc")
	need.Root(t, "for podman")
	e := &containers.Engine{Client: containers.PodmanClient(t), Env: containers.PodmanConfig(t)}
	dir := t.TempDir()
	file := "FROM scratch\nCOPY --from=" + name + " /fini /fini\nENTRYPOINT [\"/fini\"]\n"
	rig.Put(t, filepath.Join(dir, "Dockerfile"), file, 0o644)
	for _, archive := range []string{archive, r.file(t, "fini_*_linux_"+runtime.GOARCH+".docker.tar")} {
		if out := e.Must(t, "load", "-q", "-i", archive); !strings.Contains(out, "docker.io/library/"+name) {
			t.Errorf("%s: podman load says %q", filepath.Base(archive), out)
		}
		e.Must(t, "build", "-q", "--pull=never", "-t", "copied", dir)
		if out := e.Must(t, "run", "--rm", "--network", "none", "copied", "--version"); !strings.HasPrefix(out, "fini version "+r.version+" ") {
			t.Errorf("podman's fini is %q", out)
		}
		e.Must(t, "rmi", "-f", "copied", name)
	}
}

// releaseDockerfile looks at the sums in the lines for a Dockerfile. What runs them, a newer BuildKit,
// is not everywhere.
func releaseDockerfile(t *testing.T, r release) {
	text := rig.ReadFile(t, r.file(t, "fini_*.dockerfile"))
	adds := regexp.MustCompile(`(?m)^FROM scratch AS fini-(\w+)\nADD --chmod=0755 --checksum=sha256:(\w+) https://\S+/v(\S+)/(\S+) /fini$`)
	all := adds.FindAllStringSubmatch(text, -1)
	if len(all) != len(releaseMachines) || !strings.HasSuffix(text, "\nFROM fini-${TARGETARCH} AS fini\n") {
		t.Errorf("%d stages: %s", len(all), text)
	}
	sums := rig.ReadFile(t, filepath.Join(r.dir, "SHA256SUMS"))
	for _, m := range all {
		if m[4] != "fini-linux-"+m[1] || m[3] != r.version || !strings.Contains(sums, m[2]+"  "+m[4]+"\n") {
			t.Errorf("%q is not so among the sums", m[0])
		}
	}
}

// releaseProvenance names each file by its sum, and the commit that it comes from.
func releaseProvenance(t *testing.T, r release) {
	var statement struct {
		Type          string `json:"_type"`
		PredicateType string
		Subject       []struct {
			Name   string
			Digest struct{ SHA256 string }
		}
		Predicate struct {
			BuildDefinition struct {
				BuildType            string
				ExternalParameters   struct{ Version string }
				ResolvedDependencies []struct {
					Name, URI string
					Digest    map[string]string
				}
			}
			RunDetails struct{ Builder struct{ ID string } }
		}
	}
	rig.MustParse(t, []byte(rig.ReadFile(t, r.file(t, "provenance.json"))), &statement)
	if statement.Type != "https://in-toto.io/Statement/v1" || statement.PredicateType != "https://slsa.dev/provenance/v1" {
		t.Errorf("it is a %s of %s", statement.Type, statement.PredicateType)
	}
	build := statement.Predicate.BuildDefinition
	if build.BuildType == "" || statement.Predicate.RunDetails.Builder.ID == "" || build.ExternalParameters.Version != r.version {
		t.Errorf("not all of SLSA's fields are there: %+v", statement.Predicate)
	}
	var sums strings.Builder
	for _, s := range statement.Subject {
		fmt.Fprintf(&sums, "%s  %s\n", s.Digest.SHA256, s.Name)
	}
	var want strings.Builder
	for line := range strings.Lines(rig.ReadFile(t, filepath.Join(r.dir, "SHA256SUMS"))) {
		if !strings.HasSuffix(line, "  provenance.json\n") {
			want.WriteString(line)
		}
	}
	if recipes.SortedLines(sums.String()) != recipes.SortedLines(want.String()) {
		t.Errorf("subjects:\n%swant:\n%s", &sums, &want)
	}
	digests := map[string]string{}
	for _, d := range build.ResolvedDependencies {
		for kind, sum := range d.Digest {
			digests[d.Name+d.URI+" "+kind] = sum
		}
	}
	if got, want := digests["go.sum sha256"], fmt.Sprintf("%x", sha256.Sum256([]byte(rig.ReadFile(t, "../go.sum")))); got != want {
		t.Errorf("go.sum is %q, want %s", got, want)
	}
	// In a worktree beside the repository .git is a file, and go build looks for a directory.
	repository, err := os.Stat("../.git")
	if head, gitErr := exec.Command("git", "-C", "..", "rev-parse", "HEAD").Output(); gitErr == nil && err == nil && repository.IsDir() {
		if got := digests["git+https://github.com/seed-126c5d8a/fini gitCommit"]; got != strings.TrimSpace(string(head)) {
			t.Errorf("the commit is %q, want %s", got, head)
		}
	}
	if len(digests["pkg:golang/golang.org/x/sys@v0.49.0 dirHash1"]) != 64 {
		t.Errorf("no sum of x/sys among %q", digests)
	}
}

// A throw-away key signs the sums, twice the same. What is changed afterwards is found.
func releaseSigned(t *testing.T, r release) {
	dir := t.TempDir()
	public, secret := newKey(t)
	rig.Run(t, "cp", filepath.Join(r.dir, "SHA256SUMS"), dir)
	if sign(t, dir, r.version, secret) != sign(t, dir, r.version, rig.ReadFile(t, secret)) {
		t.Error("the same key, from a file and as text, makes two signatures")
	}
	verify := func() error {
		return exec.Command("minisign", "-V", "-q", "-p", public, "-m", filepath.Join(dir, "SHA256SUMS")).Run()
	}
	if err := verify(); err != nil {
		t.Errorf("minisign does not accept the signature: %v", err)
	}
	damage(t, filepath.Join(dir, "SHA256SUMS"))
	if verify() == nil {
		t.Error("minisign accepts sums that have been changed")
	}
	cmd := exec.Command("sh", "../packaging/sign.sh", dir, r.version)
	cmd.Env = append(os.Environ(), "MINISIGN_KEY=no such file and no key")
	if out, err := cmd.CombinedOutput(); err == nil {
		t.Errorf("signed without a key: %s", out)
	}
}

// newKey makes a key, in two files.
func newKey(t *testing.T) (public, secret string) {
	t.Helper()
	need.Program(t, "minisign")
	dir := t.TempDir()
	public, secret = filepath.Join(dir, "public"), filepath.Join(dir, "secret")
	rig.Run(t, "minisign", "-G", "-W", "-p", public, "-s", secret)
	return public, secret
}

// publicText is a public key as the action takes it.
func publicText(t *testing.T, public string) string {
	words := strings.Fields(rig.ReadFile(t, public))
	return words[len(words)-1]
}

// sign signs the sums in a folder, and returns the signature.
func sign(t *testing.T, dir, version, key string) string {
	t.Helper()
	cmd := exec.Command("sh", "../packaging/sign.sh", dir, version)
	cmd.Env = append(os.Environ(), "MINISIGN_KEY="+key)
	rig.Succeed(t, cmd)
	return rig.ReadFile(t, filepath.Join(dir, "SHA256SUMS.minisig"))
}

// damage changes one byte in the middle of a file.
func damage(t *testing.T, name string) {
	t.Helper()
	text := []byte(rig.ReadFile(t, name))
	text[len(text)/2] ^= 1
	rig.Put(t, name, string(text), 0o644)
}

// The script of the GitHub action puts fini on the PATH of the next steps, and nothing that is
// not what was released.
func releaseAction(t *testing.T, r release) {
	need.Program(t, "curl")
	file, secret := newKey(t)
	public := publicText(t, file)
	dist := func(t *testing.T) string {
		dir := t.TempDir()
		rig.Run(t, "cp", r.binary(runtime.GOARCH), filepath.Join(r.dir, "SHA256SUMS"), dir)
		sign(t, dir, r.version, secret)
		return dir
	}
	in := func(dir, name string) string { return filepath.Join(dir, name) }
	binary := "fini-linux-" + runtime.GOARCH
	for _, tt := range []struct {
		name    string
		version string
		key     string
		change  func(t *testing.T, dir string)
		fails   string
		gh      string // a stand-in for GitHub's program, which asks GitHub
	}{
		{name: "sums", version: r.version},
		{name: "signed", version: "v" + r.version, key: public},
		{"changed binary", r.version, "", func(t *testing.T, dir string) { damage(t, in(dir, binary)) }, "is not what SHA256SUMS says", ""},
		{"changed sums", r.version, public, func(t *testing.T, dir string) { damage(t, in(dir, "SHA256SUMS")) }, "not signed", ""},
		{"other release", "99.0.0", public, nil, "and not fini 99.0.0", ""},
		{"no signature", r.version, public, func(t *testing.T, dir string) { _ = os.Remove(in(dir, "SHA256SUMS.minisig")) }, "cannot get", ""},
		{"no binary", r.version, "", func(t *testing.T, dir string) { _ = os.Remove(in(dir, binary)) }, "cannot get", ""},
		{name: "version of the changelog", key: public},
		{name: "attested", version: r.version, gh: "true"},
		{name: "not attested", version: r.version, gh: "false", fails: "has no attestation as fini " + r.version},
		{"no version", "main", public, nil, `"main" is no version of fini`, ""},
		{"not among the sums", r.version, "", func(t *testing.T, dir string) {
			rig.Put(t, in(dir, "SHA256SUMS"), "", 0o644)
		}, "does not name", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir, temp := dist(t), t.TempDir()
			if tt.change != nil {
				tt.change(t, dir)
			}
			url := "file://" + dir
			if tt.name == "signed" {
				server := httptest.NewServer(http.FileServer(http.Dir(dir)))
				defer server.Close()
				url = server.URL + "/"
			}
			cmd := exec.Command("sh", "../packaging/action/install.sh")
			cmd.Env = append(os.Environ(), "RUNNER_TEMP="+temp, "GITHUB_PATH="+in(temp, "path"), "GITHUB_OUTPUT="+in(temp, "output"),
				"RELEASE_VERSION="+tt.version, "RELEASE_URL="+url, "MINISIGN_PUBLIC_KEY="+tt.key, "no_proxy=*")
			if tt.gh != "" {
				rig.Put(t, in(temp, "gh"), "#!/bin/sh\necho \"$*\" | grep -q '^attestation verify "+binary+" --repo .*/v"+r.version+"$' && "+tt.gh+"\n", 0o755)
				cmd.Env = append(cmd.Env, "ATTESTATION=true", "PATH="+temp+":"+os.Getenv("PATH"))
			}
			out, err := cmd.CombinedOutput()
			path, _ := os.ReadFile(in(temp, "path"))
			if tt.fails != "" {
				if err == nil || !strings.Contains(string(out), "::error title=fini::") || !strings.Contains(string(out), tt.fails) || len(path) > 0 {
					t.Errorf("%v, PATH has got %q: %s", err, path, out)
				}
				return
			}
			if err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			installed := filepath.Join(strings.TrimSpace(string(path)), "fini")
			if got := rig.ReadFile(t, in(temp, "output")); got != "path="+installed+"\n" {
				t.Errorf("the action says %q, and PATH has %s", got, installed)
			}
			recipes.MustBeAs(t, installed, r.binary(runtime.GOARCH), 0o755)
			mustBeFini(t, r, installed)
		})
	}
}

// act runs the workflow of the recipe: the action is taken from this tree, and gets the release that the changelog
// beside it names, as the signature shows. A step before it says which shell it wants.
func TestGitHubActionsByAct(t *testing.T) {
	t.Parallel()
	need.Program(t, "act")
	for _, program := range []string{"curl", "git", "bash"} {
		need.Program(t, program)
	}
	tree, err := filepath.Abs("..")
	rig.NoError(t, err)
	k := recipes.NewDir(t, map[string]string{"make": recipes.Leaky})
	// A part of the tree, and a release with one file.
	rig.Run(t, "sh", "-c", `mkdir -p "$2/tree/packaging" && cp -r "$1/packaging/action" "$2/tree/packaging/" && cp "$1/action.yml" "$1/CHANGELOG.md" "$2/tree"`, "sh", tree, k.Dir)
	in := func(name string) string { return filepath.Join(k.Dir, name) }
	version := strings.Fields(rig.Run(t, rig.Fini, "--version"))[2]
	rig.Run(t, "sh", "-c", `mkdir "$2/dist" && cd "$2/dist" && cp "$1" fini-linux-$3 && sha256sum fini-linux-$3 >SHA256SUMS`, "sh", rig.Fini, k.Dir, runtime.GOARCH)
	public, secret := newKey(t)
	sign(t, in("dist"), version, secret)
	uses := regexp.MustCompile(`(?m)^( +)- uses: (\S+/fini)@(v\S+)\n`)
	recipe := recipes.BlockWith(t, "../docs/ci.md", `shell: "fini`)
	m := uses.FindStringSubmatch(recipe)
	if m == nil {
		t.Fatalf("no action in %s", recipe)
	}
	workflow := strings.Replace(recipe, m[0], fmt.Sprintf("%[1]s- run: echo before\n%[1]s  shell: bash\n%[2]s%[1]s  with:\n%[1]s    url: file://%[3]s\n%[1]s    minisign-key: %[4]s\n",
		m[1], m[0], in("dist"), publicText(t, public)), 1)
	k.File("work/.github/workflows/tests.yml", workflow, 0o644)
	rig.Run(t, "git", "init", "-q", in("work"))
	rig.Run(t, "git", "-C", in("work"), "-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false", "commit", "-q", "--allow-empty", "-m", "a commit")
	mustAct(t, k, "work", []string{"--local-repository", m[2] + "@" + m[3] + "=" + in("tree")}, "before", "Success - Main make e2e", "stopping leftover ")
}

// mustAct has act run the workflow in a folder, and say these things.
func mustAct(t *testing.T, k *recipes.Dir, folder string, args []string, says ...string) {
	t.Helper()
	in := func(name string) string { return filepath.Join(k.Dir, name) }
	// What lies beside fini is this fini's folder, which is not to be on PATH here.
	env := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "PATH=") })
	k.Env = append(env, "HOME="+in("home"), "XDG_CACHE_HOME="+in("cache"), "PATH="+in("bin")+":"+os.Getenv("PATH"),
		"GOCACHE="+recipes.GoCache(t), "GOFLAGS=-modcacherw", "GOMODCACHE="+strings.TrimSpace(rig.Run(t, "go", "env", "GOMODCACHE")))
	argv := append([]string{"sh", "-c", `cd ` + folder + ` && exec "$@"`, "sh", need.Program(t, "act"), "push", "-P", "ubuntu-latest=-self-hosted"}, args...)
	out := k.MustLeaveNothing(k.Start(argv...), 0)
	for _, want := range says {
		if !strings.Contains(out, want) {
			t.Errorf("act says nothing of %q: %s", want, out)
		}
	}
}

// act runs the job of the project's own workflow that uses the action of its tree.
func TestActionOfThisTreeByAct(t *testing.T) {
	t.Parallel()
	need.Program(t, "act")
	need.Program(t, "curl")
	workflow := rig.ReadFile(t, "../.github/workflows/ci.yml")
	setUpGo := regexp.MustCompile(`actions/setup-go@\w+`).FindString(workflow)
	k := recipes.NewDir(t, nil)
	in := func(name string) string { return filepath.Join(k.Dir, name) }
	k.File("setup-go/action.yml", "name: a stand-in\nruns:\n  using: composite\n  steps:\n    - {run: go version, shell: sh}\n", 0o644)
	rig.Run(t, "sh", "-c", `mkdir "$1" && cd .. && git ls-files -z --cached --others --exclude-standard ':!e2e' | xargs -0 cp --parents -t "$1" &&
		cd "$1" && git init -q && git add -A && git -c user.name=a -c user.email=a@b -c commit.gpgsign=false commit -q -m all`, "sh", in("tree"))
	mustAct(t, k, "tree", []string{"-j", "action", "--local-repository", setUpGo + "=" + in("setup-go")},
		"Success - Main ./", "fini ends this step at once", "stopping leftover ")
}

// releaseWheels looks into each wheel: its list is right, and the binary is a program in it.
func releaseWheels(t *testing.T, r release) {
	for arch, python := range map[string]string{"amd64": "x86_64", "arm64": "aarch64", "386": "i686"} {
		name := r.file(t, fmt.Sprintf("fini_init-*-py3-none-manylinux_2_17_%s.manylinux2014_%[1]s.musllinux_1_1_%[1]s.whl", python))
		mustFit(t, name)
		z, err := zip.OpenReader(name)
		rig.NoError(t, err)
		defer func() { _ = z.Close() }()
		record, list := map[string]string{}, ""
		for _, f := range z.File {
			in, err := f.Open()
			rig.NoError(t, err)
			text, err := io.ReadAll(in)
			rig.NoError(t, err)
			sum := sha256.Sum256(text)
			record[f.Name] = fmt.Sprintf("%s,sha256=%s,%d", f.Name, base64.RawURLEncoding.EncodeToString(sum[:]), len(text))
			switch filepath.Base(f.Name) {
			case "RECORD":
				list = string(text)
				record[f.Name] = f.Name + ",,"
			case packageName:
				if string(text) != rig.ReadFile(t, r.binary(arch)) || f.Mode() != 0o755 {
					t.Errorf("%s: %s is another file than the binary, or %v", name, f.Name, f.Mode())
				}
			}
		}
		for path, want := range record {
			if !slices.Contains(strings.Split(list, "\n"), want) {
				t.Errorf("%s: RECORD does not say of %s: %q", name, path, want)
			}
		}
		if n := strings.Count(list, "\n"); n != len(z.File) || n != 10 {
			t.Errorf("%s has %d files, and RECORD %d", name, len(z.File), n)
		}
	}
}

func mustFit(t *testing.T, name string) {
	t.Helper()
	info, err := os.Stat(name)
	rig.NoError(t, err)
	t.Logf("%s: %d bytes", filepath.Base(name), info.Size())
	if info.Size() > mostBytes {
		t.Errorf("%s has %d bytes, and may have %d", name, info.Size(), mostBytes)
	}
}

// releasePip installs the wheel by pip and pipx, with no network and no index.
func releasePip(t *testing.T, r release) {
	need.Program(t, "python3")
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	do := func(t *testing.T, name string, args ...string) string {
		t.Helper()
		cmd := exec.Command(name, args...)
		cmd.Env = append(os.Environ(), "PIP_NO_INDEX=1", "PIP_FIND_LINKS="+r.dir, "PIP_CONFIG_FILE=/dev/null",
			"PIP_DISABLE_PIP_VERSION_CHECK=1", "PIPX_HOME="+in("pipx"), "PIPX_SHARED_LIBS="+in("venv"), "PIPX_BIN_DIR="+in("pipx/bin"))
		return rig.Succeed(t, cmd)
	}
	do(t, "python3", "-m", "venv", in("venv"))
	pip := in("venv/bin/pip")
	t.Run("venv", func(t *testing.T) {
		do(t, pip, "install", packageName)
		recipes.MustBeAs(t, in("venv/bin/"+packageName), r.binary(runtime.GOARCH), 0o755)
		pipModule(t, r, in("venv/bin/python"), "", in("venv/bin/"+packageName))
		do(t, pip, "check")
		do(t, pip, "uninstall", "-y", packageName) // pipx uses this venv too
	})
	t.Run("no Python", func(t *testing.T) {
		do(t, pip, "install", "--target", in("target"), packageName)
		l := rig.StartCmd(t, exec.Command(in("target/bin/fini"), "--", "sh", "-c", "echo ready; read line"))
		l.Out.Want("ready")
		exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", l.PID()))
		if err != nil || exe != in("target/bin/"+packageName) {
			t.Errorf("what runs is %q (%v)", exe, err)
		}
		_ = l.Stdin.Close()
		l.MustEnd(1)
		pipModule(t, r, in("venv/bin/python"), in("target"), in("target/bin/"+packageName))
		rig.NoError(t, os.Symlink(in("target/bin/fini"), in("another-name")))
		mustBeFini(t, r, in("another-name"))
	})
	// On other systems pip takes the wheel that has the module alone. On a Linux without a binary it says that there is none.
	t.Run("elsewhere", func(t *testing.T) {
		for _, platform := range []string{"macosx_14_0_arm64", "macosx_12_0_x86_64", "win_amd64"} {
			do(t, pip, "install", "--target", in(platform), "--no-deps", "--only-binary=:all:", "--platform", platform, packageName)
		}
		pipModule(t, r, in("venv/bin/python"), in("macosx_14_0_arm64"), "")
		cmd := exec.Command(pip, "download", "--no-index", "--find-links", r.dir, "--no-deps", "-d", in("none"), "--only-binary=:all:",
			"--platform", "manylinux_2_36_loongarch64", packageName)
		if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "No matching distribution found for "+packageName) {
			t.Errorf("%v: %s", err, out)
		}
	})
	t.Run("twine", func(t *testing.T) {
		wheels, _ := filepath.Glob(r.dir + "/*.whl")
		out, err := exec.Command(need.Program(t, "twine"), append([]string{"--no-color", "check", "--strict"}, wheels...)...).CombinedOutput()
		if err != nil || strings.Count(string(out), "PASSED") != len(wheels) {
			t.Errorf("%v: %s", err, out)
		}
	})
	// pip has the wheel for these as well.
	for python, platform := range map[string]string{"aarch64": "musllinux_1_1_aarch64", "i686": "manylinux2014_i686"} {
		t.Run(platform, func(t *testing.T) {
			t.Parallel()
			to := t.TempDir()
			do(t, pip, "download", "--no-deps", "--only-binary=:all:", "--platform", platform, "-d", to, packageName)
			if got, _ := filepath.Glob(filepath.Join(to, "*_"+python+".whl")); len(got) != 1 {
				t.Errorf("pip takes %q", got)
			}
		})
	}
	t.Run("pipx", func(t *testing.T) {
		need.Program(t, "pipx")
		do(t, "pipx", "install", packageName)
		mustBeFini(t, r, in("pipx/bin/"+packageName))
		mustBeFini(t, r, in("pipx/bin/fini"))
		// As uvx does, it runs the program that is called like the package.
		if out := do(t, "pipx", "run", packageName, "--", "echo", "said"); !strings.HasSuffix(out, "said\n") {
			t.Errorf("pipx run: %q", out)
		}
	})
}

// pipModule uses the module of the wheel, which finds fini where it was installed.
func pipModule(t *testing.T, r release, python, folder, fini string) {
	t.Helper()
	py := func(script string) (stdout, stderr string) {
		cmd := exec.Command(python, "-c", "import fini_init, importlib.resources, subprocess\nassert importlib.resources.files(fini_init).joinpath('py.typed').is_file()\n"+script)
		cmd.Env = append(os.Environ(), "PYTHONPATH="+folder)
		l := rig.StartCmd(t, cmd)
		l.MustEnd(0)
		return l.Out.Whole(), l.Err.Whole()
	}
	const both = `
w = fini_init.wrap("sh", ["-c", "setsid sleep 1000 & exit 7"], ["--linger=0"]) if FINI else fini_init.wrap("sh", ["-c", "exit 7"], ["--linger=0"])
print(subprocess.run([w.command, *w.args]).returncode, *fini_init.wrap("a", "b", ["-i"]))`
	if fini == "" {
		out, said := py("FINI = False" + both)
		if out != "7 a ['b']\n" || said != "fini: it needs Linux, and a wheel for this machine: sh runs without it\n" {
			t.Errorf("%q, and it says %q", out, said)
		}
		return
	}
	out, said := py("FINI = True" + both + "\nprint(fini_init.path())")
	if want := fmt.Sprintf("7 %s ['-i', '--', 'a', 'b']\n%[1]s\n", fini); out != want || !strings.Contains(said, "stopping leftover") {
		t.Errorf("%q, want %q; it says %q", out, want, said)
	}
}

// npmModule uses what require gives, with Node's spawn.
func npmModule(t *testing.T, r release, prefix, without string) {
	js := func(prefix, script string, more ...string) (stdout, stderr string) {
		cmd := exec.Command(need.Program(t, "node"), "-e", "const { path, wrap } = require('"+packageName+"'); const { spawnSync } = require('child_process');"+script)
		cmd.Dir, cmd.Env = prefix, append(os.Environ(), more...)
		l := rig.StartCmd(t, cmd)
		l.MustEnd(0)
		return l.Out.Whole(), l.Err.Whole()
	}
	const run = `const w = wrap('sh', ['-c', LEAK + 'exit 7'], ['--linger=0']);
		console.log(spawnSync(w.command, w.args, { stdio: 'inherit' }).status, JSON.stringify(wrap('a', ['b'], ['-i'])));`
	out, said := js(prefix, "const LEAK = 'setsid sleep 1000 & ';"+run+"console.log(path())")
	status, path, _ := strings.Cut(strings.TrimSpace(out), "\n")
	if status != fmt.Sprintf(`7 {"command":%q,"args":["-i","--","a","b"]}`, path) || !strings.Contains(said, "stopping leftover") {
		t.Errorf("%q, and it says %q", out, said)
	}
	recipes.MustBeAs(t, path, r.binary(runtime.GOARCH), 0o755)
	const bare = "7 {\"command\":\"a\",\"args\":[\"b\"]}\n"
	mac := preload(t, "Object.defineProperty(process, 'platform', {value: 'darwin'})")
	if out, said := js(prefix, "const LEAK = '';"+run, mac); out != bare || said != "fini: it needs Linux, and this is darwin: sh runs without it\n" {
		t.Errorf("on a Mac: %q, and it says %q", out, said)
	}
	out, said = js(without, "const LEAK = '';"+run)
	if _, err := exec.LookPath("fini"); err == nil {
		return // which wrap takes before nothing
	}
	if out != bare || !strings.HasPrefix(said, "fini: the npm package ") || strings.Count(said, "\n") != 1 {
		t.Errorf("without a binary: %q, and it says %q", out, said)
	}
}

// npmScriptShell runs a script of a workspace by the package's fini-sh, as the recipe says.
func npmScriptShell(t *testing.T, prefix string) {
	k := recipes.NewDir(t, nil)
	k.File("package.json", `{"private": true, "workspaces": ["part"]}`, 0o644)
	k.File(".npmrc", recipes.BlockWith(t, "../docs/recipes.md", "script-shell="), 0o644)
	k.File("part/package.json", `{"name": "part", "version": "1.0.0", "scripts": {"test": "`+recipes.Leaky+`; exit 3"}}`, 0o644)
	rig.NoError(t, os.Symlink(filepath.Join(prefix, "node_modules"), filepath.Join(k.Dir, "node_modules")))
	k.Env = append(os.Environ(), "npm_config_offline=true", "npm_config_cache="+t.TempDir()) // without another fini on PATH
	if out := k.MustLeaveNothing(k.Start("npm", "test", "--silent", "--workspace=part"), 3); out != "done\n" {
		t.Errorf("npm says %q", out)
	}
}

// releaseNPM installs the packages from their archives alone, with no script of theirs run.
func releaseNPM(t *testing.T, r release) {
	need.Program(t, "npm")
	for _, cpu := range []string{"x64", "arm64", "ia32"} {
		mustFit(t, r.file(t, packageName+"-linux-"+cpu+"-*.tgz"))
	}
	prefix := npmInstall(t, r, true)
	shim := filepath.Join(prefix, "node_modules/.bin/"+packageName)
	t.Run("checks", func(t *testing.T) { npmChecks(t, r) })
	for _, k := range nodeKinds(t) {
		t.Run(k.Name, func(t *testing.T) {
			t.Parallel()
			s := shimmed{k, shim}
			for name, test := range map[string]func(t *testing.T, s shimmed){
				"status": shimStatus, "signals": shimSignals, "ended": shimEnded, "transparent": shimTransparent,
			} {
				t.Run(name, func(t *testing.T) { t.Parallel(); test(t, s) })
			}
			t.Run("bind", func(t *testing.T) {
				t.Parallel()
				shimBind(t, s, prefix)
			})
			t.Run("mcp", func(t *testing.T) {
				shimMCP(t, s, prefix)
			})
		})
	}
	t.Run("elsewhere", func(t *testing.T) { shimElsewhere(t, shim) })
	without := npmInstall(t, r, false)
	t.Run("module", func(t *testing.T) { npmModule(t, r, prefix, without) })
	t.Run("script-shell", func(t *testing.T) { npmScriptShell(t, prefix) })
	t.Run("without a binary", func(t *testing.T) {
		l := rig.StartCmd(t, exec.Command(filepath.Join(without, "node_modules/.bin/fini"), "--", "true"))
		part := "@" + packageName + "/linux-" + nodeCPU[runtime.GOARCH]
		l.Err.Want("fini: the npm package " + part + " is missing: npm install " + part + "@" + r.version)
		l.MustEnd(125)
	})
}

// newNode runs a script by a Node that is newer than Debian's.
func newNode(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	kinds := nodeKinds(t)
	return exec.Command("env", slices.Concat(kinds[len(kinds)-1].Env, []string{"node"}, args)...)
}

// npmChecks wants nothing said by what reviewers of npm packages run.
func npmChecks(t *testing.T, r release) {
	for tool, arguments := range map[string]struct{ script, says string }{
		"publint": {"publint/src/cli.js", "All good!"},
		"attw":    {"@arethetypeswrong/cli/dist/index.js", "No problems found"},
	} {
		script := need.Module(t, arguments.script)
		for _, archive := range []string{r.file(t, packageName+"-[0-9]*.tgz"), r.file(t, packageName+"-linux-x64-*.tgz")} {
			if tool == "attw" && strings.Contains(archive, "linux") {
				continue // it has no module
			}
			out, err := newNode(t, script, archive).CombinedOutput()
			if err != nil || !strings.Contains(string(out), arguments.says) {
				t.Errorf("%s %s: %v: %s", tool, filepath.Base(archive), err, out)
			}
		}
	}
}

// npm runs npm without a network.
func npm(t *testing.T, args ...string) {
	t.Helper()
	cmd := exec.Command("npm", append([]string{"--offline", "--ignore-scripts", "--no-audit", "--no-fund"}, args...)...)
	cmd.Env = append(os.Environ(), "npm_config_cache="+t.TempDir())
	rig.Succeed(t, cmd)
}

var nodeCPU = map[string]string{"amd64": "x64", "arm64": "arm64", "386": "ia32"}

// npmArchives are the packages for this machine.
func npmArchives(t *testing.T, r release) []string {
	t.Helper()
	return []string{r.file(t, packageName+"-linux-"+nodeCPU[runtime.GOARCH]+"-*.tgz"), r.file(t, packageName+"-[0-9]*.tgz")}
}

// npmInstall installs the packages into a folder, or only the one that has no binary.
func npmInstall(t *testing.T, r release, whole bool) string {
	t.Helper()
	dir, files := t.TempDir(), npmArchives(t, r)
	if !whole {
		files = files[1:]
	}
	npm(t, append([]string{"install", "--prefix", dir}, files...)...)
	return dir
}

// shimmed is fini from an npm package, under a kind of Node.
type shimmed struct {
	nodeKind
	shim string
}

func (s shimmed) command(args ...string) *exec.Cmd {
	cmd := exec.Command(s.shim, args...)
	cmd.Env = append(os.Environ(), s.Env...)
	return cmd
}

func shimStatus(t *testing.T, s shimmed) {
	for script, want := range map[string]int{
		"exit 0": 0, "exit 1": 1, "exit 125": 125, "exit 255": 255, "kill -TERM $$": 143, "kill -KILL $$": 137, "kill -HUP $$": 129,
		"kill -INT $$": 130, "kill -PIPE $$": 141, "kill -USR1 $$": 138, "kill -USR2 $$": 140, "kill -XFSZ $$": 153,
	} {
		l := rig.StartCmd(t, s.command("--", "sh", "-c", script))
		if got := l.Status(); got != want {
			t.Errorf("%s: status %d, want %d; stderr: %s", script, got, want, l.Err.Text())
		}
	}
	rig.StartCmd(t, s.command("--", "no such command")).MustEnd(127)
	rig.StartCmd(t, s.command("--no-such-flag", "true")).MustEnd(125)
}

// Each signal arrives once: the next line is that of the next one. What is sent to the whole group, as by a key at a
// terminal, arrives once as well. A second copy can be lost, when it comes before the first is taken, so it is sent
// often; what this process is sent alone comes behind it.
func shimSignals(t *testing.T, s shimmed) {
	command := func() *exec.Cmd { return s.command(append([]string{"--"}, rig.Mode("signals", "15")...)...) }
	ends := func(t *testing.T, l *rig.Life, out *rig.Lines, often func() error) {
		t.Helper()
		out.Want("ready ")
		rig.WaitCaught(t, s.finis(t, l)...)
		for range 20 {
			rig.NoError(t, often())
			mustSay(t, out, unix.SIGINT)
			l.Signal(unix.SIGUSR1)
			mustSay(t, out, unix.SIGUSR1)
		}
		l.Signal(unix.SIGTERM)
		out.Want("signal 15")
		l.MustEnd(7)
	}
	t.Run("each", func(t *testing.T) {
		l := rig.StartCmd(t, command())
		ends(t, l, l.Out, func() error {
			for _, sig := range []syscall.Signal{
				unix.SIGHUP, unix.SIGQUIT, unix.SIGTRAP, unix.SIGABRT, unix.SIGUSR2, unix.SIGPIPE, unix.SIGALRM, unix.SIGSTKFLT,
				unix.SIGXCPU, unix.SIGXFSZ, unix.SIGVTALRM, unix.SIGWINCH, unix.SIGIO, unix.SIGPWR, unix.SIGSYS,
			} {
				l.Signal(sig)
				mustSay(t, l.Out, sig)
			}
			return syscall.Kill(l.PID(), unix.SIGINT)
		})
	})
	t.Run("group", func(t *testing.T) {
		cmd := command()
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		l := rig.StartCmd(t, cmd)
		ends(t, l, l.Out, func() error { return syscall.Kill(-l.PID(), unix.SIGINT) })
	})
	t.Run("terminal", func(t *testing.T) {
		l, screen, keys := pty.Start(t, command())
		ends(t, l, screen, func() error {
			_, err := io.WriteString(keys, "\x03") // Ctrl-C
			return err
		})
	})
}

// mustSay asserts that the next thing that @signals says is this signal.
func mustSay(t *testing.T, out *rig.Lines, sig syscall.Signal) {
	t.Helper()
	if line, _ := out.Next(); strings.TrimPrefix(line, "^C") != fmt.Sprint("signal ", int(sig)) {
		t.Fatalf("signal %d: the command says %q", sig, line)
	}
}

// finis are the pids of the pair, once its command runs.
func (s shimmed) finis(t *testing.T, l *rig.Life) []int {
	t.Helper()
	outer := l.PID()
	if s.Stay {
		outer = procfs.ChildrenOf(t, outer)[0]
	}
	return []int{outer, procfs.ChildrenOf(t, outer)[0]}
}

// However what stands in front is killed, or when stdin closes, nothing is left.
func shimEnded(t *testing.T, s shimmed) {
	for name, tt := range map[string]struct {
		end    func(l *rig.Life) error
		status int
	}{
		"process": {func(l *rig.Life) error { return syscall.Kill(l.PID(), syscall.SIGKILL) }, 137},
		"group":   {func(l *rig.Life) error { return syscall.Kill(-l.PID(), syscall.SIGKILL) }, 137},
		"stdin":   {func(l *rig.Life) error { return l.Stdin.Close() }, 143},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// Node lets no child of its have the witness.
			h := rig.NewCgroup(t)
			argv := h.Wrap(s.shim, "-i", "--grace=1s", "--", "sh", "-c", "setsid sh -c 'echo ready; exec sleep 1000' & sleep 1000")
			cmd := exec.Command(argv[0], argv[1:]...)
			cmd.Env, cmd.SysProcAttr = append(os.Environ(), s.Env...), &syscall.SysProcAttr{Setsid: true}
			l := rig.StartCmd(t, cmd)
			l.Out.Want("ready")
			rig.NoError(t, tt.end(l))
			l.Out.Whole() // to EOF
			if got := l.Status(); got != tt.status {
				t.Errorf("status %d; stderr: %s", got, l.Err.Text())
			}
			if tt.status == 143 { // fini itself has ended, and what it has left is left
				h.MustBeEmpty()
			}
			rig.Until(t, "the cgroup is empty", func() bool { return len(h.Alive()) == 0 })
		})
	}
}

// The command has the streams, arguments, variables and ignored signals that it has without npm's
// package: Node itself ignores SIGPIPE.
func shimTransparent(t *testing.T, s shimmed) {
	script := `grep SigIgn /proc/self/status; pwd; umask; echo "$VARIABLE"; for word; do echo "[$word]"; done; ls -l /proc/self/fd/0 | sed 's/.*->//'`
	words := []string{"sh", "-c", script, "sh", "", "a b", "$HOME", `"`, "ä\n"}
	do := func(cmd *exec.Cmd) string {
		cmd.Env = append(cmd.Environ(), "VARIABLE=a = \"b\"\nc")
		cmd.Dir = t.TempDir()
		out := rig.Succeed(t, cmd)
		return strings.ReplaceAll(out, cmd.Dir, "DIR")
	}
	plain, under := do(exec.Command(words[0], words[1:]...)), do(s.command(append([]string{"--"}, words...)...))
	if under != plain {
		t.Errorf("the command sees %q, and without fini %q", under, plain)
	}
	// What is written to a pipe without a reader.
	out := do(exec.Command("bash", "-c", s.line("sh", "-c", "'yes; echo status $? >&2'")+" | head -n 1"))
	if out != "y\nstatus 141\n" && out != "status 141\ny\n" { // of two writers
		t.Errorf("yes into a closed pipe: %q", out)
	}
}

// line is the shim as a shell's command line.
func (s shimmed) line(words ...string) string {
	return strings.Join(append(append([]string{"env"}, recipes.Quoted(append(s.Env, s.shim, "--"))...), words...), " ")
}

// shimBind looks at the --bind flags with which the shim starts fini.
func shimBind(t *testing.T, s shimmed, prefix string) {
	const show = `tr '\0' '\n' </proc/$PPID/cmdline | grep '^--bind=' | sed 's/.*=/bind /'; echo end; read line`
	manifest := `{"private": true, "scripts": {"show": "fini-init --no-shield -- sh -c \"$SHOW\"", "npx": "npx --no-install fini-init --no-shield -- sh -c \"$SHOW\"",
		"background": "node client.js"}}`
	dir := t.TempDir()
	rig.Put(t, filepath.Join(dir, "package.json"), manifest, 0o644)
	// A program of a script's that starts fini by itself is its launcher, and npm only above.
	rig.Put(t, filepath.Join(dir, "client.js"),
		`require('child_process').spawn('fini-init', ['--no-shield', '--', 'sh', '-c', process.env.SHOW], {stdio: 'inherit'})`, 0o644)
	rig.NoError(t, os.Symlink(filepath.Join(prefix, "node_modules"), filepath.Join(dir, "node_modules")))
	for _, tt := range []struct {
		name string
		argv []string
		npms int // how many npm are to be among the bonds, and their caller
	}{
		{"npx", []string{"npx", "--no-install", packageName, "--no-shield", "--", "sh", "-c", show}, 1},
		{"npm run", []string{"npm", "run", "--silent", "show"}, 1},
		{"npx in npm run", []string{"npm", "run", "--silent", "npx"}, 2},
		{"a program in npm run", []string{"npm", "run", "--silent", "background"}, 0},
		{"alone", []string{s.shim, "--no-shield", "--", "sh", "-c", show}, 0},
		{"-p none", []string{"npx", "--no-install", packageName, "--no-shield", "-vpnone", "--", "sh", "-c", show}, -1},
		{"--pdeathsig", []string{"npx", "--no-install", packageName, "--no-shield", "--grace", "1s", "--pdeathsig", "None", "sh", "-c", show}, -1},
		{"FINI_PDEATHSIG", []string{"env", "FINI_PDEATHSIG=none", s.shim, "--no-shield", "sh", "-c", show}, -1},
		{"a command's -p", []string{"npx", "--no-install", packageName, "--no-shield", "sh", "-c", show, "-p", "none"}, 1},
	} {
		if tt.npms < 0 && !s.Stay {
			continue // the flags are read before the shim looks for execve
		}
		t.Run(tt.name, func(t *testing.T) {
			cmd := exec.Command(tt.argv[0], tt.argv[1:]...)
			cmd.Env = append(append(os.Environ(), s.Env...), "SHOW="+show, "npm_config_offline=true", "npm_config_cache="+t.TempDir())
			cmd.Dir = dir
			l := rig.StartCmd(t, cmd)
			var bonds []int
			for {
				line, ok := l.Out.Next()
				if !ok {
					t.Fatalf("EOF; stderr: %s", l.Err.Text())
				}
				if line == "end" {
					break
				}
				var pid int
				if _, err := fmt.Sscanf(line, "bind %d", &pid); err == nil {
					bonds = append(bonds, pid)
				}
			}
			names, npms := []string{}, 0
			for _, pid := range bonds {
				args := clients.CommandLineOf(pid)
				names = append(names, fmt.Sprint(pid, args))
				if len(args) > 0 && (args[0] == "npm" || strings.HasPrefix(args[0], "npm ")) {
					npms++
				}
			}
			own := 0 // the shim's, where it stays
			if s.Stay && tt.npms >= 0 {
				own = 1
			}
			if npms != max(tt.npms, 0) || slices.Contains(bonds, os.Getpid()) != (tt.npms > 0) || tt.npms <= 0 && len(bonds) != own {
				t.Errorf("bound to %q, want %d npm and %d, who called it: %t", names, tt.npms, os.Getpid(), tt.npms > 0)
			}
			_ = l.Stdin.Close()
			l.Status()
		})
	}
}

// shimMCP ends the session of an MCP server that is started as its users will: by npx, which runs the package, which
// runs fini. The server goes on after the end of its stdin; so does its helper, in a session of its own. How else a
// process that fini is bound to ends, and fini itself, is for the rooms bond and kill9.
func shimMCP(t *testing.T, s shimmed, prefix string) {
	clients.NeedHosts(t)
	server, err := filepath.Abs("npm/" + clients.ServerFile)
	rig.NoError(t, err)
	var trials []clients.Trial
	for _, tt := range []struct {
		name string
		flag string
		end  func(h *clients.Host)
	}{
		{"client killed", "--grace=500ms", func(h *clients.Host) { h.End(syscall.SIGKILL) }},
		{"npm killed", "--grace=500ms", func(h *clients.Host) {
			rig.NoError(h.T, syscall.Kill(h.Npx(), syscall.SIGKILL))
		}},
		{"session is closed", "-i", func(h *clients.Host) { h.Tell("close", nil) }},
	} {
		argv := []string{"npx", "--no-install", "--prefix", prefix, packageName, "--grace=500ms", tt.flag, "node", server,
			clients.IgnoresEOF, clients.HelperWithout}
		trials = append(trials, clients.Trial{Name: tt.name, Run: func(t *testing.T) {
			h := clients.OpenHost(t, clients.NodeHost, s.Variables(t), argv...)
			h.Echo("a session")
			tt.end(h)
			rig.Until(t, "the cgroup is empty", func() bool { return len(h.Cgroup.Alive()) == 0 })
			h.Err.Rest() // to EOF
		}})
	}
	clients.Together(t, trials)
}

// shimElsewhere has Node believe that it runs on another system: the command runs without fini,
// and one line says so.
func shimElsewhere(t *testing.T, shim string) {
	as := func(system string, env []string, args ...string) *rig.Life {
		cmd := exec.Command(shim, args...)
		cmd.Env = append(append(os.Environ(), env...), preload(t, fmt.Sprintf("Object.defineProperty(process, 'platform', {value: %q})", system)))
		return rig.StartCmd(t, cmd)
	}
	for _, args := range [][]string{
		{"sh", "-c", "echo out; exit 7"},
		{"-i", "--", "sh", "-c", "echo out; exit 7"},
		{"-it", "5s", "--grace=1s", "--orphans", "leave", "-qpnone", "-r", "TERM:INT", "sh", "-c", "echo out; exit 7"},
	} {
		l := as("darwin", nil, args...)
		if out := l.Out.Whole(); out != "out\n" {
			t.Errorf("%q: %q", args, out)
		}
		if got := l.Status(); got != 7 {
			t.Errorf("%q: status %d", args, got)
		}
		if said := l.Err.Whole(); said != "fini: it needs Linux: sh runs without it\n" {
			t.Errorf("%q: %q", args, said)
		}
	}
	for _, sig := range []syscall.Signal{unix.SIGTERM, unix.SIGKILL, unix.SIGPIPE, unix.SIGUSR1, unix.SIGIO, unix.SIGXFSZ, unix.SIGPROF} {
		l := as("darwin", nil, "--", "sh", "-c", fmt.Sprintf("kill -%d $$", sig))
		l.Status()
		if ws := l.Cmd.ProcessState.Sys().(syscall.WaitStatus); !ws.Signaled() || ws.Signal() != sig {
			t.Errorf("the command was ended by %v, and what ran it: %v", sig, l.Cmd.ProcessState)
		}
	}
	l := as("darwin", nil, append([]string{"--"}, rig.Mode("signals", "15")...)...)
	l.Out.Want("ready ")
	for _, sig := range []syscall.Signal{unix.SIGINT, unix.SIGUSR1, unix.SIGTERM} {
		l.Signal(sig)
		l.Out.Want(fmt.Sprint("signal ", int(sig)))
	}
	l.MustEnd(7)
	as("darwin", nil, "--", "no such command").MustEnd(127)
	as("darwin", nil, "-i").MustEnd(125)

	// npx is a batch file on Windows, and goes to cmd.exe with what that would read quoted.
	dir := t.TempDir()
	for name, text := range map[string]string{"tool.cmd": "", "cmd": "#!/bin/sh\nprintf '[%s]\\n' \"$@\"; exit 5\n"} {
		rig.Put(t, filepath.Join(dir, name), text, 0o755)
	}
	l = as("win32", []string{"PATH=" + dir + ":" + os.Getenv("PATH"), "ComSpec=" + filepath.Join(dir, "cmd")},
		"-i", "--", "tool", "a b", `c"d`, "100%", `e\`)
	want := "[/d]\n[/s]\n[/c]\n[\"^\"" + dir + "/tool.cmd^\" ^\"a b^\" ^\"c\\^\"d^\" ^\"100^%^\" ^\"e\\\\^\"\"]\n"
	if out := l.Out.Whole(); out != want {
		t.Errorf("cmd.exe gets %q, want %q", out, want)
	}
	l.MustEnd(5)
	l = as("win32", nil, "--", "sh", "-c", "exit 6") // no batch file
	l.MustEnd(6)
}
