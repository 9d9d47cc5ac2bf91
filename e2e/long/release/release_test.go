package release

import (
	"cmp"
	"debug/elf"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/e2e/rig/containers"
	"github.com/seed-126c5d8a/fini/e2e/rig/recipes"
	"github.com/seed-126c5d8a/fini/internal/tests/need"
	"github.com/seed-126c5d8a/fini/internal/tests/surroundings"
)

func TestMain(m *testing.M) { rig.MainOfOthers(m) }

// A release is what `make release` has made for this test.
type release struct {
	dir     string
	version string
	image   string
	sums    string // SHA256SUMS
}

func (r release) binary(arch string) string { return filepath.Join(r.dir, "fini-linux-"+arch) }

// file is the one file of the release that a pattern names.
func (r release) file(t *testing.T, pattern string) string {
	t.Helper()
	found := r.files(pattern)
	if len(found) != 1 {
		t.Fatalf("%d files are %s in the release, want one", len(found), pattern)
	}
	return found[0]
}

func (r release) files(pattern string) []string {
	found, _ := filepath.Glob(filepath.Join(r.dir, pattern))
	return found
}

// TestRelease makes a release for the main architectures twice, in two copies of the tree, or takes the one that FINI_DIST
// names, and looks at what is in it. It is one test so that it is made only once.
func TestRelease(t *testing.T) {
	t.Parallel()
	need.Program(t, "bsdtar", "jq")
	r := release{version: strings.Fields(rig.Run(t, rig.Fini, "--version"))[2], image: "fini"}
	if dir := surroundings.Asked("FINI_DIST"); dir != "" {
		var err error
		r.dir, err = filepath.Abs(dir)
		rig.NoError(t, err)
	} else {
		dir := t.TempDir()
		rig.NoError(t, os.Chmod(dir, 0o755))
		r.dir, r.image = filepath.Join(dir, "dist"), containers.UniqueName("release")
		cmd := exec.Command("sh", "../packaging/reproducible.sh", dir)
		cmd.Env = append(os.Environ(), "CROSS=amd64 arm64 arm 386", "IMAGE="+r.image, "REBUILD=", "MINISIGN_KEY=")
		rig.Succeed(t, cmd)
	}
	r.sums = rig.ReadFile(t, filepath.Join(r.dir, "SHA256SUMS"))
	for name, part := range map[string]func(t *testing.T, r release){
		"binaries": releaseBinaries, "sums": releaseSums, "contents": releaseContents, "statements": releaseStatements,
		"reviewed": releaseReviewed, "systemd": releaseDropIn, "emulated": releaseEmulated, "image": releaseImage,
		"devcontainer": releaseDevContainer,
		"signed":       releaseSigned, "action": releaseAction, "npm": releaseNPM, "install": releaseInstalled,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			part(t, r)
		})
	}
}

// releaseMachines are the architectures that a release has for each kind of package, and what the packages call them.
var releaseMachines = map[string]struct {
	machine                   elf.Machine
	deb, rpm, apk, npm, wheel string
}{
	"amd64": {elf.EM_X86_64, "amd64", "x86_64", "x86_64", "x64", "x86_64"},
	"arm64": {elf.EM_AARCH64, "arm64", "aarch64", "aarch64", "arm64", "aarch64"},
	"arm":   {elf.EM_ARM, "armhf", "armv7hl", "armv7", "arm", "armv7l"},
	"386":   {elf.EM_386, "i386", "i386", "x86", "ia32", "i686"},
}

func releaseBinaries(t *testing.T, r release) {
	for arch, is := range releaseMachines {
		t.Run(arch, func(t *testing.T) {
			binary, err := elf.Open(r.binary(arch))
			rig.NoError(t, err)
			defer func() { _ = binary.Close() }()
			if binary.Machine != is.machine || !containers.IsStatic(r.binary(arch)) {
				t.Errorf("it is for %s, or not static", binary.Machine)
			}
		})
	}
}

func releaseSums(t *testing.T, r release) {
	rig.Run(t, "sh", "-exc", `cd "$1"; sha256sum --check --strict SHA256SUMS; test $(wc -l <SHA256SUMS) = $(ls -A | grep -cvx SHA256SUMS)`, "sh", r.dir)
}

// releaseContents lists what is in each kind of package: the mode, owner and name of each file, and which file of the release
// or of the repository it is. It is the same for each architecture, and testdata/contents has it.
func releaseContents(t *testing.T, r release) {
	need.Program(t, "skopeo")
	const mostBytes = 2_000_000 // of an npm package or a wheel
	var names []string
	for line := range strings.Lines(r.sums + rig.Run(t, "sh", "-c", `cd .. && find docs/fini.1 CHANGELOG.md internal/NOTICES packaging -type f -exec sha256sum {} + &&
		for f in docs/fini.1 CHANGELOG.md; do gzip -9n <$f | sha256sum | sed "s#-#$f, compressed#"; done`)) {
		sum, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		names = append(names, "sha256digest="+sum, "is "+name)
	}
	are, made := strings.NewReplacer(names...), regexp.MustCompile(`sha256digest=\w+`)
	const list = `mtree() { bsdtar -cf - --format=mtree --options='mtree:!all,mtree:type,mtree:mode,mtree:uid,mtree:link,mtree:sha256,mtree:!use-set' "$1"; }
		case $1 in
		*.deb) bsdtar -xOf "$1" data.tar.gz | mtree @- ;;
		*.docker.tar) for layer in $(bsdtar -xOf "$1" manifest.json | jq -r '.[].Layers[]'); do bsdtar -xOf "$1" "$layer" | mtree @-; done ;;
		*.oci.tar) skopeo copy -q --override-arch="$2" "oci-archive:$1" "dir:$3" # as a registry's client would, each sum is checked
			jq -r '"an image for " + .os + " on " + .architecture' "$3/$(jq -r '.config.digest[7:]' "$3/manifest.json")" | sed "s/ $2$/ ARCH/"
			for layer in $(jq -r '.layers[].digest[7:]' "$3/manifest.json"); do mtree "@$3/$layer"; done ;;
		*) mtree "@$1" ;;
		esac`
	contents := map[string]string{} // of a kind of package
	for arch, is := range releaseMachines {
		for kind, pattern := range map[string]string{
			"tar.gz": "fini_*_linux_" + arch + ".tar.gz", "deb": "fini_*_" + is.deb + ".deb", "rpm": "fini-*." + is.rpm + ".rpm",
			"apk":    "fini_*_" + is.apk + ".apk",
			"docker": "fini_*_linux_" + arch + ".docker.tar", "index": "fini_*_linux.oci.tar",
			"dev container": "devcontainer-feature-fini.tgz",
			"npm":           "fini-init-[0-9]*.tgz", "npm, binary": "fini-init-linux-" + is.npm + "-*.tgz",
			"wheel": "fini_init-*manylinux*_" + is.wheel + "*.whl", "wheel, elsewhere": "fini_init-*win_arm64.whl",
		} {
			file := r.file(t, pattern)
			if info, err := os.Stat(file); err != nil || info.Size() > mostBytes &&
				(strings.HasSuffix(file, ".tgz") || strings.HasSuffix(file, ".whl")) && kind != "dev container" {
				t.Errorf("%s has %d bytes, and may have %d", file, info.Size(), mostBytes)
			}
			text := made.ReplaceAllString(are.Replace(rig.Run(t, "sh", "-ec", list, "sh", file, arch, t.TempDir())), "is made")
			if text = strings.ReplaceAll(text, r.version, "VERSION"); kind != "dev container" {
				text = strings.ReplaceAll(text, "linux-"+arch, "linux-ARCH")
			}
			if other, ok := contents[kind]; ok && text != other {
				t.Errorf("%s has, for %s,\n%s and for another architecture\n%s", kind, arch, text, other)
			}
			contents[kind] = text
		}
	}
	var got strings.Builder
	for _, kind := range slices.Sorted(maps.Keys(contents)) {
		got.WriteString("\n# " + kind + "\n" + regexp.MustCompile(`#mtree\n|.* type=dir\n`).ReplaceAllString(contents[kind], ""))
	}
	diff := exec.Command("diff", "-u", "long/release/testdata/contents", "-")
	diff.Stdin = strings.NewReader(got.String())
	if out, err := diff.CombinedOutput(); err != nil {
		t.Errorf("%s", out)
	}
}

// What a release says of its files, and of what they are made from, is so.
func releaseStatements(t *testing.T, r release) {
	sums := func(pattern string) string {
		return strings.Join(regexp.MustCompile("(?m)^.*"+pattern+"\n").FindAllString(r.sums, -1), "")
	}
	goSum := strings.Fields(rig.Run(t, "sha256sum", "../go.sum"))[0]
	attested := ""
	for _, arch := range strings.Fields(rig.Run(t, "sh", "-c", `cd "$1" && ls | sed -n 's/^fini-linux-//p'`, "sh", r.dir)) {
		attested += arch + " has https://spdx.dev/Document fini fini-linux-" + arch + " github.com/alecthomas/kong golang.org/x/sys std\n" +
			arch + " has https://slsa.dev/provenance/v1\n"
	}
	for name, tt := range map[string]struct{ file, script, want string }{
		"parts": {"*.spdx.json", `jq -r '.packages[] | select(.packageFileName) | .checksums[].checksumValue + "  " + .packageFileName'`, sums("  fini-linux-\\w+")},
		"provenance": {"provenance.json", `jq -r '.subject[] | .digest.sha256 + "  " + .name'`,
			strings.Replace(r.sums, sums("  provenance.json"), "", 1)},
		"dockerfile": {"*.dockerfile", `sed -n 's#^ADD --chmod=0755 --checksum=sha256:\(\w*\) https://\S*/v` + r.version +
			`/\(\S*\) /fini$#\1  \2#p; /^FROM fini-${TARGETARCH} AS fini$/p'`,
			sums("  fini-linux-\\w+") + "FROM fini-${TARGETARCH} AS fini\n"},
		"linked": {"*.spdx.json", `jq -r '([.packages[] | {(.SPDXID): .name}] | add) as $names |
			[.relationships[] | select(.relationshipType == "STATIC_LINK") | $names[.spdxElementId] + " has " + $names[.relatedSpdxElement]] | unique[]'`,
			"fini has github.com/alecthomas/kong\nfini has golang.org/x/sys\nfini has std\n"},
		"built": {"provenance.json", `jq -r '._type, .predicateType, (.predicate.buildDefinition |
			.buildType, .externalParameters.version, (.resolvedDependencies[1:][] | "\(.name) \(.uri) \(.digest.sha256) \(.digest.dirHash1 | length)"))' | sed 's/@[v0-9.]*//'`,
			"https://in-toto.io/Statement/v1\nhttps://slsa.dev/provenance/v1\nhttps://github.com/seed-126c5d8a/fini/blob/main/packaging/README.md#make-release\n" + r.version +
				"\ngo.sum null " + goSum + " 0\ngo pkg:golang/std null 0\nnull pkg:golang/github.com/alecthomas/kong null 64\nnull pkg:golang/golang.org/x/sys null 64\n"},
		"attested": {"*.oci.tar", `dir=$(mktemp -d) && tar -xC $dir && cd $dir/blobs/sha256 && jq -r '.manifests[].digest[7:]' ../../index.json | xargs cat >../index &&
			jq -r '.manifests[] | select(.annotations["vnd.docker.reference.type"] == "attestation-manifest" and .platform.os == "unknown") | .digest[7:] + " " + .annotations["vnd.docker.reference.digest"][7:]' ../index |
			while read attestation image; do
				arch=$(jq -r '.architecture' $(jq -r '.config.digest[7:]' $image))
				jq -r '.layers[] | .digest[7:] + " " + .annotations["in-toto.io/predicate-type"]' $attestation | while read layer kind; do
					jq -r '[.subject[0].digest.sha256, .predicateType] + [.predicate.packages[]? | .name, .packageFileName // empty] | join(" ")' $layer |
						sed "s#^$image $kind#$arch has $kind#"
				done
			done; rm -r $dir`, attested},
	} {
		t.Run(name, func(t *testing.T) {
			if got := rig.Run(t, "sh", "-ec", "exec <\"$1\"; "+tt.script, "sh",
				r.file(t, tt.file)); recipes.SortedLines(got) != recipes.SortedLines(tt.want) {
				t.Errorf("it says\n%swant\n%s", got, tt.want)
			}
		})
	}
	// In a worktree beside the repository .git is a file, and go build looks for a directory.
	repository, err := os.Stat("../.git")
	if head, gitErr := exec.Command("git", "-C", "..", "rev-parse", "HEAD").Output(); gitErr == nil && err == nil && repository.IsDir() {
		const commit = ".predicate.buildDefinition.resolvedDependencies[0].digest.gitCommit"
		if got := rig.Run(t, "jq", "-r", commit, r.file(t, "provenance.json")); got != string(head) {
			t.Errorf("the commit is %q, want %s", got, head)
		}
	}
	rig.Run(t, "python3", append([]string{"-c", `
import base64, csv, hashlib, sys, zipfile
for name in sys.argv[1:]:
    wheel, want = zipfile.ZipFile(name), []
    for file in wheel.namelist():
        text = wheel.read(file)
        sum = base64.urlsafe_b64encode(hashlib.sha256(text).digest()).decode().rstrip("=")
        want.append([file, "", ""] if file.endswith("/RECORD") else [file, "sha256=" + sum, str(len(text))])
    record = [file for file in wheel.namelist() if file.endswith("/RECORD")]
    assert list(csv.reader(wheel.read(record[0]).decode().splitlines())) == want, name
`}, r.files("*.whl")...)...)
}

// releaseDropIn gives systemd a service with the drop-in of the packages.
func releaseDropIn(t *testing.T, _ release) {
	dir := t.TempDir()
	rig.Put(t, filepath.Join(dir, "example.service"), "[Service]\nExecStart=/no/such/file\n", 0o644)
	text := strings.NewReplacer("/usr/bin/fini", rig.Fini, "/usr/bin/NAME",
		"/bin/true").Replace(rig.ReadFile(t, "../packaging/systemd.conf"))
	rig.Put(t, filepath.Join(dir, "example.service.d/fini.conf"), text, 0o644)
	out, err := exec.Command(need.Program(t, "systemd-analyze"), "verify", filepath.Join(dir, "example.service")).CombinedOutput()
	if err != nil || strings.Contains(string(out), "example.service") {
		t.Errorf("systemd-analyze: %v: %s", err, out)
	}
}

// releaseReviewed wants nothing said by what reviewers of packages run.
func releaseReviewed(t *testing.T, r release) {
	newNode := strings.Join(recipes.Quoted(slices.Concat([]string{"env"}, newNode(t))), " ")
	main, debs := r.file(t, "fini-init-[0-9]*.tgz"), slices.Concat(r.files("*_amd64.deb"), r.files("*_arm64.deb"), r.files("*_i386.deb"))
	for _, tt := range []struct {
		tool, command string
		files         []string
		says          string
	}{
		// Go keeps its texts without a separator, and so two of them look like one word with a mistake. What else is not said
		// is in packaging/lintian-overrides, with the reason.
		{"lintian", need.Program(t, "lintian") + " --no-cfg --allow-root --display-info --pedantic --fail-on error,warning,info,pedantic --suppress-tags spelling-error-in-binary", debs, ""},
		{"twine", need.Program(t, "twine") + " --no-color check --strict", r.files("*.whl"), "PASSED"},
		{"publint", newNode + " " + need.Module(t, "publint/src/cli.js"), []string{main}, "All good!"},
		{"publint, binary", newNode + " " + need.Module(t, "publint/src/cli.js"), r.files("fini-init-linux-x64-*.tgz"), "All good!"},
		{"attw", newNode + " " + need.Module(t, "@arethetypeswrong/cli/dist/index.js"), []string{main}, "No problems found"},
	} {
		t.Run(tt.tool, func(t *testing.T) {
			t.Parallel()
			out := rig.Succeed(t, exec.Command("sh", append([]string{"-c", tt.command + ` "$@"`, "sh"}, tt.files...)...))
			if tt.says != "" && strings.Count(out, tt.says) != len(tt.files) {
				t.Errorf("it says %s", out)
			}
		})
	}
}

// An installation is how fini is installed, what runs it then, what else is asked of it, with parts of the answer, and what
// takes it away.
type installation struct {
	name     string // how README's line begins, where line is empty
	line     string
	programs string
	asks     string
	says     []string
	remove   string
}

const (
	venv = "python3 -m venv /venv\n"
	// Where each package's module says fini is, and that it runs what it wraps.
	asksModule = `/venv/bin/python -c '
import fini_init, importlib.resources, subprocess
assert importlib.resources.files(fini_init).joinpath("py.typed").is_file()
w = fini_init.wrap("sh", ["-c", "echo wrapped; exit 7"], ["--linger=0"])
print(subprocess.run([w.command, *w.args]).returncode, *fini_init.wrap("a", "b", ["-i"]))'
`
	asksNodeModule = `NODE_PATH=$(npm root -g) node -e '
const { wrap } = require("fini-init");
const w = wrap("sh", ["-c", "echo wrapped; exit 7"], ["--linger=0"]);
console.log(require("child_process").spawnSync(w.command, w.args, { stdio: "inherit" }).status, JSON.stringify(wrap("a", ["b"], ["-i"])));'
`
	onMac    = `echo 'Object.defineProperty(process, "platform", {value: "darwin"})' >/mac.js; export NODE_OPTIONS=--require=/mac.js; `
	bareNode = "sh runs without it\nwrapped\n7 {\"command\":\"a\",\"args\":[\"b\"]}\n"
)

var installations = []installation{
	{"sudo install", "", "fini", ":", nil, "rm /usr/local/bin/fini"},
	{"sudo dpkg", "", "fini", "dpkg -s fini; man -P cat fini | head -n 5; fini-sh -c 'echo sh runs'",
		[]string{"\nVersion: VERSION\n", "\nArchitecture: amd64\n", "run a command and leave nothing behind\n", "\nsh runs\n"},
		"dpkg -P fini"},
	{"sudo rpm", "", "fini", "rpm -V fini; rpm -q --docfiles fini", []string{"/man1/fini.1.gz\n", "/examples/systemd.conf\n"},
		"rpm --force-debian -e fini"},
	{"npm", "", "fini-init fini", asksNodeModule + onMac + asksNodeModule + "unset NODE_OPTIONS; rm /mac.js",
		[]string{"wrapped\n7 {\"command\":\"/", "/@fini-init/linux-x64/bin/fini\",\"args\":[\"-i\",\"--\",\"a\",\"b\"]}\n",
			"fini: it needs Linux, and this is darwin: " + bareNode}, "npm uninstall -g fini-init @fini-init/linux-x64"},
	{"pip", "", "/venv/bin/fini-init /venv/bin/fini", asksModule + "/venv/bin/pip check",
		[]string{"wrapped\n7 /venv/bin/fini-init ['-i', '--', 'a', 'b']\n"},
		"/venv/bin/pip uninstall -y fini-init; test ! -e /venv/bin/fini -a ! -e /venv/bin/fini-init; rm -r /venv"},
	{"archive", "tar -xzf dist/fini_*_linux_amd64.tar.gz -C /opt", "/opt/fini-*/fini", ":", nil, "rm -r /opt/fini-*"},
	{"npm, without a binary", "npm install -g ./dist/fini-init-[0-9]*.tgz", "", "fini -- true || echo status $?; " + asksNodeModule,
		[]string{
			"fini: the npm package @fini-init/linux-x64 is missing: npm install @fini-init/linux-x64@VERSION\nstatus 125\n",
			"@VERSION: " + bareNode},
		"npm uninstall -g fini-init"},
	// No Python runs, whatever fini is called.
	{"pip, no Python", venv + "/venv/bin/pip install --target /t fini-init; ln -s /t/bin/fini /another-name", "/t/bin/fini /another-name",
		"/t/bin/fini -- sh -c 'readlink /proc/$PPID/exe'; PYTHONPATH=/t " + asksModule,
		[]string{"/t/bin/fini-init\n", "wrapped\n7 /t/bin/fini-init ['-i', '--', 'a', 'b']\n"},
		"rm -r /venv /t /another-name"},
	// On other systems pip takes the wheel that has the module alone. On a Linux without a binary it says that there is none.
	{"pip, elsewhere", venv + `pip() { /venv/bin/pip "$1" --no-deps --only-binary=:all: --platform "$2" "$3" "/t/$2" fini-init; }
		for p in macosx_14_0_arm64 macosx_12_0_x86_64 win_amd64; do pip install $p --target; done`, "",
		"PYTHONPATH=/t/macosx_14_0_arm64 " + asksModule +
			"for p in musllinux_1_1_aarch64 manylinux2014_i686; do pip download $p -d; ls /t/$p; done; ! pip download manylinux_2_36_loongarch64 -d",
		[]string{"fini: the wheel's binary is missing: pip install --force-reinstall fini-init: sh runs without it\nwrapped\n7 a ['b']\n",
			"musllinux_1_1_aarch64.whl\n", "musllinux_1_1_i686.whl\n", "No matching distribution found for fini-init\n"}, "rm -r /venv /t"},
	// As uvx does, pipx runs the program that is called like the package.
	{"pipx", venv + "export PIPX_HOME=/pipx PIPX_SHARED_LIBS=/venv PIPX_BIN_DIR=/pipx/bin; pipx install fini-init",
		"/pipx/bin/fini-init /pipx/bin/fini",
		"pipx run fini-init -- echo said", []string{"\nsaid\n"}, "pipx uninstall fini-init; rm -r /venv /pipx"},
}

// releaseInstalled installs fini, by each line of README's and in other ways, on this machine's files with an overlay over
// them. fini is removed, and then the overlay has nothing but what the tools keep for themselves.
func releaseInstalled(t *testing.T, r release) {
	need.That(t, runtime.GOARCH == "amd64", "an amd64 machine")
	need.Root(t, "for an overlay")
	need.Program(t, "unshare", "rpm", "npm", "python3", "pipx")
	readme := map[string]string{}
	for line := range strings.Lines(recipes.BlockWith(t, "../README.md", "dpkg -i")) {
		i := slices.IndexFunc(installations, func(in installation) bool { return strings.HasPrefix(line, in.name+" ") })
		if i >= 0 {
			readme[installations[i].name] = strings.NewReplacer("sudo ", "", "rpm -i", "rpm --force-debian -i", "pip install",
				venv+"/venv/bin/pip install").Replace(line)
		} else if !strings.HasPrefix(line, "sudo apk ") &&
			!strings.HasPrefix(line, "docker load ") { // Debian has no apk, and releaseImage loads an image
			t.Errorf("no way to try %s", line)
		}
	}
	const inOverlay = `mount -t tmpfs none "$1" && cd "$1" && mkdir upper work root && mount -t overlay -o lowerdir=/,upperdir=upper,workdir=work none root &&
		mount --rbind /dev root/dev && mount -t proc none root/proc && mkdir -p root/place/dist && mount --bind "$2" root/place/dist || { echo no overlay; exit 77; }
		chroot root sh -ec "cd /place; $3" || exit
		umount root/place/dist && rmdir root/place/dist root/place && find upper ! -type d -printf '/%P\n' | sed 's/^/left /'`
	kept := regexp.MustCompile(`(?m)^left /(var/(lib/dpkg|lib/rpm|log|cache)|root/\.(npm|rpmdb|cache))/.*\n`)
	for _, in := range installations {
		t.Run(in.name, func(t *testing.T) {
			t.Parallel()
			line := cmp.Or(in.line, readme[in.name])
			if line == "" {
				t.Fatal("README has no such line")
			}
			uses := `for fini in ` + in.programs + `; do $fini --version; status=0; $fini --linger=0 -- sh -c 'setsid sleep 1000 & exit 7' || status=$?; echo status $status; done`
			cmd := exec.Command("unshare", "-m", "sh", "-c", inOverlay, "sh", t.TempDir(), r.dir,
				strings.Join([]string{line, uses, in.asks, in.remove}, "\n"))
			cmd.Env = append(os.Environ(), "HOME=/root", "npm_config_offline=true", "npm_config_ignore_scripts=true",
				"PIP_NO_INDEX=1", "PIP_FIND_LINKS=/place/dist", "PIP_CONFIG_FILE=/dev/null",
				"PIP_DISABLE_PIP_VERSION_CHECK=1", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
			said, err := cmd.CombinedOutput()
			out := string(said)
			need.That(t, !strings.HasPrefix(out, "no overlay"), "the right to mount an overlay of /")
			programs := len(strings.Fields(in.programs))
			for _, want := range []string{"fini version " + r.version + " ", "fini: stopping leftover ", "status 7\n"} {
				if strings.Count(out, want) != programs {
					t.Errorf("not once for each program: %q", want)
				}
			}
			for _, want := range in.says {
				if want = strings.ReplaceAll(want, "VERSION", r.version); !strings.Contains(out, want) {
					t.Errorf("nothing says %q", want)
				}
			}
			if left := kept.ReplaceAllString(out, ""); err != nil || strings.Contains(left, "\nleft /") || t.Failed() {
				t.Errorf("%s: %v: %s", line, err, left)
			}
		})
	}
}

// A changelog whose first part has no number yet is refused, before anything is removed.
func TestReleaseWantsChangelog(t *testing.T) {
	t.Parallel()
	out := rig.Run(t, "sh", "-ec", `tar -C .. -c --exclude=./bin --exclude=./dist --exclude=./.git --exclude=node_modules . | tar -x -C "$1"; cd "$1"; mkdir dist
		grep -q '^## \[Unreleased\]' CHANGELOG.md || sed -i '0,/^## \[/s//## [Unreleased]\n\n&/' CHANGELOG.md
		if make -s release 2>&1; then exit 1; fi; test -d dist`, "sh", t.TempDir())
	if !strings.Contains(out, "CHANGELOG.md begins with Unreleased, and not with ") {
		t.Errorf("it says %s", out)
	}
}
