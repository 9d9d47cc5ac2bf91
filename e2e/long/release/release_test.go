package release

import (
	"cmp"
	"debug/elf"
	"errors"
	"io"
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
	"github.com/seed-126c5d8a/fini/e2e/rig/containers"
	"github.com/seed-126c5d8a/fini/e2e/rig/recipes"
	"github.com/seed-126c5d8a/fini/e2e/surroundings"
)

func TestMain(m *testing.M) { rig.Main(m) }

// installed is how README's lines begin, what runs fini then, what else is asked of what is installed, with parts of the
// answer, and what takes it away again.
var installed = []struct {
	line, before string
	programs     string
	asks         string
	says         []string
	remove       string
}{
	{"sudo install", "", "fini", ":", nil, "rm /usr/local/bin/fini"},
	{"sudo dpkg", "", "fini", "dpkg -s fini; man -P cat fini | head -n 5; fini-sh -c 'echo sh runs'",
		[]string{"\nVersion: VERSION\n", "\nArchitecture: amd64\n", "run a command and leave nothing behind\n", "\nsh runs\n"}, "dpkg -P fini"},
	{"sudo rpm", "", "fini", "rpm -V fini; rpm -q --docfiles fini", []string{"/man1/fini.1.gz\n", "/examples/systemd.conf\n"}, "rpm --force-debian -e fini"},
	{"npm", "", "fini-init fini", ":", nil, "npm uninstall -g fini-init @fini-init/linux-x64"},
	{"pip", "python3 -m venv /venv", "/venv/bin/fini-init /venv/bin/fini", ":", nil,
		"/venv/bin/pip uninstall -y fini-init; test ! -e /venv/bin/fini -a ! -e /venv/bin/fini-init; rm -r /venv"},
}

// releaseReadme runs each line by which README installs fini, on this machine's files with an overlay over them. fini is
// removed, and then the overlay has nothing but what the tools keep for themselves.
func releaseReadme(t *testing.T, r release) {
	need.That(t, runtime.GOARCH == "amd64", "an amd64 machine")
	need.Root(t, "for an overlay")
	need.Program(t, "unshare")
	lines := strings.Split(strings.TrimSpace(recipes.BlockWith(t, "../README.md", "dpkg -i")), "\n")
	const others = 2 // Debian has no apk, and releaseImage loads an image
	if len(lines) != len(installed)+others {
		t.Errorf("%d lines", len(lines))
	}
	const inOverlay = `mount -t tmpfs none "$1" && cd "$1" && mkdir upper work root && mount -t overlay -o lowerdir=/,upperdir=upper,workdir=work none root &&
		mount --rbind /dev root/dev && mount -t proc none root/proc && mkdir -p root/place/dist && mount --bind "$2" root/place/dist || { echo no overlay; exit 77; }
		chroot root sh -ec "cd /place; $3" || exit
		umount root/place/dist && rmdir root/place/dist root/place && find upper ! -type d -printf '/%P\n' | sed 's/^/left /'`
	kept := regexp.MustCompile(`^/(var/(lib/dpkg|lib/rpm|log|cache)|root/\.(npm|rpmdb|cache))/`)
	for _, line := range lines {
		i := 0
		for i < len(installed) && !strings.HasPrefix(line, installed[i].line+" ") {
			i++
		}
		switch {
		case strings.HasPrefix(line, "sudo apk "), strings.HasPrefix(line, "docker load "):
			continue
		case i == len(installed):
			t.Errorf("no way to try %s", line)
			continue
		}
		in := installed[i]
		t.Run(in.line, func(t *testing.T) {
			t.Parallel()
			line := strings.NewReplacer("sudo ", "", "rpm -i", "rpm --force-debian -i", "pip install", "/venv/bin/pip install").Replace(line)
			uses := `for fini in ` + in.programs + `; do $fini --version; status=0; $fini --linger=0 -- sh -c 'setsid sleep 1000 & exit 7' || status=$?; echo status $status; done`
			script := strings.Join([]string{cmp.Or(in.before, ":"), line, uses, in.asks, in.remove}, "\n")
			cmd := exec.Command("unshare", "-m", "sh", "-c", inOverlay, "sh", t.TempDir(), r.dir, script)
			cmd.Env = append(os.Environ(), "HOME=/root", "npm_config_offline=true", "PIP_NO_INDEX=1", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
			out, err := cmd.CombinedOutput()
			need.That(t, !strings.HasPrefix(string(out), "no overlay"), "the right to mount an overlay of /")
			if programs := len(strings.Fields(in.programs)); err != nil || strings.Count(string(out), "fini version "+r.version+" ") != programs ||
				strings.Count(string(out), "fini: stopping leftover ") != programs || strings.Count(string(out), "status 7\n") != programs {
				t.Errorf("%s: %v: %s", line, err, out)
			}
			for _, want := range in.says {
				if want = strings.Replace(want, "VERSION", r.version, 1); !strings.Contains(string(out), want) {
					t.Errorf("%s: nothing says %q: %s", line, want, out)
				}
			}
			for line := range strings.Lines(string(out)) {
				if file, left := strings.CutPrefix(line, "left "); left && !kept.MatchString(file) {
					t.Errorf("after its removal there is %s", file)
				}
			}
		})
	}
}

// What a user gets: binaries for other machines, packages, an image and the man page.

// A release is what `make release` has made for this test.
type release struct {
	dir     string
	version string
	image   string

	completions map[string]string // of a shell
}

func (r release) binary(arch string) string { return filepath.Join(r.dir, "fini-linux-"+arch) }

// file is the one file of the release that a pattern names.
func (r release) file(t *testing.T, pattern string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(r.dir, pattern))
	if err != nil || len(found) != 1 {
		t.Fatalf("%d files are %s in the release, want one", len(found), pattern)
	}
	return found[0]
}

// makeRelease makes a release, or takes the one that FINI_DIST names.
func makeRelease(t *testing.T) release {
	t.Helper()
	if dir := surroundings.Asked("FINI_DIST"); dir != "" {
		dir, err := filepath.Abs(dir)
		rig.NoError(t, err)
		return release{dir: dir, image: "fini"}
	}
	dir := t.TempDir()
	rig.NoError(t, os.Chmod(dir, 0o755))
	image := containers.UniqueName("release")
	cmd := exec.Command("sh", "../packaging/reproducible.sh", dir)
	cmd.Env = append(os.Environ(), "CROSS=amd64 arm64 arm 386", "IMAGE="+image, "REBUILD=", "MINISIGN_KEY=")
	rig.Succeed(t, cmd)
	return release{dir: filepath.Join(dir, "dist"), image: image}
}

// TestRelease makes a release for the main architectures twice, in two copies of the tree,
// and looks at what is in it. It is one test so that it is made only once.
func TestRelease(t *testing.T) {
	t.Parallel()
	need.Program(t, "bsdtar")
	r := makeRelease(t)
	r.version = strings.Fields(rig.Run(t, rig.Fini, "--version"))[2]
	r.completions = map[string]string{}
	for _, shell := range []string{"bash", "fish", "zsh"} {
		r.completions[shell] = recipes.CompletionFor(t, shell)
	}
	for _, part := range []struct {
		name string
		run  func(t *testing.T, r release)
	}{
		{"binaries", releaseBinaries},
		{"sums", releaseSums},
		{"parts", releaseParts},
		{"packages", releasePackages},
		{"lintian", releaseLintian},
		{"image", releaseImage},
		{"386", release386},
		{"arm64", releaseARM64},
		{"arm", releaseARM},
		{"archive", releaseArchive},
		{"index", releaseIndex},
		{"devcontainer", releaseDevContainer},
		{"dockerfile", releaseDockerfile},
		{"provenance", releaseProvenance},
		{"signed", releaseSigned},
		{"action", releaseAction},
		{"wheels", releaseWheels},
		{"pip", releasePip},
		{"npm", releaseNPM},
		{"readme", releaseReadme},
	} {
		t.Run(part.name, func(t *testing.T) {
			t.Parallel()
			part.run(t, r)
		})
	}
}

var releaseMachines = map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64, "arm": elf.EM_ARM, "386": elf.EM_386}

func releaseBinaries(t *testing.T, r release) {
	for arch, machine := range releaseMachines {
		f, err := elf.Open(r.binary(arch))
		rig.NoError(t, err)
		if f.Machine != machine || !containers.IsStatic(r.binary(arch)) {
			t.Errorf("%s: for %s, static: %t", arch, f.Machine, containers.IsStatic(r.binary(arch)))
		}
		_ = f.Close()
	}
}

func releaseSums(t *testing.T, r release) {
	cmd := exec.Command("sha256sum", "--check", "--strict", "SHA256SUMS")
	cmd.Dir = r.dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("SHA256SUMS: %v: %s", err, out)
	}
	sums := rig.ReadFile(t, filepath.Join(r.dir, "SHA256SUMS"))
	files, err := os.ReadDir(r.dir)
	rig.NoError(t, err)
	if n := strings.Count(sums, "\n"); n != len(files)-1 {
		t.Errorf("%d sums for %d files", n, len(files)-1)
	}
}

// The list of parts names each binary by its sum, and what is linked into it.
func releaseParts(t *testing.T, r release) {
	var list struct {
		Packages []struct {
			SPDXID, Name, PackageFileName string
			Checksums                     []struct{ ChecksumValue string }
		}
		Relationships []struct{ SpdxElementID, RelationshipType, RelatedSpdxElement string }
	}
	rig.MustParse(t, []byte(rig.ReadFile(t, r.file(t, "*.spdx.json"))), &list)
	names, sums := map[string]string{}, []string{}
	for _, p := range list.Packages {
		names[p.SPDXID] = p.Name
		for _, c := range p.Checksums {
			sums = append(sums, c.ChecksumValue+"  "+p.PackageFileName+"\n")
		}
	}
	all := rig.ReadFile(t, filepath.Join(r.dir, "SHA256SUMS"))
	if len(sums) != len(releaseMachines) {
		t.Errorf("%d sums, want one for each binary: %q", len(sums), sums)
	}
	for _, sum := range sums {
		if !strings.Contains(all, sum) {
			t.Errorf("not among the sums: %q", sum)
		}
	}
	linked := []string{}
	for _, is := range list.Relationships {
		if is.RelationshipType == "STATIC_LINK" && names[is.SpdxElementID] == "fini" {
			linked = append(linked, names[is.RelatedSpdxElement])
		}
	}
	slices.Sort(linked)
	linked = slices.Compact(linked)
	if want := []string{"github.com/alecthomas/kong", "golang.org/x/sys", "std"}; !slices.Equal(linked, want) {
		t.Errorf("linked into fini: %q, want %q", linked, want)
	}
}

// Every kind of package has the files where its distribution wants them, and the binary of
// its architecture.
func releasePackages(t *testing.T, r release) {
	for _, test := range []struct {
		pattern, arch string
		license       string
	}{
		{"fini_*_amd64.deb", "amd64", "usr/share/doc/fini/copyright"},
		{"fini_*_arm64.deb", "arm64", "usr/share/doc/fini/copyright"},
		{"fini_*_i386.deb", "386", "usr/share/doc/fini/copyright"},
		{"fini-*.x86_64.rpm", "amd64", "usr/share/licenses/fini/LICENSE"},
		{"fini-*.aarch64.rpm", "arm64", "usr/share/licenses/fini/LICENSE"},
		{"fini_*_x86_64.apk", "amd64", "usr/share/licenses/fini/LICENSE"},
		{"fini_*_aarch64.apk", "arm64", "usr/share/licenses/fini/LICENSE"},
	} {
		name := r.file(t, test.pattern)
		dir := t.TempDir()
		if strings.HasSuffix(name, ".deb") {
			rig.Run(t, "bsdtar", "-xf", name, "-C", dir, "data.tar.gz")
			name = filepath.Join(dir, "data.tar.gz")
		}
		root := filepath.Join(dir, "root")
		rig.NoError(t, os.Mkdir(root, 0o755))
		rig.Run(t, "bsdtar", "-xpf", name, "-C", root)
		recipes.MustBeAs(t, filepath.Join(root, "usr/bin/fini"), r.binary(test.arch), 0o755)
		recipes.MustBeAs(t, filepath.Join(root, "usr/bin/fini-sh"), "../packaging/fini-sh", 0o755)
		license := rig.ReadFile(t, filepath.Join(root, test.license))
		for _, part := range []string{"the fini authors", "golang.org/x/sys", "The Go Authors"} {
			if !strings.Contains(license, part) {
				t.Errorf("%s: the license says nothing of %q", test.pattern, part)
			}
		}
		if page := rig.Run(t, "gzip", "-dc", filepath.Join(root, "usr/share/man/man1/fini.1.gz")); page != rig.ReadFile(t, "../docs/fini.1") {
			t.Errorf("%s: another man page than fini.1", test.pattern)
		}
		mustBeDropIn(t, rig.ReadFile(t, filepath.Join(root, "usr/share/doc/fini/examples/systemd.conf")))
		for shell, path := range map[string]string{
			"bash": "usr/share/bash-completion/completions/fini", "fish": "usr/share/fish/vendor_completions.d/fini.fish",
			"zsh": "usr/share/zsh/" + map[bool]string{true: "vendor-completions", false: "site-functions"}[strings.HasSuffix(test.pattern, ".deb")] + "/_fini",
		} {
			if rig.ReadFile(t, filepath.Join(root, path)) != r.completions[shell] {
				t.Errorf("%s: another completion for %s than that of this fini", test.pattern, shell)
			}
		}
	}
}

// mustBeDropIn gives systemd a service with the drop-in of the package.
func mustBeDropIn(t *testing.T, text string) {
	t.Helper()
	dir := t.TempDir()
	rig.Put(t, filepath.Join(dir, "example.service"), "[Service]\nExecStart=/no/such/file\n", 0o644)
	text = strings.NewReplacer("/usr/bin/fini", rig.Fini, "/usr/bin/NAME", "/bin/true").Replace(text)
	rig.Put(t, filepath.Join(dir, "example.service.d/fini.conf"), text, 0o644)
	out, err := exec.Command(need.Program(t, "systemd-analyze"), "verify", filepath.Join(dir, "example.service")).CombinedOutput()
	if err != nil || strings.Contains(string(out), "example.service") {
		t.Errorf("systemd-analyze: %v: %s", err, out)
	}
}

// releaseLintian wants nothing said that packaging/lintian-overrides gives no reason for. Go keeps its texts without a
// separator, and so two of them look like one word with a mistake.
func releaseLintian(t *testing.T, r release) {
	lintian := need.Program(t, "lintian")
	cmd := exec.Command(lintian, "--no-cfg", "--allow-root", "--display-info", "--pedantic", "--fail-on", "error,warning,info,pedantic",
		"--suppress-tags", "spelling-error-in-binary")
	for _, arch := range []string{"amd64", "arm64", "i386"} {
		cmd.Args = append(cmd.Args, r.file(t, "fini_*_"+arch+".deb"))
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("lintian: %v: %s", err, out)
	}
}

// A changelog whose first part has no number yet is refused, before anything is removed.
func TestReleaseWantsChangelog(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	rig.Run(t, "sh", "-c", "tar -C .. -c --exclude=./bin --exclude=./dist --exclude=./.git --exclude=node_modules . | tar -x -C '"+dir+"'")
	text := rig.ReadFile(t, filepath.Join(dir, "CHANGELOG.md"))
	if !strings.Contains(text, "## [Unreleased]") {
		text = strings.Replace(text, "\n## [", "\n## [Unreleased]\n\n## [", 1)
	}
	rig.Put(t, filepath.Join(dir, "CHANGELOG.md"), text, 0o644)
	rig.NoError(t, os.Mkdir(filepath.Join(dir, "dist"), 0o755))
	out, err := exec.Command("make", "-s", "-C", dir, "release").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "CHANGELOG.md begins with Unreleased, and not with ") {
		t.Errorf("%v: %s", err, out)
	}
	if _, err := os.Stat(filepath.Join(dir, "dist")); err != nil {
		t.Error(err)
	}
}

// releaseImage uses the image as it is meant: for a COPY --from, with the lines of the man
// page.
func releaseImage(t *testing.T, r release) {
	containers.NeedDocker(t)
	name := r.image + ":" + r.version
	archive := r.file(t, "fini_*_linux_"+runtime.GOARCH+".docker.tar")
	containers.Docker(t, "load", "-i", archive)
	t.Cleanup(func() { containers.Docker(t, "rmi", name) })

	// What is in its only layer, and what is said of it.
	var inside []struct{ Layers []string }
	rig.MustParse(t, []byte(rig.Run(t, "tar", "-xOf", archive, "manifest.json")), &inside)
	if layers := inside[0].Layers; len(layers) != 1 {
		t.Fatalf("%d layers", len(layers))
	} else {
		mustHoldFini(t, []byte(rig.Run(t, "tar", "-xOf", archive, layers[0])), r.binary(runtime.GOARCH))
	}
	var inspected []struct {
		Config struct{ Labels map[string]string }
	}
	rig.MustParse(t, []byte(containers.Docker(t, "inspect", name)), &inspected)
	mustBeLabelled(t, r, inspected[0].Config.Labels)
	if out := containers.Docker(t, "run", "--rm", "--network", "none", name, "--version"); !strings.Contains(out, " "+r.version+" ") {
		t.Errorf("the image's fini is %q", out)
	}

	base, tag, dir := containers.Base(t), containers.UniqueName("image"), t.TempDir()
	var dockerfile string
	for _, example := range recipes.ManExamples(t) {
		if strings.HasPrefix(example, "COPY ") {
			dockerfile = "FROM " + base + "\n" + strings.Replace(example, "--from=fini", "--from="+name, 1)
		}
	}
	rig.Put(t, filepath.Join(dir, "Dockerfile"), dockerfile, 0o644)
	build := containers.Client(t, "build", "-t", tag, dir)
	build.Env = append(os.Environ(), "DOCKER_BUILDKIT=0")
	rig.Succeed(t, build)
	t.Cleanup(func() { containers.Docker(t, "rmi", tag) })

	c := containers.StartContainer(t, tag, "sh", "-c", containers.Stoppable)
	c.Out.Want("escapee ready")
	containers.Docker(t, "stop", c.Name)
	out := c.MustEnd(7)
	rig.WantOnce(t, out, "main got TERM")
	rig.WantOnce(t, out, "escapee done")
}

// mustBeLabelled wants what registries show of an image.
func mustBeLabelled(t *testing.T, r release, labels map[string]string) {
	t.Helper()
	for _, key := range []string{"title", "description", "licenses", "url", "source", "documentation"} {
		if labels["org.opencontainers.image."+key] == "" {
			t.Errorf("no %s among %q", key, labels)
		}
	}
	if got := labels["org.opencontainers.image.version"]; got != r.version {
		t.Errorf("the version is %q", got)
	}
}

// releaseDevContainer builds a dev container with the feature by the tool for that. fini is its PID 1, the tool's shell runs
// as without it, and docker stop is no timeout.
func releaseDevContainer(t *testing.T, r release) {
	containers.NeedDocker(t)
	cli := need.Module(t, "@devcontainers/cli/devcontainer.js")
	base, dir := containers.Base(t), t.TempDir()
	feature := filepath.Join(dir, ".devcontainer/fini")
	rig.Run(t, "mkdir", "-p", feature)
	rig.Run(t, "tar", "-xzf", r.file(t, "devcontainer-feature-fini.tgz"), "-C", feature)
	const features = `"features": {"./fini": {}}`
	if !strings.Contains(rig.ReadFile(t, "../docs/recipes.md"), features) {
		t.Errorf("the recipe does not say %s", features)
	}
	rig.Put(t, filepath.Join(dir, ".devcontainer/Dockerfile"), "FROM "+base+"\nRUN mkdir -p /etc /root && echo root:x:0:0::/root:/bin/sh >/etc/passwd && echo root:x:0: >/etc/group\n", 0o644)
	rig.Put(t, filepath.Join(dir, ".devcontainer/devcontainer.json"), `{"build": {"dockerfile": "Dockerfile"}, `+features+`}`, 0o644)
	cmd := newNode(t, cli, "up", "--workspace-folder", dir, "--buildkit", "never")
	cmd.Env = append(os.Environ(), "HOME="+dir, "TMPDIR="+t.TempDir())
	var log strings.Builder
	cmd.Stderr = &log
	said, err := cmd.Output()
	var up struct{ Outcome, ContainerID string }
	rig.MustParse(t, said, &up)
	if err != nil || up.Outcome != "success" {
		t.Fatalf("%v: %s\n%s", err, said, log.String())
	}
	image := strings.TrimSpace(containers.Docker(t, "inspect", "-f", "{{.Config.Image}}", up.ContainerID))
	t.Cleanup(func() {
		containers.Docker(t, "rm", "-f", up.ContainerID)
		containers.Docker(t, "rmi", image, "dev_container_feature_content_temp")
	})
	words := strings.Split(containers.Docker(t, "exec", up.ContainerID, "cat", "/proc/1/cmdline"), "\x00")
	if len(words) < 5 || words[0] != "/usr/local/bin/fini" || words[2] != "/bin/sh" || !strings.Contains(words[4], "exec \"$@\"\nwhile sleep") {
		t.Errorf("PID 1 is %q", words)
	}
	if out := containers.Docker(t, "exec", up.ContainerID, "fini", "--version"); !strings.HasPrefix(out, "fini version "+r.version+" ") {
		t.Errorf("fini is %q", out)
	}
	containers.Docker(t, "stop", "-t", "1000", up.ContainerID)
	if status := containers.Docker(t, "inspect", "-f", "{{.State.ExitCode}}", up.ContainerID); status != "0" {
		t.Errorf("status %s: another than that of the tool's shell", status)
	}
}

// A foreignCommand leaves a process in a session of its own, which holds stdout, behind, and
// many orphans that only have to be reaped.
const foreignCommand = containers.Make200Orphans + `
	setsid sh -c 'trap "echo escapee got TERM; exit" TERM; echo escapee ready; while :; do sleep 1000 & wait; done' &
	read go
	exit 7`

// mustLiveWell runs a fini of the release through a life.
func mustLiveWell(t *testing.T, cmd *exec.Cmd, h *rig.Cgroup) {
	t.Helper()
	l := rig.StartCmd(t, cmd)
	l.Out.Want("escapee ready")
	rig.Until(t, "no zombie in the cgroup", func() bool { return zombiesIn(h) == 0 })
	_, _ = io.WriteString(l.Stdin, "go\n")
	out := l.Out.Whole() // to EOF
	l.MustEnd(7)
	rig.WantOnce(t, out, "escapee got TERM")
	if said := l.Err.Whole(); !strings.Contains(said, "fini: stopping leftover ") {
		t.Errorf("fini says nothing of the escapee: %q", said)
	}
	if left := h.Names(); len(left) > 0 {
		t.Errorf("fini is gone and alive are: %q", left)
	}
}

// A binary for 386 runs on amd64, alone and as PID 1: it has no entry, by which it could become a pair. A kernel without
// IA32 emulation executes none.
func release386(t *testing.T, r release) {
	need.That(t, runtime.GOARCH == "amd64", "an amd64 machine")
	err := exec.Command(r.binary("386"), "--version").Run()
	need.Kernel(t, !errors.Is(err, syscall.ENOEXEC), "IA32 emulation")
	for _, p := range []rig.Place{rig.Alone, rig.PID1} {
		t.Run(p.Name, func(t *testing.T) {
			h := rig.NewCgroup(t)
			mustLiveWell(t, foreign(t, p, h, r.binary("386"), "--", "sh", "-c", foreignCommand), h)
		})
	}
}

// releaseARM64 runs the binary for arm64 under an emulator of user programs, which starts the
// command natively. The emulator knows neither pidfds at a fork nor subreapers, and a second
// fini would need binfmt_misc, so there are a single process without leftovers, and PID 1, to
// which orphans come anyway.
func releaseARM64(t *testing.T, r release) {
	qemu := need.Program(t, "qemu-aarch64-static")
	binary := r.binary("arm64")
	t.Run("status", func(t *testing.T) {
		for _, test := range []struct {
			want   int
			script string
		}{{0, "exit 0"}, {3, "exit 3"}, {255, "exit 255"}, {143, "kill -TERM $$"}, {137, "kill -KILL $$"}} {
			l := rig.StartCmd(t, exec.Command(qemu, binary, "--no-shield", "--", "sh", "-c", "echo out; "+test.script))
			if out := l.Out.Whole(); out != "out\n" {
				t.Errorf("stdout %q", out)
			}
			l.MustEnd(test.want)
		}
	})
	t.Run("version", func(t *testing.T) {
		if out := rig.Run(t, qemu, binary, "--version"); !strings.HasPrefix(out, "fini version "+r.version+" - git.") {
			t.Errorf("version %q", out)
		}
	})
	t.Run("signal", func(t *testing.T) {
		l := rig.StartCmd(t, exec.Command(qemu, binary, "--no-shield", "--", "sh", "-c",
			`trap "echo got TERM; exit 9" TERM; (echo ready; exec sleep 1000) & wait`))
		l.Out.Want("ready")
		l.Signal(syscall.SIGTERM)
		l.Out.Want("got TERM")
		l.Out.Whole()
		l.MustEnd(9)
	})
	t.Run("pid1", func(t *testing.T) {
		h := rig.NewCgroup(t)
		mustLiveWell(t, foreign(t, rig.PID1, h, qemu, binary, "--", "sh", "-c", foreignCommand), h)
	})
}

// releaseARM runs the binary for ARM on an ARMv6, which Node calls arm as it does an ARMv7.
func releaseARM(t *testing.T, r release) {
	qemu := need.Program(t, "qemu-arm-static")
	rig.StartCmd(t, exec.Command(qemu, "-cpu", "arm1176", r.binary("arm"), "--no-shield", "--", "sh", "-c", "exit 7")).MustEnd(7)
}

// foreign is a command line whose first words are another fini, in the cgroup and in its place.
func foreign(t *testing.T, p rig.Place, h *rig.Cgroup, argv ...string) *exec.Cmd {
	t.Helper()
	switch {
	case p.PID1:
		rig.NeedPidNamespace(t)
		argv = append(rig.Mode("pid1"), argv...)
	case p.Alone:
		argv = append([]string{argv[0], "--no-shield"}, argv[1:]...)
	}
	argv = h.Wrap(argv...)
	cmd := exec.Command(argv[0], argv[1:]...)
	if p.PID1 {
		rig.AsPID1(cmd)
	}
	return cmd
}
