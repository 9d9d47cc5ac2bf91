package docs

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/need"
	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/e2e/rig/containers"
	"github.com/seed-126c5d8a/fini/e2e/rig/procfs"
	"github.com/seed-126c5d8a/fini/e2e/rig/pty"
	"github.com/seed-126c5d8a/fini/e2e/rig/recipes"
)

// What the guides for CI and test runners, agents, supervisors and images show, with the real programs.

// mustName wants a line of fini's about a leftover, and how it ends.
func mustName(t *testing.T, said string, how ...string) {
	t.Helper()
	for _, want := range append(how, "fini: stopping leftover ") {
		if !strings.Contains(said, want) {
			t.Errorf("fini says %q, and nothing of %q", said, want)
		}
	}
}

func inFrontOfLeak(t *testing.T, text string) {
	k := recipes.NewDir(t, map[string]string{"make": recipes.Leaky})
	l := k.Start("/bin/sh", "-c", text)
	k.MustLeaveNothing(l, 1)
	mustName(t, l.Err.Whole(), "exit 1 instead of 0")
}

func audits(t *testing.T, text string) {
	k := recipes.NewDir(t, map[string]string{"make": "setsid sleep 1000 >/dev/null 2>&1 & " + rig.UntilSleeps + "; exit 3"})
	report := k.File("reports/e2e.json", "", 0o644)
	l := k.Start("/bin/sh", "-c", text)
	if got := l.Status(); got != 3 || len(k.Cgroup.Alive()) != 1 {
		t.Errorf("status %d, and there run %q; stderr: %s", got, k.Cgroup.Names(), l.Err.Text())
	}
	var r struct{ Leftovers []struct{ Command string } }
	rig.MustParse(t, []byte(rig.ReadFile(t, report)), &r)
	if len(r.Leftovers) != 1 || r.Leftovers[0].Command != "sleep 1000" {
		t.Errorf("the report has %+v", r.Leftovers)
	}
}

// The agent's cancel is a SIGTERM for the process group of the job, which has a terminal. The command is in another group.
func agentWithTerminal(t *testing.T, text string) {
	line := at(t, fromYAML(t, text), "steps", 0, "command").(string)
	k := recipes.NewDir(t, map[string]string{"make": "setsid sleep 1000 & " + serving})
	argv := k.Cgroup.Wrap("/bin/sh", "-c", "trap : TERM; "+line)
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir, cmd.Env = k.Dir, k.Env
	l, screen, _ := pty.Start(t, cmd)
	screen.Want("ready")
	make := procfs.ChildrenOf(t, procfs.ChildrenOf(t, procfs.ChildrenOf(t, l.PID())[0])[0])[0]
	if group, err := syscall.Getpgid(make); err != nil || group != make {
		t.Errorf("the command is in group %d, %v", group, err)
	}
	rig.MustKill(t, -l.PID(), syscall.SIGTERM)
	l.Status()
	if said := screen.Text(); strings.Count(said, "got TERM") != 1 {
		t.Errorf("the terminal shows %q", said)
	}
	k.MustBeEmpty()
}

const goLeak = `package cart

import (
	"os/exec"
	"testing"
)

func TestCheckout(t *testing.T) {
	t.Setenv("FINI_TEST", t.Name())
	if err := exec.Command("setsid", "sleep", "1000").Start(); err != nil {
		t.Fatal(err)
	}
}
`

func leakInGoTest(t *testing.T, text string) {
	need.Program(t, "setsid")
	k := recipes.NewDir(t, nil)
	k.Env = append(k.Env, "GOCACHE="+recipes.GoCache(t), "GOFLAGS=-vet=off")
	k.File("go.mod", "module shop\n\ngo 1.21\n", 0o644)
	k.File("cart/cart_test.go", goLeak, 0o644)
	k.File("pay/pay_test.go", "package pay\n\nimport \"testing\"\n\nfunc TestPay(*testing.T) {}\n", 0o644)
	l := k.Start("/bin/sh", "-c", text)
	out := k.MustLeaveNothing(l, 1)
	if !strings.Contains(out, "FAIL\tshop/cart") || !strings.Contains(out, "ok  \tshop/pay") {
		t.Errorf("go test says %q", out)
	}
	mustName(t, out+l.Err.Whole(), "started in test TestCheckout\n")
}

// auditsGoTest has two leaks in one package. Only that which holds the output is stopped, and no package fails.
func auditsGoTest(t *testing.T, text string) {
	need.Program(t, "setsid")
	k := recipes.NewDir(t, nil)
	k.Env = append(k.Env, "GOCACHE="+recipes.GoCache(t), "GOFLAGS=-vet=off")
	k.File("go.mod", "module shop\n\ngo 1.21\n", 0o644)
	leaks := strings.Replace(goLeak, "	if err :=", "	holds := exec.Command(\"setsid\", \"sleep\", \"1001\")\n	holds.Stdout = os.Stdout\n	_ = holds.Start()\n	if err :=", 1)
	k.File("cart/cart_test.go", strings.Replace(leaks, `"os/exec"`, "\"os\"\n	\"os/exec\"", 1), 0o644)
	k.File("pay/pay_test.go", "package pay\n\nimport \"testing\"\n\nfunc TestPay(*testing.T) {}\n", 0o644)
	l := k.Start("/bin/sh", "-c", text)
	if out := l.Out.Whole(); l.Status() != 0 || strings.Count(out, "ok  \tshop/") != 2 {
		t.Errorf("go test says %q and %q", out, l.Err.Text())
	}
	if left := k.Cgroup.Names(); len(left) != 1 {
		t.Errorf("still running: %q", left)
	}
	reports, _ := filepath.Glob(filepath.Join(k.Dir, "reports/*.json"))
	ended := map[string]string{}
	for _, file := range reports {
		var r struct {
			Leftovers []struct{ Command, Ended string }
		}
		rig.MustParse(t, []byte(rig.ReadFile(t, file)), &r)
		for _, leftover := range r.Leftovers {
			ended[leftover.Command] = leftover.Ended
		}
	}
	if want := map[string]string{"sleep 1001": "SIGTERM", "sleep 1000": ""}; len(reports) != 2 || !maps.Equal(ended, want) {
		t.Errorf("the %d reports have %q", len(reports), ended)
	}
}

func leakInCargo(t *testing.T, text string) {
	cargo := need.Program(t, "cargo")
	k := recipes.NewDir(t, nil)
	k.File(".cargo/config.toml", text, 0o644)
	k.File("Cargo.toml", "[package]\nname = \"shop\"\nversion = \"0.1.0\"\nedition = \"2021\"\n", 0o644)
	k.File("src/lib.rs", `#[test] fn checkout() { std::process::Command::new("sleep").arg("1000").env("FINI_TEST", "checkout").spawn().unwrap(); }`+"\n", 0o644)
	l := k.Start(cargo, "test", "--offline", "--lib")
	if out := k.MustLeaveNothing(l, 1); !strings.Contains(out, "test checkout ... ok") {
		t.Errorf("cargo says %q", out)
	}
	mustName(t, l.Err.Whole(), "started in test checkout", "error: test failed")
}

func leakInCTest(t *testing.T, text string) {
	cmake := need.Program(t, "cmake")
	need.Program(t, "cc")
	k := recipes.NewDir(t, nil)
	k.File("CMakeLists.txt", "cmake_minimum_required(VERSION 3.10)\nproject(shop C)\nenable_testing()\n"+
		"add_executable(checkout checkout.c)\nadd_test(NAME checkout COMMAND checkout)\n", 0o644)
	k.File("checkout.c", `#include <unistd.h>
int main(void) { if (!fork()) execlp("sleep", "sleep", "1000", (char *)0); return 0; }
`, 0o644)
	var major, minor int
	if _, err := fmt.Sscanf(rig.Run(t, cmake, "--version"), "cmake version %d.%d", &major, &minor); err != nil {
		t.Fatal(err)
	}
	if major == 3 && minor < 29 {
		text = strings.Replace(text, "CMAKE_TEST_LAUNCHER", "CMAKE_CROSSCOMPILING_EMULATOR", 1)
	}
	l := k.Start("/bin/sh", "-ec", text)
	mustName(t, k.MustLeaveNothing(l, 8), "exit 1 instead of 0", "1 - checkout (Failed)")
}

func leakInVitest(t *testing.T, text string) {
	vitest, modules := nodeProgram(t, "vitest")
	k := recipes.NewDir(t, map[string]string{"start-server": "exec sleep 1000"})
	rig.NoError(t, os.Symlink(modules, filepath.Join(k.Dir, "node_modules")))
	k.File("fini.setup.js", text, 0o644)
	k.File("vitest.config.js", "export default { test: { setupFiles: ['./fini.setup.js'] }, cacheDir: '.cache' };\n", 0o644)
	k.File("package.json", `{"private": true, "type": "module"}`, 0o644)
	k.File("tests/shop.test.js", `import { spawn } from 'node:child_process';
import { describe, test } from 'vitest';
describe('shop', () => test('checkout', () => { spawn('start-server', { detached: true, stdio: 'ignore' }).unref(); }));
`, 0o644)
	k.Env = append(k.Env, "GITHUB_ACTIONS=true", "GITHUB_STEP_SUMMARY=")
	l := k.Start("fini", "--orphans-exit=9", "--", vitest, "run")
	k.MustLeaveNothing(l, 9)
	mustName(t, l.Err.Whole(), " in test tests/shop.test.js::shop checkout\n", "::error title=fini,file=tests/shop.test.js::")
}

// Each tool leaves its server, which fini spares; a leak beside them is named, and fails the step.
func daemonsStay(t *testing.T, text string) {
	line := strings.TrimSpace(text)
	k := recipes.NewDir(t, nil)
	k.Env = append(k.Env, "HOME="+k.Dir, "TMPDIR="+k.Dir, "SCCACHE_DIR="+k.Dir, "SCCACHE_SERVER_PORT=14226", "ANDROID_ADB_SERVER_PORT=15037",
		"XDG_RUNTIME_DIR="+k.Dir, "XDG_STATE_HOME="+k.Dir)
	ssh, config := sshHost(t, k.Dir, k.Env[len(k.Env)-1])
	for tool, command := range map[string]string{
		"adb": need.Program(t, "adb") + " start-server", "sccache": need.Program(t, "sccache") + " --start-server", "watchman": need.Program(t, "watchman") + " version",
		"ssh": ssh + " -F " + config + " -o ControlMaster=auto -o ControlPersist=1h -o ControlPath=" + rig.ShortTempDir(t) + "/c host true",
	} {
		k.File("bin/make", "#!/bin/sh\n"+command+" >"+tool+".log 2>&1\n", 0o755)
		// Here sshd descends from ssh.
		if l := k.Start("/bin/sh", "-c", strings.Replace(line, "--allow-orphan=ssh ", "--allow-orphan=ssh --allow-orphan=sshd ", 1)); l.Status() != 0 {
			t.Errorf("%s: %s %s", tool, l.Err.Text(), rig.ReadFile(t, filepath.Join(k.Dir, tool+".log")))
		}
		if !strings.Contains(strings.Join(k.Cgroup.Names(), ","), " "+tool) {
			t.Errorf("%s is gone; there are %q", tool, k.Cgroup.Names())
		}
	}
	// Two of these objects are in objects/17, by which git guesses how many there are. The packing is over when git exits.
	k.File("bin/make", `#!/bin/sh
git config --global gc.autoDetach false && git init -q repository && cd repository && git config gc.auto 1 &&
for text in 263 410; do echo $text | git hash-object -w --stdin && echo $text >$text && git add $text; done >/dev/null &&
git -c user.name=x -c user.email=x commit -q -m x && git gc --quiet --auto && ls .git/objects/pack/*.pack
`, 0o755)
	if l := k.Start("/bin/sh", "-c", line); l.Status() != 0 {
		t.Errorf("git: status %d: %s", l.Status(), l.Err.Text())
	}
	k.File("bin/make", "#!/bin/sh\n"+recipes.Leaky+"\n", 0o755)
	l := k.Start("/bin/sh", "-c", line)
	l.MustHaveStatus(1)
	for _, pid := range k.Cgroup.Alive() {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}

// containerInStep runs a container of podman's. Whoever forgets to remove it gets to know.
func containerInStep(t *testing.T, text string) {
	need.Root(t, "for podman")
	client := containers.PodmanClient(t)
	k := recipes.NewDir(t, map[string]string{
		"make":   "echo tested",
		"podman": `case $1 in run) shift; set -- run --network none "$@" /bin/sh -c "sleep 1000";; esac; exec ` + strings.Join(client, " ") + ` "$@"`,
	})
	k.Env = append(containers.PodmanConfig(t), k.Env[len(k.Env)-1], "FINI_GRACE=2s") // conmon ignores SIGTERM
	load := exec.Command(filepath.Join(k.Dir, "bin/podman"), "import", "-", "example")
	load.Stdin, load.Env = containers.BusyboxTar(t), k.Env
	rig.Succeed(t, load)
	text = strings.Replace(text, "podman run -d --name db example", "podman run -d --name db localhost/example", 1)
	const removes = `trap "podman rm -f -t 5 db" EXIT; `
	l := k.Start("/bin/sh", "-c", text)
	if out := l.Out.Whole(); l.Status() != 0 || !strings.Contains(out, "tested\n") {
		t.Errorf("status %d, %q, %q", l.Status(), out, l.Err.Text())
	}
	l = k.Start("/bin/sh", "-c", strings.Replace(text, removes, "", 1))
	if l.Status() != 1 {
		t.Errorf("status %d: %s", l.Status(), l.Err.Text())
	}
	mustName(t, l.Err.Whole(), "/conmon ", "sleep 1000")
	// Under this name the monitor stays, and the container with it.
	spared := strings.Replace(strings.Replace(text, removes, "", 1), "--orphans-exit=1", "--orphans-exit=1 --allow-orphan=conmon", 1)
	if l := k.Start("/bin/sh", "-c", strings.Replace(spared, "podman run", "podman rm -f -t 0 db; podman run", 1)); l.Status() != 0 {
		t.Errorf("status %d: %s", l.Status(), l.Err.Text())
	}
	if l := k.Start("podman", "exec", "db", "/bin/true"); l.Status() != 0 {
		t.Errorf("the container is gone: %s", l.Err.Text())
	}
	if l := k.Start("podman", "rm", "-f", "-t", "0", "db"); l.Status() != 0 {
		t.Errorf("podman rm: %s", l.Err.Text())
	}
}

// In the container the model's commands have fini in front. One leaves a server; one is cut off; one loses its client. The
// end of the container is the end of all.
func sandbox(t *testing.T, text string) {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	image := built(t, "FROM busybox\nCOPY --from=fini:0.1.0 /fini /fini\n"+strings.TrimPrefix(imageOfServer, "FROM busybox\n"))
	run := strings.Fields(lines[0])
	if len(lines) != 3 || !slices.Equal(run[:5], strings.Fields("docker run -d --rm --name")) {
		t.Fatalf("%q", lines)
	}
	words := slices.Replace(slices.Clone(run[6:]), slices.Index(run[6:], "example"), slices.Index(run[6:], "example")+1, image)
	c := containers.StartContainer(t, words...)
	call := func(limit, command string) *rig.Life {
		argv := strings.Fields(strings.NewReplacer(" sandbox ", " "+c.Name+" ", " bash -c \"$COMMAND\"", "", " 2m ", " "+limit+" ").Replace(lines[1]))
		return rig.StartCmd(t, containers.Client(t, append(argv[1:], "sh", "-c", command)...))
	}
	alive := func() string { return c.Exec("sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '") }
	l := call("2m", `sleep 1001 >/dev/null 2>&1 & sleep 1002 & echo called`)
	if out := l.Out.Whole(); l.Status() != 0 || out != "called\n" {
		t.Errorf("status %d, %q", l.Status(), out)
	}
	mustName(t, l.Err.Whole(), "(sleep 1002)")
	if now := alive(); !strings.Contains(now, "sleep 1001 ") || strings.Contains(now, "sleep 1002 ") {
		t.Errorf("there run %q", now)
	}
	l = call("2s", `sleep 1003 >/dev/null 2>&1 & setsid sleep 1004 >/dev/null 2>&1 & sleep 1005`)
	if l.Status() != 124 {
		t.Errorf("status %d, %q", l.Status(), l.Err.Text())
	}
	l.Err.Want("fini: stopping the command: --timeout=2s has passed")
	if now := alive(); strings.Contains(now, "sleep 1003 ") || !strings.Contains(now, "sleep 1004 ") || strings.Contains(now, "sleep 1005 ") {
		t.Errorf("there run %q", now)
	}
	l = call("2m", `echo ready; sleep 1006`)
	l.Out.Want("ready")
	l.Signal(syscall.SIGKILL)
	rig.Until(t, "the command without a client ends", func() bool { return !strings.Contains(alive(), "sleep 1006 ") })
	containers.Docker(t, "stop", c.Name)
	c.MustEnd(0)
}

// keptServer are three calls of a model's, of which the first one leaves a server.
func keptServer(t *testing.T, text string) {
	need.Program(t, "setsid")
	k := recipes.NewDir(t, map[string]string{"server": "(setsid sleep 1000 &); echo ready; exec sleep 1001"})
	calls := strings.Split(strings.TrimSpace(text), "\n")
	call := func(line string) string {
		l := k.Start("fini", "-k", "5s", "-t", "10m", "--grace=1s", "--orphans=pipes", "--report=report.json", "--", "bash", "-c", line)
		out := l.Out.Whole()
		if got := l.Status(); got != 0 {
			t.Errorf("%s: status %d, %q", line, got, l.Err.Text())
		}
		return out
	}
	call(calls[0])
	var r struct {
		Leftovers []struct {
			Pid    int
			Spared string
		}
	}
	rig.MustParse(t, []byte(rig.ReadFile(t, filepath.Join(k.Dir, "report.json"))), &r)
	pid := strings.TrimSpace(rig.ReadFile(t, filepath.Join(k.Dir, "server.pid")))
	// By its pid: it may still be about to execute setsid, or fini.
	if len(r.Leftovers) == 0 || strconv.Itoa(r.Leftovers[0].Pid) != pid || r.Leftovers[0].Spared != "pipes" {
		t.Errorf("the report of the call that started %s has %+v", pid, r.Leftovers)
	}
	rig.Until(t, "the server is ready", func() bool {
		text, _ := os.ReadFile(filepath.Join(k.Dir, "log"))
		return strings.HasPrefix(string(text), "ready\n")
	})
	if listed := call(calls[1]); !strings.Contains(listed, pid+" fini -p none -k 5s -- server\n") {
		t.Errorf("%s is not listed: %q", pid, listed)
	}
	call(calls[2])
	k.MustBeEmpty()
}

// masterAndChildren: only the master gets SIGTERM, and lets its child finish.
func masterAndChildren(t *testing.T, text string) {
	dir := t.TempDir()
	rig.Put(t, filepath.Join(dir, "celery"), `#!/bin/sh
		sh -c 'trap "echo lost; exit 1" TERM; echo working; read end </tmp/end; echo finished' &
		trap 'echo warm shutdown; echo >/tmp/end; wait; exit 0' TERM
		wait
		wait`, 0o755)
	rig.Put(t, filepath.Join(dir, "Dockerfile"), "FROM busybox\nCOPY --from=fini:0.1.0 /fini /fini\nCOPY celery /bin/\nRUN mkdir -p /tmp && mkfifo /tmp/end\n"+text, 0o644)
	c := containers.StartContainer(t, builtIn(t, dir))
	c.Out.Want("working")
	containers.Docker(t, "stop", c.Name)
	out := c.MustEnd(0)
	rig.WantOnce(t, out, "finished")
	if strings.Contains(out, "lost") {
		t.Errorf("%q", out)
	}
}

// timeToStop: the helper needs more than the 5 s that it has by default.
func timeToStop(t *testing.T, text string) {
	dir := t.TempDir()
	rig.Put(t, filepath.Join(dir, "server"), strings.Replace(imageServer, "sleep 0.2", "sleep 6", 1), 0o755)
	rig.Put(t, filepath.Join(dir, "Dockerfile"), "FROM busybox\nCOPY --from=fini:0.1.0 /fini /fini\nCOPY server /bin/\nENTRYPOINT [\"/fini\", \"--\"]\nCMD [\"server\", \"--port=80\"]\n", 0o644)
	run, stop, _ := strings.Cut(text, "\n")
	words, ok := strings.CutPrefix(run, "docker run -d --name server ")
	if image, ok2 := strings.CutSuffix(words, " example"); !ok || !ok2 || stop != "docker stop server\n" {
		t.Fatal(text)
	} else {
		mustStopWell(t, containers.StartContainer(t, append(strings.Fields(image), builtIn(t, dir))...))
	}
}

func commandInPod(t *testing.T, text string) {
	pod := at(t, fromYAML(t, text), "containers", 0)
	command, args := words(t, at(t, pod, "command")), words(t, at(t, pod, "args"))
	image := built(t, "FROM busybox\nCOPY --from=fini:0.1.0 /fini /fini\n"+strings.TrimPrefix(imageOfServer, "FROM busybox\n"))
	mustStopWell(t, containers.StartContainer(t, slices.Concat([]string{"--entrypoint", command[0], image}, command[1:], args)...))
}

// slow is a server that ignores SIGTERM, and so does its helper in another session: fini needs all of its time for them.
const slow = `trap "" TERM; echo ready; setsid sh -c 'echo $$ >helper; exec sleep 1000' & while :; do sleep 0.1; done`

// withinTheirTime asserts that nothing is left once a supervisor has stopped the server, and that fini ended both.
func withinTheirTime(t *testing.T, said string) {
	t.Helper()
	mustName(t, said, "(--kill-after)", "fini: killing leftover ")
}

func supervised(t *testing.T, text string) {
	k := recipes.NewDir(t, map[string]string{"server": slow})
	l := k.Start("/bin/sh", "-c", "exec "+text)
	l.Out.Want("ready")
	rig.Until(t, "the helper is there", func() bool { return strings.Contains(strings.Join(k.Cgroup.Names(), " "), "sleep") })
	l.Signal(syscall.SIGTERM)
	k.MustLeaveNothing(l, 128+int(syscall.SIGKILL))
	withinTheirTime(t, l.Err.Whole())
}

// helperIsThere waits for the helper of slow.
func helperIsThere(t *testing.T, dir string) {
	t.Helper()
	rig.Until(t, "the helper is there", func() bool {
		text, _ := os.ReadFile(filepath.Join(dir, "helper"))
		return strings.HasSuffix(string(text), "\n")
	})
}

func underSupervisord(t *testing.T, text string) {
	supervisord, control := need.Program(t, "supervisord"), need.Program(t, "supervisorctl")
	k := recipes.NewDir(t, map[string]string{"server": slow})
	dir := rig.ShortTempDir(t) // for the name of a socket
	conf := k.File("supervisord.conf", fmt.Sprintf(`[supervisord]
nodaemon=true
user=root
logfile=/dev/null
logfile_maxbytes=0
pidfile=%[1]s/pid
[unix_http_server]
file=%[1]s/socket
[rpcinterface:supervisor]
supervisor.rpcinterface_factory = supervisor.rpcinterface:make_main_rpcinterface
[supervisorctl]
serverurl=unix://%[1]s/socket
%[2]sdirectory=%[3]s
redirect_stderr=true
stdout_logfile=%[3]s/log
`, dir, text, k.Dir), 0o644)
	l := k.Start(supervisord, "-c", conf)
	helperIsThere(t, k.Dir)
	cmd := exec.Command(control, "-c", conf, "stop", "server")
	if out, err := cmd.CombinedOutput(); err != nil || string(out) != "server: stopped\n" {
		t.Errorf("%v: %s", err, out)
	}
	if left := k.Cgroup.Names(); len(left) != 1 {
		t.Errorf("there run %q", left)
	}
	withinTheirTime(t, rig.ReadFile(t, filepath.Join(k.Dir, "log")))
	l.Signal(syscall.SIGTERM)
	k.MustLeaveNothing(l, 0)
}

func underRunit(t *testing.T, text string) {
	runsv, sv := need.Program(t, "runsv"), need.Program(t, "sv")
	k := recipes.NewDir(t, map[string]string{"server": "cd ..; " + slow})
	k.File("service/run", text, 0o755)
	l := k.Start(runsv, "service")
	helperIsThere(t, k.Dir)
	if out, err := exec.Command(sv, "-w", "300", "force-stop", filepath.Join(k.Dir, "service")).CombinedOutput(); err != nil || !strings.HasPrefix(string(out), "ok: down: ") {
		t.Errorf("%v: %s", err, out)
	}
	if left := k.Cgroup.Names(); len(left) != 1 {
		t.Errorf("there run %q", left)
	}
	l.Signal(syscall.SIGTERM)
	withinTheirTime(t, k.MustLeaveNothing(l, 0))
}

func underPM2(t *testing.T, text string) {
	pm2, _ := nodeProgram(t, "pm2")
	k := recipes.NewDir(t, map[string]string{"server": strings.Replace(slow, `"" TERM`, `"" TERM INT`, 1)})
	k.Env = append(k.Env, "PM2_HOME="+k.Dir+"/pm2", "HOME="+k.Dir)
	k.File("ecosystem.config.js", text, 0o644)
	for _, args := range [][]string{{"start", "ecosystem.config.js"}, {"stop", "server"}} {
		l := k.Start(append([]string{pm2}, args...)...)
		if got := l.Status(); got != 0 {
			t.Errorf("pm2 %q: status %d: %s%s", args, got, l.Out.Text(), l.Err.Text())
		}
		if args[0] == "start" {
			helperIsThere(t, k.Dir)
		}
	}
	if left := strings.Join(k.Cgroup.Names(), " "); strings.Contains(left, "sleep") || strings.Contains(left, "fini") {
		t.Errorf("there run %q", left)
	}
	logs, _ := filepath.Glob(filepath.Join(k.Dir, "pm2/logs/server-error*"))
	if len(logs) != 1 {
		t.Fatalf("the logs are %q", logs)
	}
	withinTheirTime(t, rig.ReadFile(t, logs[0]))
	k.Start(pm2, "kill").Status()
	k.MustBeEmpty()
}

func underStartStopDaemon(t *testing.T, text string) {
	need.Program(t, "start-stop-daemon")
	k := recipes.NewDir(t, map[string]string{"server": slow})
	k.Env = append(k.Env, "PIDFILE="+k.Dir+"/pid")
	start, stop, ok := strings.Cut(text, "start-stop-daemon --stop")
	if !ok {
		t.Fatal(text)
	}
	// It starts the server in / with no output.
	start = strings.Replace(start, "--background", "--background --no-close --chdir "+k.Dir, 1)
	l := k.Start("/bin/sh", "-c", strings.TrimSpace(start)+" 2>said")
	if got := l.Status(); got != 0 {
		t.Fatalf("status %d: %s", got, l.Err.Text())
	}
	helperIsThere(t, k.Dir)
	if l := k.Start("/bin/sh", "-c", "start-stop-daemon --stop"+stop); l.Status() != 0 {
		t.Errorf("status %d: %s", l.Status(), l.Err.Text())
	}
	k.MustBeEmpty()
	withinTheirTime(t, rig.ReadFile(t, filepath.Join(k.Dir, "said")))
}

// insistsOnLinux has no fini to find, on Linux and elsewhere.
func insistsOnLinux(t *testing.T, text string) {
	node := need.Program(t, "node")
	k := recipes.WithModules(t, nil)
	k.File("host.js", text, 0o644)
	file := k.File("use.js", `
for (const platform of ['linux', 'darwin']) {
  Object.defineProperty(process, 'platform', { value: platform });
  process.env.FINI_BINARY = '/none';
  try { console.log(JSON.stringify(require('./host.js').serverCommand())); } catch (err) { console.log(err.message); }
}
`, 0o644)
	lines := strings.Split(k.MustLeaveNothing(k.Start(node, file), 0), "\n")
	var bare struct {
		Command string
		Args    []string
	}
	if err := json.Unmarshal([]byte(lines[1]), &bare); !strings.Contains(lines[0], "/none") || err != nil || bare.Command != "node" || !slices.Equal(bare.Args, []string{"server.js"}) {
		t.Errorf("%q, %v", lines, err)
	}
}

func atTheEndOfInput(t *testing.T, text string) {
	k := recipes.NewDir(t, map[string]string{"node": "sleep 1000 & echo ready; exec sleep 1001"})
	l := k.Start("/bin/sh", "-c", "exec "+text)
	l.Out.Want("ready")
	_ = l.Stdin.Close()
	k.MustLeaveNothing(l, 128+int(syscall.SIGTERM))
}

// forgotten is a server whose host holds the pipe open, and has sent it its last call.
func forgotten(t *testing.T, text string) {
	k := recipes.NewDir(t, map[string]string{"node": "echo ready; while read -r call; do echo $call answered; done"})
	l := k.Start("/bin/sh", "-c", "exec "+strings.Replace(text, "--idle=1h", "--idle=1s", 1))
	l.Out.Want("ready")
	rig.Write(t, l, "call\n")
	if out := k.MustLeaveNothing(l, 124); !strings.HasSuffix(out, "call answered\n") {
		t.Errorf("it says %q", out)
	}
}

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
	t.Run("node", func(t *testing.T) {
		t.Parallel()
		mustNameTest(t, "checkout", map[string]string{"shop.test.js": "const { test, beforeEach } = require('node:test');\n" + codeOf(t, "| node:test |")[0] +
			"\ntest('checkout', () => { require('node:child_process').spawn('start-server', { detached: true, stdio: 'ignore' }).unref(); });\n"},
			need.Program(t, "node"), "--test", "shop.test.js")
	})
	t.Run("bats", func(t *testing.T) {
		t.Parallel()
		need.Program(t, "setsid")
		mustNameTest(t, "it checks out", map[string]string{"shop.bats": codeOf(t, "| bats, by its description |")[0] +
			"\n@test \"it checks out\" { setsid start-server >/dev/null 2>&1 3>&- 4>&- & true; }\n"}, need.Program(t, "bats"), "shop.bats")
	})
	t.Run("go, parallel", func(t *testing.T) {
		t.Parallel()
		mustNameTest(t, "TestCheckout", map[string]string{"go.mod": "module shop\n\ngo 1.21\n", "shop_test.go": `package shop

import (
	"os"
	"os/exec"
	"testing"
)

func TestCheckout(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("start-server")
	` + codeOf(t, "| Go |")[1] + `
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
}
`}, "go", "test", "-vet=off", "./...")
	})
}

// docs/ci.md's server of a Go test ends with the test, with a panic, and when the test binary is killed.
func TestGuidesGoServer(t *testing.T) {
	rig.Long(t)
	t.Parallel()
	code := codeOf(t, "Start the server by ")
	if len(code) < 4 {
		t.Fatalf("%q", code)
	}
	for name, end := range map[string]string{"returns": "", "panics": `panic("over")`, "is killed": "_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := recipes.NewDir(t, map[string]string{"server": "setsid sleep 1000 & exec sleep 1001"})
			k.Env = append(k.Env, "GOCACHE="+recipes.GoCache(t), "GOFLAGS=-vet=off")
			k.File("go.mod", "module shop\n\ngo 1.24\n", 0o644)
			k.File("shop_test.go", `package shop

import (
	"os"
	"os/exec"
	"syscall"
	"testing"
)

var _ = os.Getpid

func TestShop(t *testing.T) {
	`+code[0]+"\n\t"+code[1]+`
	if `+strings.Replace(code[2], "cmd.Start()", "err := cmd.Start()", 1)+`; err != nil {
		t.Fatal(err)
	}
	`+code[3]+"\n\t"+end+`
}
`, 0o644)
			status := 1
			if end == "" {
				status = 0
			}
			l := k.Start("go", "test", "./...")
			l.MustHaveStatus(status)
			rig.Until(t, "the server's end", func() bool { return len(k.Cgroup.Names()) == 0 }) // fini outlives a test that is killed
		})
	}
}

// docs/supervisors.md's filter gets all that tee has, though tee exits before it.
func TestGuidesFilter(t *testing.T) {
	t.Parallel()
	bash, gzip := need.Program(t, "bash"), need.Program(t, "gzip")
	m := regexp.MustCompile("In `(make \\| tee >\\(fini .*\\))` the").FindStringSubmatch(rig.ReadFile(t, "../docs/supervisors.md"))
	if m == nil {
		t.Fatal("docs/supervisors.md has no filter")
	}
	k := recipes.NewDir(t, map[string]string{"make": "seq 100000"})
	if out := k.Start(bash, "-c", m[1]).Out.Whole(); strings.Count(out, "\n") != 100000 {
		t.Errorf("tee prints %d lines", strings.Count(out, "\n"))
	}
	k.MustBeEmpty()
	if out, err := exec.Command(gzip, "-dc", filepath.Join(k.Dir, "log.gz")).Output(); err != nil || strings.Count(string(out), "\n") != 100000 {
		t.Errorf("log.gz has %d lines, %v", strings.Count(string(out), "\n"), err)
	}
}
