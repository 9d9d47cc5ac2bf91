package docs

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/e2e/rig/containers"
	"github.com/seed-126c5d8a/fini/e2e/rig/recipes"
	"github.com/seed-126c5d8a/fini/e2e/rig/runners"
	"github.com/seed-126c5d8a/fini/internal/tests/need"
)

// What the guides show of CI and test runners, leaks, agents and supervisors, with the real programs.

// leakyStep is the CI step that fails on a leak, and whose report names it.
func leakyStep(t *testing.T, text string) {
	steps := yaml[[]struct{ Run string }](t, text)
	n := slices.IndexFunc(steps, func(step struct{ Run string }) bool { return strings.HasPrefix(step.Run, "fini ") })
	trial{
		needs: []string{"make", "jq"}, files: map[string]string{"Makefile": "e2e:\n\t@setsid sleep 1000 & " +
			strings.ReplaceAll(rig.UntilSleeps, "$", "$$") + "; echo tested\n"},
		script: `sh -c "$BLOCK"; status=$?; jq -r '.leftovers[].command' leaks.json; exit $status`, status: 1, out: "tested\nsleep 1000\n",
	}.run(t, steps[n].Run)
}

var audits = trial{
	standIns: map[string]string{"make": "setsid sleep 1000 >/dev/null 2>&1 & " + rig.UntilSleeps + "; exit 3"}, needs: []string{"jq"},
	script: `mkdir reports; sh -c "$BLOCK"; status=$?; jq -r '.leftovers[].command' reports/e2e.json; exit $status`, status: 3,
	out: "sleep 1000\n", leaves: "sleep",
}.run

// mustBeBash is a step whose own shell is not the workflow's.
func mustBeBash(t *testing.T, text string) {
	if shell := yaml[string](t, text, "0", "shell"); shell != "bash" {
		t.Errorf("the shell is %v", shell)
	}
}

// workflowShell is the shell of docs/ci.md's workflow, without the name of a script.
func workflowShell(t *testing.T) string {
	shell := yaml[string](t, recipes.BlockWith(t, "../docs/ci.md", "shell: \"fini"), "defaults", "run", "shell")
	return strings.TrimSuffix(shell, " {0}") + " "
}

// serverForLaterSteps runs a step that starts a server: by its own shell, under which the server goes on, and by the shell
// of the workflow, which stops the server unless its name is allowed.
func serverForLaterSteps(t *testing.T, text string) {
	mustBeBash(t, text)
	inFront := workflowShell(t)
	const serves = "mkfifo ready; read line <ready"
	npm := "exec " + need.Program(t, "npm") + " start"
	for _, c := range []struct{ shell, env, server, leaves string }{
		{inFront[strings.Index(inFront, "bash"):], "", serves, "start-server|mkfifo"},
		{inFront, "", serves, ""},
		{inFront, "FINI_ALLOW_ORPHAN=start-server", serves, "start-server|mkfifo"},
		{inFront, "FINI_ALLOW_ORPHAN=start-server", "exec bash -c '" + serves + "; :'", ""},
		{inFront, "FINI_ALLOW_ORPHAN=cmd:npm?start*", npm, "npm|sh|node|mkfifo"},
	} {
		trial{
			needs: []string{"bash"}, yaml: []string{"0", "run"}, as: "step", standIns: map[string]string{"start-server": c.server},
			env:    []string{c.env},
			files:  map[string]string{"package.json": `{"scripts": {"start": "` + serves + `"}}`},
			script: "echo >>step; echo 'until [ -p ready ]; do :; done' >>step; exec " + c.shell + "step", leaves: c.leaves,
		}.run(t, text)
	}
}

// goTests are a Go module with two packages, one of which has a test that does this.
func goTests(do string) map[string]string {
	return map[string]string{
		"go.mod":          "module shop\n\ngo 1.24\n",
		"pay/pay_test.go": "package pay\n\nimport \"testing\"\n\nfunc TestPay(*testing.T) {}\n",
		"cart/cart_test.go": "package cart\n\nimport (\n\"os\"\n\"os/exec\"\n\"syscall\"\n\"testing\"\n)\n\nvar _, _, _ = os.Stdout, exec.Command, syscall.Kill\n\n" +
			"func TestCheckout(t *testing.T) {\n" + do + "\n}\n",
	}
}

const goLeak = `
	t.Setenv("FINI_TEST", t.Name())
	leak := exec.Command("sleep", "1000")
	leak.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := leak.Start(); err != nil {
		t.Fatal(err)
	}`

var leakInGoTest = trial{needs: []string{"go"}, files: goTests(goLeak), status: 1,
	says: []string{"FAIL\tshop/cart", "ok  \tshop/pay", stopping, "started in test TestCheckout\n"}}.run

// auditsGoTest has two leaks in one package. Only that which holds the output is stopped, and no package fails.
var auditsGoTest = trial{
	needs: []string{"go", "jq"}, files: goTests(`
	holds := exec.Command("sleep", "1001")
	holds.Stdout, holds.SysProcAttr = os.Stdout, &syscall.SysProcAttr{Setsid: true}
	_ = holds.Start()` + goLeak),
	script: `sh -c "$BLOCK"; status=$?; ls reports | wc -l; jq -r '.leftovers[] | .command + " " + (.ended // "goes on")' reports/*.json | sort; exit $status`,
	says:   []string{"ok  \tshop/cart", "ok  \tshop/pay", "\n2\nsleep 1000 goes on\nsleep 1001 SIGTERM\n"}, leaves: "sleep",
}.run

var leakInCargo = trial{
	needs: []string{"cargo"}, as: ".cargo/config.toml", files: map[string]string{
		"Cargo.toml": "[package]\nname = \"shop\"\nversion = \"0.1.0\"\nedition = \"2021\"\n",
		"src/lib.rs": `#[test] fn checkout() { std::process::Command::new("sleep").arg("1000").env("FINI_TEST", "checkout").spawn().unwrap(); }` + "\n",
	},
	script: "exec cargo test --offline --lib", status: 1,
	says: []string{"test checkout ... ok", stopping, "started in test checkout", "error: test failed"},
}.run

func leakInCTest(t *testing.T, text string) {
	var major, minor int
	if _, err := fmt.Sscanf(rig.Run(t, need.Program(t, "cmake"), "--version"), "cmake version %d.%d", &major, &minor); err != nil {
		t.Fatal(err)
	}
	if major == 3 && minor < 29 {
		text = strings.Replace(text, "CMAKE_TEST_LAUNCHER", "CMAKE_CROSSCOMPILING_EMULATOR", 1)
	}
	trial{
		needs: []string{"cc"}, files: map[string]string{
			"CMakeLists.txt": "cmake_minimum_required(VERSION 3.10)\nproject(shop C)\nenable_testing()\nadd_executable(checkout checkout.c)\nadd_test(NAME checkout COMMAND checkout)\n",
			"checkout.c":     "#include <unistd.h>\nint main(void) { if (!fork()) execlp(\"sleep\", \"sleep\", \"1000\", (char *)0); return 0; }\n",
		},
		script: `exec sh -ec "$BLOCK"`, status: 8, says: []string{stopping, "exit 1 instead of 0", "1 - checkout (Failed)"},
	}.run(t, text)
}

var startsInTest = map[string]string{"start-server": "exec sleep ${1:-1000}"}

// sharing adds test files that one process runs: with tests that run at the same time, and leaks before and after all tests.
func sharing(imports string, files map[string]string) map[string]string {
	for name, tests := range map[string]string{
		"a.test.js": "const rest = () => new Promise(done => setTimeout(done, 300));\n" +
			"test.concurrent('leaks', async () => { await rest(); leak(1001); await rest(); });\n" +
			"test.concurrent('innocent', async () => { await rest(); await rest(); await rest(); });\n",
		"b.test.js": "test('first', () => {});\ntest('last', () => leak(1002));\n",
		"c.test.js": "beforeAll(() => leak(1003));\ntest('only', () => {});\nafterAll(() => leak(1004));\n",
	} {
		files[name] = imports + "const leak = seconds => spawn('start-server', [String(seconds)], { detached: true, stdio: 'ignore' }).unref();\n" + tests
	}
	return files
}

// shared is what fini says of their leaks: where the test can't be known, it names the file.
var shared = []string{
	"(sleep 1001), detached, started in test a.test.js::\n", "(sleep 1002), detached, started in test b.test.js::last\n",
	"(sleep 1003), detached, started in test c.test.js::\n", "(sleep 1004), detached, started in test c.test.js::\n",
}

var leakInVitest = each(trial{
	npm: "vitest", standIns: startsInTest, as: "fini.setup.js", files: map[string]string{
		"vitest.config.js": "export default { test: { setupFiles: ['./fini.setup.js'] }, cacheDir: '.cache' };\n",
		"package.json":     `{"private": true, "type": "module"}`,
		"tests/shop.test.js": `import { spawn } from 'node:child_process';
import { describe, test } from 'vitest';
describe('shop', () => test('checkout', () => { spawn('start-server', { detached: true, stdio: 'ignore' }).unref(); }));
`,
	},
	env:    []string{"GITHUB_ACTIONS=true", "GITHUB_STEP_SUMMARY="},
	script: "exec fini --orphans-exit=9 -- node_modules/.bin/vitest run", status: 9,
	says: []string{stopping, " in test tests/shop.test.js::shop checkout\n", "::error title=fini,file=tests/shop.test.js::"},
}.run, trial{
	npm: "vitest", standIns: startsInTest, as: "fini.setup.js", files: sharing(
		"import { spawn } from 'node:child_process';\nimport { afterAll, beforeAll, test } from 'vitest';\n", map[string]string{
			"vitest.config.js": "export default { test: { setupFiles: ['./fini.setup.js'] }, cacheDir: '.cache' };\n",
			"package.json":     `{"private": true, "type": "module"}`,
		}),
	script: "exec fini --orphans-exit=9 -- node_modules/.bin/vitest run --no-isolate --no-file-parallelism", status: 9, says: shared,
}.run)

var leakInJest = each(trial{
	npm: "jest", standIns: startsInTest, as: "fini-environment.js", files: map[string]string{
		"jest.config.json": `{"testEnvironment": "./fini-environment.js", "watchman": false}`,
		"shop.test.js": "const { spawn } = require('child_process');\n" +
			"describe('shop', () => test('checkout', () => { spawn('start-server', { detached: true, stdio: 'ignore' }).unref(); }));\n",
	},
	script: "exec fini --orphans-exit=9 -- node_modules/.bin/jest --no-cache --ci", status: 9,
	says: []string{" in test shop.test.js::shop checkout\n"},
}.run, trial{
	npm: "jest", standIns: startsInTest, as: "fini-environment.js", files: sharing("const { spawn } = require('child_process');\n", map[string]string{
		"jest.config.json": `{"testEnvironment": "./fini-environment.js", "watchman": false}`,
	}),
	script: "exec fini --orphans-exit=9 -- node_modules/.bin/jest --no-cache --ci -i", status: 9, says: shared,
}.run)

// codeOf are the code spans of the line of docs/ci.md that begins like this.
func codeOf(t *testing.T, start string) (spans []string) {
	t.Helper()
	_, rest, found := strings.Cut(rig.ReadFile(t, "../docs/ci.md"), "\n"+start)
	if !found {
		t.Fatalf("docs/ci.md has no line %q", start)
	}
	text, _, _ := strings.Cut(rest, "\n\n")
	if strings.HasPrefix(start, "|") {
		text, _, _ = strings.Cut(rest, "\n")
	}
	for _, m := range inline.FindAllStringSubmatch(strings.ReplaceAll(text, "\n", " "), -1) {
		spans = append(spans, m[1])
	}
	return spans
}

// The rows of docs/ci.md that set FINI_TEST in one line, with the real runners.
func TestGuidesNameTests(t *testing.T) {
	rig.Long(t)
	t.Parallel()
	for _, tt := range []struct {
		name, runs, test string
		files            map[string]string
	}{
		{"node", "node --test shop.test.js", "checkout",
			map[string]string{"shop.test.js": "const { test, beforeEach } = require('node:test');\n" + codeOf(t, "| node:test |")[0] +
				"\ntest('checkout', () => { require('node:child_process').spawn('start-server', { detached: true, stdio: 'ignore' }).unref(); });\n"}},
		{"bats", "bats shop.bats", "it checks out", map[string]string{"shop.bats": codeOf(t, "| bats, to see its description |")[0] +
			"\n@test \"it checks out\" { setsid start-server >/dev/null 2>&1 3>&- 4>&- & true; }\n"}},
		{"go, parallel", "go test ./...", "TestCheckout",
			goTests("t.Parallel()\ncmd := exec.Command(\"start-server\")\n" + codeOf(t, "| Go |")[1] +
				"\nif err := cmd.Start(); err != nil {\nt.Fatal(err)\n}")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			runner, _, _ := strings.Cut(tt.runs, " ")
			trial{needs: []string{runner, "setsid"}, standIns: startsInTest, files: tt.files,
				script: "exec fini --orphans-exit=9 -- " + tt.runs,
				status: 9, says: []string{" in test " + tt.test}}.run(t, "")
		})
	}
}

// docs/ci.md's server of a Go test ends with the test, with a panic, and when the test binary is killed.
func TestGuidesGoServer(t *testing.T) {
	rig.Long(t)
	t.Parallel()
	code := codeOf(t, "In Go, start the server with ")
	if len(code) < 4 {
		t.Fatalf("%q", code)
	}
	for name, end := range map[string]string{
		"returns": "", "panics": `panic("over")`,
		// fini misses the death of a parent that dies before fini's first instruction.
		"is killed": "for err := error(os.ErrNotExist); err != nil; _, err = os.Stat(\"started\") {\n}\n_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			do := code[0] + "\n" + code[1] + "\nif " + strings.Replace(code[2], "cmd.Start()", "err := cmd.Start()", 1) +
				"; err != nil {\nt.Fatal(err)\n}\n" + code[3] + "\n" + end
			// fini outlives a test that is killed.
			tr := trial{standIns: map[string]string{"server": "setsid sleep 1000 & : >started; exec sleep 1001"}, files: goTests(do),
				script: "exec go test ./...", later: true}
			if end != "" {
				tr.status = 1
			}
			tr.run(t, "")
		})
	}
}

// daemonsStay: each tool leaves its server, which fini spares; a leak beside them is named, and fails the step.
func daemonsStay(t *testing.T, text string) {
	dir := t.TempDir()
	env := []string{"HOME=" + dir, "TMPDIR=" + dir, "SCCACHE_DIR=" + dir, "SCCACHE_SERVER_PORT=14226",
		"ANDROID_ADB_SERVER_PORT=15037", "XDG_RUNTIME_DIR=" + dir, "XDG_STATE_HOME=" + dir}
	ssh, config := sshHost(t, dir)
	for tool, command := range map[string]string{ // sccache gives up after ten seconds, and its server comes nevertheless
		"adb": "adb start-server", "sccache": "{ sccache --start-server || sccache --show-stats; }", "watchman": "watchman version",
		"ssh": ssh + " -F " + config + " -o ControlMaster=auto -o ControlPersist=1h -o ControlPath=" + rig.ShortTempDir(t) + "/c host true",
	} {
		trial{
			needs: []string{tool}, env: env, standIns: map[string]string{"make": command + " >log 2>&1 || { cat log; exit 1; }"},
			leaves:  tool,
			changes: []string{"--allow-orphan=ssh ", "--allow-orphan=ssh --allow-orphan=sshd "}, // which descends from ssh here
		}.run(t, text)
	}
	// Two of these objects are in objects/17, by which git guesses how many there are. The packing is over when git exits.
	trial{needs: []string{"git"}, env: env, standIns: map[string]string{"make": `git config --global gc.autoDetach false && git init -q repository && cd repository && git config gc.auto 1 &&
for text in 263 410; do echo $text | git hash-object -w --stdin && echo $text >$text && git add $text; done >/dev/null &&
git -c user.name=x -c user.email=x commit -q -m x && git gc --quiet --auto && ls .git/objects/pack/*.pack`}}.run(t, text)
	trial{standIns: leakyMake, status: 1}.run(t, text)
}

// sshHost is a real sshd, which the client finds by this configuration under the name host. Its commands have fini's folder and
// the stand-ins of the client's folder on PATH.
func sshHost(t *testing.T, dir string) (ssh, config string) {
	t.Helper()
	ssh = need.Program(t, "ssh")
	sshd, err := exec.LookPath("/usr/sbin/sshd")
	need.That(t, err == nil, "sshd (openssh-server)")
	need.Root(t, "for sshd")
	rig.NoError(t, os.MkdirAll("/run/sshd", 0o755))
	for _, name := range []string{"host", "user"} {
		rig.Run(t, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", filepath.Join(dir, name))
	}
	path := dir + "/bin:" + filepath.Dir(rig.Fini) + ":" + os.Getenv("PATH")
	server := rig.Put(t, filepath.Join(dir, "sshd_config"),
		fmt.Sprintf("HostKey %[1]s/host\nAuthorizedKeysFile %[1]s/user.pub\nStrictModes no\n"+
			"PermitRootLogin yes\nPidFile none\nUsePAM no\nSetEnv PATH=%[2]s HOME=%[1]s\n", dir, path), 0o644)
	// sshd -i speaks on its standard streams, so that no port is needed.
	return ssh, rig.Put(t, filepath.Join(dir, "ssh_config"), fmt.Sprintf("Host host\nIdentityFile %[1]s/user\nStrictHostKeyChecking no\n"+
		"UserKnownHostsFile /dev/null\nLogLevel ERROR\nUser root\nProxyCommand %[2]s -i -e -f %[3]s 2>/dev/null\n", dir, sshd,
		server), 0o644)
}

// overSSH: the client is killed, and the connection with it.
func overSSH(t *testing.T, text string) {
	k := recipes.NewDir(t, map[string]string{"make": serving})
	ssh, client := sshHost(t, k.Dir)
	for _, sig := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM} {
		l := k.Start(append([]string{ssh, "-F", client}, strings.Fields(text)[1:]...)...)
		l.Out.Want("ready")
		l.Signal(sig)
		if got := l.Status(); got != 128+int(sig) && got != 255 {
			t.Errorf("ssh ends with %d: %s", got, l.Err.Text())
		}
		k.MustBeEmpty()
	}
}

// waitsForLeak: the reader of a pipe has its end when the leak that holds the pipe is gone.
var waitsForLeak = trial{changes: []string{"sleep 60 & echo", "sleep 1000 & echo leak $!; echo"}, script: `sh -c "$BLOCK	echo EOF"`,
	meanwhile: func(t *testing.T, l *rig.Life) {
		leak := l.Out.WantPID("leak ")
		l.Out.Want("tests passed")
		rig.MustKill(t, leak, syscall.SIGKILL) // which would sleep on: there is no EOF before
		l.Out.Want("EOF")
	}}.run

// bisects has five commits, of which the third leaks.
var bisects = trial{
	needs: []string{"git"}, standIns: map[string]string{"make": ". ./tests"},
	script: `exec 2>&1; git init -q && git config user.name x && git config user.email x && git config commit.gpgsign false
		commit() { echo "$2 # $1" >tests && git add tests && git commit -q -m "$1"; }
		commit first true; git tag v1.0; commit second true; commit "the leak" "setsid sleep 1000 &"
		commit fourth "setsid sleep 1001 &"; commit fifth "setsid sleep 1002 &"
		sh -ec "$BLOCK" && git show -s --format="bad: %s" refs/bisect/bad`,
	says: []string{"is the first bad commit", "bad: the leak\n"},
}.run

// leakThatBatsAwaits: without the flag, bats would wait for the leak.
var leakThatBatsAwaits = trial{
	needs: []string{"bats"}, files: map[string]string{"tests/shop.bats": "@test checkout { sleep 1000 & true; }\n@test login { true; }\n"},
	status: 1, says: []string{"fini: stopping orphan ", "ok 2 login", "exit 1 instead of 0"},
}.run

// stopsInTrap: nothing is left of a server, whether the tests fail or not.
var stopsInTrap = each(
	trial{standIns: map[string]string{"start-server": "exec sleep 1000", "run-tests": "echo tested"}, as: "test.sh",
		script: "exec fini --orphans-exit=9 -- sh test.sh", out: "tested\n"}.run,
	trial{standIns: map[string]string{"start-server": "exec sleep 1000", "run-tests": "exit 3"}, as: "test.sh",
		script: "exec fini --orphans=leave --orphans-exit=9 -- sh test.sh", status: 3}.run,
)

// allowed: the daemon stays, and what it has started.
var allowed = trial{
	standIns: map[string]string{"sccache": "while :; do sleep 1000; done",
		"make": `setsid sccache >/dev/null 2>&1 & until grep -qx sccache /proc/$!/comm; do sleep 0.01; done; echo tested`},
	out: "tested\n", leaves: "sccache|sleep",
}.run

// keeps: the call ends at once, and the server stays.
var keeps = trial{
	needs: []string{"bash", "setsid"}, standIns: map[string]string{"server": "exec sleep 1000"},
	script: `exec fini -k 5s -t 10m --grace=1s '--allow-orphan=env:KEEP=?*' -- bash -c "$BLOCK"`, leaves: "sleep|setsid|server|bash|sh",
}.run

// containerInStep runs a container of podman's. Whoever forgets to remove it gets to know.
func containerInStep(t *testing.T, text string) {
	need.Root(t, "for podman")
	k := recipes.NewDir(t, map[string]string{
		"make": "echo tested",
		"podman": `case $1 in run) shift; set -- run --network none "$@" /bin/sh -c "sleep 1000";; esac; exec ` +
			strings.Join(containers.PodmanClient(t), " ") + ` "$@"`,
	})
	k.Env = append(containers.PodmanConfig(t), k.Env[len(k.Env)-1], "FINI_GRACE=2s") // conmon ignores SIGTERM
	load := exec.Command(filepath.Join(k.Dir, "bin/podman"), "import", "-", "example")
	load.Stdin, load.Env = containers.BusyboxTar(t), k.Env
	rig.Succeed(t, load)
	step := func(status int, says []string, changes ...string) {
		t.Helper()
		l := k.Start("/bin/sh", "-c", strings.NewReplacer(append(changes, "--name db example",
			"--name db localhost/example")...).Replace(text))
		l.MustHaveStatus(status)
		for _, want := range says { // conmon may hold the streams, so that no EOF tells that all has been read
			rig.Until(t, fmt.Sprintf("it says %q", want), func() bool { return strings.Contains(l.Out.Text()+l.Err.Text(), want) })
		}
	}
	const removes = `trap "podman rm -f -t 5 db" EXIT; `
	// A job that is cancelled removes it too.
	k.File("bin/make", "#!/bin/sh\necho testing; exec sleep 1000\n", 0o755)
	l := k.Start("/bin/sh", "-c", "exec "+strings.Replace(text, "--name db example", "--name db localhost/example", 1))
	l.Out.Want("testing")
	l.Signal(syscall.SIGTERM)
	l.MustHaveStatus(128 + 15)
	k.Start("podman", "container", "exists", "db").MustHaveStatus(1)
	k.File("bin/make", "#!/bin/sh\necho tested\n", 0o755)
	step(0, []string{"tested\n"})
	step(1, []string{stopping, "/conmon ", "sleep 1000"}, removes, "")
	// Under this name the monitor stays, and the container with it.
	step(0, nil, removes, "", "--orphans-exit=1", "--orphans-exit=1 --allow-orphan=conmon", "podman run", "podman rm -f -t 0 db; podman run")
	k.Start("podman", "exec", "db", "/bin/true").MustHaveStatus(0)
	k.Start("podman", "rm", "-f", "-t", "0", "db").MustHaveStatus(0)
}

// pytestFixture: the server ends with its test, and when pytest is killed.
func pytestFixture(t *testing.T, text string) {
	debianPython(t, "pytest")
	hangs := map[string]string{"more.py": "\ndef test_hangs(server):\n    import time\n    print('hanging', flush=True)\n    time.sleep(1000)\n"}
	const script = `cat more.py >>test_it.py; exec /usr/bin/python3 -m pytest -q -s -p no:cacheprovider test_it.py -k `
	trial{as: "test_it.py", files: hangs, script: script + `"not hangs"`}.run(t, text)
	trial{as: "test_it.py", files: hangs, script: script + "hangs", meanwhile: func(_ *testing.T, l *rig.Life) {
		l.Out.Want("hanging")
		l.Signal(syscall.SIGKILL)
	}, status: 137, later: true}.run(t, text)
}

// runsFor is a script that runs a command under fini, for a report of that number.
func runsFor(report int, argv string) string {
	return fmt.Sprintf("mkdir -p reports; fini -q --linger=0 --report=reports/%d.json -- %s || exit\n", report, argv)
}

// leakRanking merges the reports of runs in which two tests leak, one of them twice as often.
var leakRanking = trial{
	needs: []string{"jq"}, files: map[string]string{"leaks": "#!/bin/sh\nfor test; do FINI_TEST=\"shop $test\" sleep 1000 & " +
		rig.UntilSleeps + "; done\n"},
	script: runsFor(0, "./leaks checkout login") + runsFor(1, "./leaks checkout") + `exec sh -c "$BLOCK"`,
	out:    "2\tshop checkout\tsleep\n1\tshop login\tsleep\n",
}.run

// stepHangs has a test whose server goes on for ever: all three places name both.
var stepHangs = trial{
	needs: []string{"grep"}, changes: []string{"-t 20m", "-t 3s"},
	standIns: map[string]string{"make": `FINI_TEST='shop::a<b>' sleep 1000; :`},
	script:   `sh -c "$BLOCK"; status=$?; grep -c 'a<b>' hang.json; grep -c 'name="shop::a&lt;b&gt;"' hang.xml; exit $status`, status: 124, out: "1\n1\n",
	says: []string{"(sleep 1000), for ", ", started in test shop::a<b>\n"},
}.run

// githubMatrix: on Linux the shell is that of the workflow, and elsewhere bash. Only GitHub reads its expressions.
func githubMatrix(t *testing.T, text string) {
	shell := yaml[string](t, text, "jobs", "tests", "defaults", "run", "shell")
	want := "${{ matrix.os == 'ubuntu-latest' && '" + workflowShell(t) + "{0}' || 'bash' }}"
	rig.Equal(t, "the shell", shell, want)
}

// mcpServers: each server has fini in front, which ends it with its input. TestMCPConfigByOthers starts one as hosts do.
func mcpServers(t *testing.T, text string) {
	type server struct {
		Command string
		Args    []string
	}
	var config map[string]map[string]server
	rig.MustParse(t, []byte(text), &config)
	servers := append(slices.Collect(maps.Values(config["servers"])), slices.Collect(maps.Values(config["mcpServers"]))...)
	if len(servers) == 0 {
		t.Error("no server")
	}
	for _, s := range servers {
		argv := append([]string{s.Command}, s.Args...)
		if s.Command == "npx" {
			argv = append([]string{"fini"}, s.Args[slices.Index(s.Args, "fini-init")+1:]...)
		}
		if !slices.Contains(argv, "-i") {
			t.Errorf("without -i: %q", argv)
		}
		mustBeFini(t, argv)
	}
}

// agentsShell has two leftovers, of which the one whose output is elsewhere goes on.
var agentsShell = trial{
	needs: []string{"python3", "bash"}, as: "agent.py", files: map[string]string{"more.py": `
result = shell('''setsid sleep 1000 & sleep 1001 >/dev/null 2>&1 & ` + rig.UntilSleeps + `; echo done''')
print(result.stdout, end="")
print("status", result.returncode)
`}, script: "cat more.py >>agent.py; exec python3 agent.py", says: []string{"done\n", "status 0\n"}, leaves: "sleep",
}.run

// keptServer are three calls of a model's, of which the first one leaves a server. By its pid it is known: it may still be
// about to execute setsid, or fini.
var keptServer = trial{
	needs: []string{"setsid", "bash", "jq", "pgrep"}, standIns: map[string]string{"server": "(setsid sleep 1000 &); echo ready; exec sleep 1001"},
	script: `set -e
		call() { fini -k 5s -t 10m --grace=1s '--allow-orphan=env:KEEP=?*' --report=report.json -- bash -c "$(echo "$BLOCK" | sed -n "$1p")"; }
		call 1
		pid=$(cat server.pid)
		jq -r ".leftovers[0] | if .pid == $pid then .spared else . end" report.json
		until grep -q ready log; do sleep 0.01; done
		call 2 | grep -c "^$pid fini -p none -k 5s -- server"
		call 3`,
	out: "allow-orphan\n1\n", later: true,
}.run

// inUnshare: the call can't end PID 1, and the last line does.
func inUnshare(t *testing.T, text string) {
	need.Root(t, "for unshare")
	rig.NeedPidNamespace(t)
	trial{needs: []string{"unshare", "nsenter", "pgrep"}, env: []string{"COMMAND=kill 1; sleep 1000 & echo called"}, out: "called\n",
		says: []string{"fini: ignored SIGTERM", "fini: ending the pause: SIGRTMIN+3"}}.run(t, text)
}

// inBackground: each line's shell is gone at once; the server stays. Without what the line says it ends with its shell.
func inBackground(t *testing.T, text string) {
	need.Program(t, "setsid")
	for line := range strings.Lines(text) {
		for _, asked := range []bool{true, false} {
			k := recipes.NewDir(t, map[string]string{"server": `setsid sleep 1000 & echo ready; read end <"$GATE"`})
			g, shell := runners.NewGate(t), runners.NewGate(t)
			k.Env = append(k.Env, "GATE="+g.Name, "SHELL_GATE="+shell.Name)
			script := strings.TrimSpace(line)
			if !asked {
				if strings.Contains(script, "setsid -f") {
					continue // setsid may be gone before fini can ask who started it
				}
				// So may a shell that ends at once. Of this one fini knows.
				script = strings.NewReplacer("-p none ", "", "nohup ", "", "&", `& read end <"$SHELL_GATE"`).Replace(script)
			}
			l := k.Start("/bin/sh", "-c", script)
			l.Out.Want("ready")
			if !asked {
				shell.Open(t)
			}
			l.MustHaveStatus(0)
			if asked {
				if len(k.Cgroup.Alive()) == 0 {
					t.Errorf("%s: the server is gone", script)
				}
				g.Open(t)
			}
			l.Out.Whole() // to EOF
			k.MustBeEmpty()
		}
	}
}

// Each supervisor stops a server that ignores SIGTERM, with a helper that does so too, in another session: fini needs all of
// its time for them, and the supervisor's settings give it that.
var (
	slow        = map[string]string{"server": `trap "" TERM INT; setsid sh -c 'echo $$ >"$HELPER"; exec sleep 1000' & while :; do sleep 0.1; done`}
	helper      = []string{"HELPER=helper", "FINI_ORPHANS_GRACE=3s"} // what --grace=3s gives a reader
	killsHelper = []string{"(--kill-after)", "fini: killing leftover "}
)

const untilHelper = "until test -s helper; do sleep 0.01; done\n"

var supervised = trial{standIns: slow, env: helper, script: `sh -c "exec $BLOCK" & ` + untilHelper + "kill $!; wait $!", status: 137,
	says: killsHelper}.run

func underSupervisord(t *testing.T, text string) {
	trial{
		needs: []string{"supervisord", "supervisorctl"}, standIns: slow,
		env: append(helper, "SOCKET="+rig.ShortTempDir(t)+"/socket"), as: "server.conf",
		script: `set -e
			cat >supervisord.conf - server.conf <<-END
				[supervisord]
				nodaemon=true
				user=root
				logfile=/dev/null
				logfile_maxbytes=0
				pidfile=$PWD/pid
				[unix_http_server]
				file=$SOCKET
				[rpcinterface:supervisor]
				supervisor.rpcinterface_factory = supervisor.rpcinterface:make_main_rpcinterface
				[supervisorctl]
				serverurl=unix://$SOCKET
			END
			printf 'redirect_stderr=true\nstdout_logfile=log\n' >>supervisord.conf
			supervisord -c supervisord.conf >/dev/null & ` + untilHelper + `
			supervisorctl -c supervisord.conf stop server
			cat log; kill $!; wait $!`,
		says: append(killsHelper, "server: stopped\n"),
	}.run(t, text)
}

var underRunit = trial{
	needs: []string{"runsv", "sv"}, standIns: slow, env: append(helper, "HELPER=../helper"), as: "service/run",
	script: "set -e; runsv service & " + untilHelper + "sv -w 300 force-stop ./service; kill $!; wait $!",
	says:   append(killsHelper, "ok: down: "),
}.run

var underPM2 = trial{
	npm: "pm2", standIns: slow, env: helper, as: "ecosystem.config.js",
	script: "set -e; export HOME=$PWD PM2_HOME=$PWD/pm2; pm2=node_modules/.bin/pm2; $pm2 start ecosystem.config.js; " + untilHelper +
		"$pm2 stop server; cat pm2/logs/server-error*; $pm2 kill", says: killsHelper, later: true,
}.run

// start-stop-daemon starts the server in / with no output.
var underStartStopDaemon = trial{
	needs: []string{"start-stop-daemon"}, standIns: slow, env: helper,
	changes: []string{"--background", "--background --no-close --chdir $PWD",
		"\nstart-stop-daemon --stop", " 2>said\n" + untilHelper + "start-stop-daemon --stop"},
	script: `export PIDFILE=$PWD/pid; sh -ec "$BLOCK" && cat said`, says: killsHelper, later: true,
}.run

// systemd sends SIGTERM to fini alone.
var systemdUnit = trial{
	needs: []string{"systemd-analyze"},
	script: `echo "$BLOCK" | sed "s#/usr/local/bin/fini#$(command -v fini)#; s#/usr/local/bin/server#/bin/sleep#; s#--port=80#1000#" >example.service
		systemd-analyze verify ./example.service >said 2>&1 && ! grep example.service said || { cat said; exit 1; }
		line=$(sed -n 's/^ExecStart=//p' example.service); echo ready; exec $line`,
	meanwhile: func(_ *testing.T, l *rig.Life) {
		l.Out.Want("ready")
		l.Caught()
		l.Signal(syscall.SIGTERM)
	}, status: 143,
}.run

// docs/recipes.md's filter gets all that tee has, though tee exits before it.
func TestGuidesFilter(t *testing.T) {
	t.Parallel()
	m := regexp.MustCompile("in `(make \\| tee >\\(fini .*\\))` the").FindStringSubmatch(rig.ReadFile(t, "../docs/recipes.md"))
	if m == nil {
		t.Fatal("docs/recipes.md has no filter")
	}
	trial{needs: []string{"bash", "gzip"}, standIns: map[string]string{"make": "seq 100000"},
		script: `bash -c "$BLOCK" | wc -l; until test -s log.gz && gzip -dc log.gz >log 2>/dev/null; do sleep 0.01; done; wc -l <log`, out: "100000\n100000\n", later: true}.run(t, m[1])
}
