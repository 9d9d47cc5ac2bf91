package docs

import (
	"encoding/json"
	"fmt"
	"io"
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
	"github.com/seed-126c5d8a/fini/e2e/rig/clients"
	"github.com/seed-126c5d8a/fini/e2e/rig/containers"
	"github.com/seed-126c5d8a/fini/e2e/rig/procfs"
	"github.com/seed-126c5d8a/fini/e2e/rig/recipes"
	"github.com/seed-126c5d8a/fini/e2e/rig/runners"
)

func TestMain(m *testing.M) { rig.Main(m) }

// What docs/embedding.md shows and says, with Node, Python and Go as they are.

// A server that leaves a process behind, ends at the end of its standard input, and has the report say so.
const embedded = "sleep 1000 >/dev/null 2>&1 & until grep -qx sleep /proc/$!/comm; do sleep 0.01; done; cat >/dev/null; exit 3"

func embedsNode(t *testing.T, text string) {
	node := need.Program(t, "node")
	k := recipes.WithModules(t, map[string]string{"server": embedded})
	file := k.File("host.js", strings.Replace(text, "wrap('node', ['server.js']", "wrap('server', []", 1), 0o644)
	if out := k.MustLeaveNothing(k.Start(node, file), 0); out != "3 null [ 'sleep 1000' ]\n" {
		t.Errorf("the host says %q", out)
	}
	// Another system has no fini, and the command runs as it is.
	k.File("bin/server", "#!/bin/sh\nexit 3\n", 0o755)
	mac := k.File("mac.js", "Object.defineProperty(process, 'platform', {value: 'darwin'})", 0o644)
	l := k.Start(node, "--require", mac, file)
	if out := k.MustLeaveNothing(l, 0); out != "3 null \n" || l.Err.Whole() != "fini: it needs Linux, and this is darwin: server runs without it\n" {
		t.Errorf("the host says %q and %q", out, l.Err.Text())
	}
}

// embedsTransport connects the SDK's client to a real server, closes it, and reads the report.
func embedsTransport(t *testing.T, text string) {
	node := need.Program(t, "node")
	clients.NeedMCP(t)
	k := recipes.WithModules(t, nil)
	sdk := need.Module(t, "@modelcontextprotocol")
	rig.NoError(t, os.Symlink(sdk, filepath.Join(k.Dir, "node_modules/@modelcontextprotocol")))
	k.File("transport.mjs", strings.Replace(text, "'server.js'", "'"+filepath.Join(sdk, "server-everything/dist/index.js")+"'", 1), 0o644)
	host := k.File("host.mjs", `import { readFileSync } from 'node:fs';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { transport } from './transport.mjs';
const client = new Client({ name: 'host', version: '1' });
await client.connect(transport);
await client.close();
console.log(JSON.parse(readFileSync('server.json', 'utf8')).leftovers.length);
`, 0o644)
	if out := k.MustLeaveNothing(k.Start(node, host), 0); out != "0\n" {
		t.Errorf("the host says %q", out)
	}
}

func embedsPython(t *testing.T, text string) {
	python := need.Program(t, "python3")
	k := recipes.WithModules(t, map[string]string{"server": embedded})
	file := k.File("host.py", strings.Replace(text, `wrap("node", ["server.js"]`, `wrap("server", []`, 1), 0o644)
	if out := k.MustLeaveNothing(k.Start(python, file), 0); out != "3 ['sleep 1000']\n" {
		t.Errorf("the host says %q", out)
	}
	k.File("bin/server", "#!/bin/sh\nexit 3\n", 0o755)
	k.Env = append(k.Env, "FINI_BINARY=/no/such/file")
	l := k.Start(python, file)
	if out := k.MustLeaveNothing(l, 0); out != "3 \n" || !strings.HasSuffix(l.Err.Whole(), ": server runs without it\n") {
		t.Errorf("the host says %q and %q", out, l.Err.Text())
	}
}

func embedsGo(t *testing.T, text string) {
	k := recipes.NewDir(t, map[string]string{"server": embedded})
	k.Env = append(k.Env, "GOCACHE="+recipes.GoCache(t))
	k.File("go.mod", "module host\n\ngo 1.21\n", 0o644)
	k.File("host.go", text, 0o644)
	k.File("host_test.go", `package host

import (
	"strings"
	"testing"
)

func TestRun(t *testing.T) {
	state, report, err := Run("server")
	if err != nil || state.ExitCode() != 3 || !strings.Contains(string(report), "\"command\": \"sleep 1000\"") {
		t.Errorf("%v, %v: %s", state, err, report)
	}
}
`, 0o644)
	k.MustLeaveNothing(k.Start("go", "test", "-count=1", "."), 0)
}

// The recipes that the pages show are run as they stand there, with the real program where it
// can be had, and with a stand-in for what is the reader's own: a server, tests, a backup.

// A recipe is the test of each block that has all of these words.
type recipe struct {
	kind, has string
	run       func(t *testing.T, text string)
	quick     bool
}

const quick, long = true, false

var recipeTests = []recipe{
	{"sh", "make demo", isScript, quick}, // see TestPagesCommandLines
	{"text", "setsid sleep 60", session, quick},
	{"sh", "fini -- make test", inFront, quick},
	{"sh", "unshare -U", inNamespace, quick},
	{"sh", "bwrap --dev-bind", inNamespace, quick},
	{"sh", "dpkg -i", isScript, quick}, // see releaseReadme
	{"dockerfile", "HEALTHCHECK", healthCheck, quick},
	{"dockerfile", "COPY --from=fini", dockerfile, quick},
	{"yaml", "- run: fini", isYAML, quick}, // see TestReadmeCIRecipe
	{"yaml", "git clone", buildsFirst, quick},
	{"yaml", "shell: bash", serverForLaterSteps, quick},
	{"yaml", "shell: \"fini", githubWorkflow, quick},
	{"yaml", "script:", gitlabJob, quick},
	{"yaml", "entrypoint:", composed, long},
	{"yaml", "--install=", kubernetesInit, long},
	{"yaml", "exec:", execProbe, long},
	{"json", "", mcpServers, quick},
	{"python", "def shell(", agentsShell, quick},
	{"ini", "[Service]", systemdUnit, quick},
	{"cron", "", cronJob, quick},
	{"sh", "ssh host", overSSH, long},
	{"sh", "setsid -f", inBackground, quick},
	{"make", ".SHELLFLAGS", makesShell, quick},
	{"sh", `exec fini -q -- sh "$@"`, npmScript, quick},
	{"ini", "script-shell", func(*testing.T, string) {}, quick}, // see npmScript
	{"python", "@pytest.fixture", pytestFixture, quick},
	{"js", "process.platform === 'linux'", insistsOnLinux, quick},
	{"js", "// npm install", wraps, quick},
	{"js", "require('fini-init')", embedsNode, quick},
	{"js", "StdioClientTransport", embedsTransport, long},
	{"python", "import fini_init", embedsPython, quick},
	{"go", "func Run(", embedsGo, long},
	{"js", "handleTestEvent", leakInJest, long},
	{"js", "beforeEach(({ task })", leakInVitest, long},
	{"js", "treekill", underPM2, long},
	{"sh", "fini --orphans-exit=1 -- make e2e", inFrontOfLeak, quick},
	{"sh", "--allow-orphan=adb", daemonsStay, long},
	{"sh", "--orphans=leave --report=reports", audits, quick},
	{"sh", "podman run -d", containerInStep, long},
	{"yaml", "--no-foreground", agentWithTerminal, quick},
	{"sh", "go test -exec \"sh", auditsGoTest, long},
	{"sh", "go test -exec", leakInGoTest, long},
	{"toml", "runner", leakInCargo, long},
	{"sh", "ctest", leakInCTest, long},
	{"sh", "--entrypoint=/fini example -P", sandbox, long},
	{"sh", "server.pid", keptServer, quick},
	{"sh", "FINI_GRACE=20s --stop-timeout", timeToStop, long},
	{"dockerfile", "celery", masterAndChildren, long},
	{"yaml", "command: [\"/fini\", \"--\"]", commandInPod, long},
	{"ini", "[program:server]", underSupervisord, long},
	{"sh", "exec 2>&1\nexec fini", underRunit, long},
	{"sh", "start-stop-daemon", underStartStopDaemon, long},
	{"sh", "fini -k 3s --grace=3s -- server", supervised, long},
	{"sh", "--idle=1h", forgotten, quick},
	{"sh", "fini -i -k 5s --grace=1s node", atTheEndOfInput, quick},
	{"sh", "jq -nr 'def xml", leaksAsJUnit, quick},
	{"sh", "jq -nr", leakRanking, quick},
	{"sh", "grep -rn", migrationGrep, quick},
	{"diff", "FROM ", migratesImage, long},
	{"diff", "docker run", migratesRun, long},
}

// example is what the images of the recipes are made of. It is built once, and gone when the last recipe is over.
var example containers.ExampleImage

func TestRecipes(t *testing.T) {
	t.Parallel()
	if containers.DockerWorks(t) {
		example = containers.BuildExample(t)
	}
	seen := map[string]bool{}
	for _, page := range pages(t) {
		for _, b := range recipes.BlocksOf(t, page) {
			if b.Kind == "console" || seen[b.Text] { // see TestPagesExamples
				continue
			}
			seen[b.Text] = true
			n := slices.IndexFunc(recipeTests, func(r recipe) bool { return r.kind == b.Kind && strings.Contains(b.Text, r.has) })
			if n < 0 {
				t.Errorf("%s, %s: no test runs this block of %q:\n%s", page, b.Section, b.Kind, b.Text)
				continue
			}
			rig.Case(t, recipeTests[n].quick, b.Section, func(t *testing.T) {
				t.Parallel()
				recipeTests[n].run(t, b.Text)
			})
		}
	}
}

// A serving one says that it is ready, ends at SIGTERM, and says so.
const serving = `trap 'echo "$0 got TERM"; exit 0' TERM; echo ready; while :; do sleep 1000 & wait; done`

func isScript(t *testing.T, text string) {
	l := rig.StartCmd(t, exec.Command("/bin/sh", "-n", "-c", text))
	l.MustEnd(0)
}

// session runs the lines of README's session that begin with a prompt: without fini the leftover holds the pipe, and with fini
// the reader's end comes long before it would exit.
func session(t *testing.T, text string) {
	lines := regexp.MustCompile(`(?m)^\$ time (.*) \| cat$`).FindAllStringSubmatch(text, -1)
	if len(lines) != 2 || strings.TrimPrefix(lines[1][1], "fini -- ") != lines[0][1] {
		t.Fatalf("the session runs %q", lines)
	}
	k := recipes.NewDir(t, nil)
	bare := k.Start("/bin/bash", "-c", strings.Replace(lines[0][1], "sleep 60 &", "sleep 1000 & echo $! >pid;", 1)+" | cat")
	bare.Out.Want("tests passed")
	pid, err := strconv.Atoi(strings.TrimSpace(rig.ReadFile(t, filepath.Join(k.Dir, "pid"))))
	if err != nil || syscall.Kill(bare.PID(), 0) != nil {
		t.Fatalf("without fini the reader is at the end, and the leftover is %d (%v)", pid, err)
	}
	_ = syscall.Kill(pid, syscall.SIGKILL)
	bare.MustEnd(0)
	l := k.Start("/bin/bash", "-c", strings.Replace(lines[1][1], "sleep 60", "sleep 1000", 1)+" | cat")
	if out := k.MustLeaveNothing(l, 0); out != "tests passed\n" {
		t.Errorf("the command says %q", out)
	}
	want := regexp.MustCompile(`(?m)^fini: stopping leftover \d+ \(sleep \d+\), detached, which holds stdout( and stderr)?$`)
	if said := l.Err.Whole(); !want.MatchString(said) || !want.MatchString(text) {
		t.Errorf("fini says %q", said)
	}
}

// wraps runs README's wrap, which has fini's flags in front of the command.
func wraps(t *testing.T, text string) {
	node := need.Program(t, "node")
	k := recipes.WithModules(t, nil)
	file := k.File("host.js", text+"console.log(require('path').basename(command), args.join(' '));\n", 0o644)
	if out := k.MustLeaveNothing(k.Start(node, file), 0); out != "fini -i -k 5s --grace=1s -- node server.js\n" {
		t.Errorf("the host says %q", out)
	}
}

// fromYAML is a block as JSON would have it.
func fromYAML(t *testing.T, text string) any {
	t.Helper()
	cmd := exec.Command(debianPython(t, "yaml"), "-c", "import json, sys, yaml; json.dump(yaml.safe_load(sys.stdin), sys.stdout)")
	cmd.Stdin = strings.NewReader(text)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("no YAML: %v\n%s", err, text)
	}
	var value any
	rig.MustParse(t, out, &value)
	return value
}

func isYAML(t *testing.T, text string) { fromYAML(t, text) }

// at is what a path of names and numbers leads to.
func at(t *testing.T, value any, path ...any) any {
	t.Helper()
	for _, step := range path {
		switch step := step.(type) {
		case string:
			object, _ := value.(map[string]any)
			value = object[step]
		case int:
			list, _ := value.([]any)
			if step >= len(list) {
				t.Fatalf("there is no %v", path)
			}
			value = list[step]
		}
	}
	if value == nil {
		t.Fatalf("there is no %v", path)
	}
	return value
}

func words(t *testing.T, value any) (all []string) {
	t.Helper()
	list, ok := value.([]any)
	if !ok {
		t.Fatalf("no list: %v", value)
	}
	for _, word := range list {
		all = append(all, fmt.Sprint(word))
	}
	return all
}

func inFront(t *testing.T, text string) {
	k := recipes.NewDir(t, map[string]string{"make": recipes.Leaky})
	if out := k.MustLeaveNothing(k.Start("/bin/sh", "-c", text), 0); out != "done\n" {
		t.Errorf("it says %q", out)
	}
}

// Nothing stays after the command's exit, SIGTERM for fini itself is a request to end, and SIGKILL for the program that
// has made the namespace is the end of all in it.
func inNamespace(t *testing.T, text string) {
	rig.NeedPidNamespace(t)
	maker, _, _ := strings.Cut(text, " ")
	need.Program(t, maker)
	k := recipes.NewDir(t, map[string]string{"make": recipes.Leaky})
	if out := k.MustLeaveNothing(k.Start("/bin/sh", "-c", text), 0); out != "done\n" {
		t.Errorf("it says %q", out)
	}
	const waits = `trap "echo cleaned up; exit 7" TERM; (setsid sleep 1000 &); echo ready; while :; do sleep 0.01; done`
	k = recipes.NewDir(t, map[string]string{"make": waits})
	l := k.Start("/bin/sh", "-c", "exec "+text)
	l.Out.Want("ready")
	rig.MustKill(t, procfs.ChildrenOf(t, l.PID())[0], syscall.SIGTERM)
	if out := k.MustLeaveNothing(l, 7); !strings.HasSuffix(out, "cleaned up\n") {
		t.Errorf("it says %q", out)
	}
	l = k.Start("/bin/sh", "-c", "exec "+text)
	l.Out.Want("ready")
	l.Signal(syscall.SIGKILL)
	k.MustBeEmpty()
}

// The runner's cancel is that of GithubCancel, ten times as fast. Bash is gone when it sends
// SIGTERM, and fini by SIGKILL after that; who cleans up since SIGINT takes longer.
func githubWorkflow(t *testing.T, text string) {
	need.Program(t, "bash")
	workflow := fromYAML(t, text)
	shell := strings.Fields(at(t, workflow, "defaults", "run", "shell").(string))
	steps := at(t, workflow, "jobs", "tests", "steps").([]any)
	line := at(t, steps[len(steps)-1], "run").(string)
	k := recipes.NewDir(t, map[string]string{"make": `
		trap 'echo deleting; sleep 15; echo deleted; exit 1' INT
		trap 'echo at it already' TERM
		setsid sleep 1000 &
		echo ready
		while :; do sleep 0.1; done`})
	file := k.File("step.sh", line+"\necho the step goes on\n", 0o644)
	for _, fini := range []bool{true, false} {
		argv := slices.Clone(shell)
		if argv[len(argv)-1] = file; !fini {
			argv = argv[slices.Index(argv, "bash"):]
		}
		argv = k.Cgroup.Wrap(argv...)
		cmd := exec.Command(argv[0], argv[1:]...)
		cmd.Env = k.Env
		s := &runners.Step{Life: rig.StartCmd(t, cmd), Cgroup: k.Cgroup}
		_ = s.Stdin.Close() // as the runner does
		s.Out.Want("ready")
		s.GithubCancel()
		if !fini {
			s.MustHaveStatus(128 + int(syscall.SIGTERM))
			if len(k.Cgroup.Alive()) == 0 || strings.Contains(s.Out.Text(), "deleting") {
				t.Errorf("without fini the tests hear of the cancel too, so that this shows nothing: %s", s.Out.Text())
			}
			return // this row is the last one
		}
		s.Out.Want("deleted")
		s.Out.Whole() // to EOF
		// On a busy machine the runner's SIGKILL may come when fini has done its work.
		if got := s.Status(); got != 128+int(syscall.SIGKILL) && got != 128+int(syscall.SIGTERM) {
			t.Errorf("status %d; stderr: %s", got, s.Err.Text())
		}
		s.MustBeGone()
		rig.WantOnce(t, s.Out.Text(), "deleting")
	}
}

func gitlabJob(t *testing.T, text string) {
	need.Program(t, "bash")
	line := words(t, at(t, fromYAML(t, text), "tests", "script"))[0]
	k := recipes.NewDir(t, map[string]string{"make": "setsid sleep 1000 & " + serving})
	argv := k.Cgroup.Wrap(runners.Gitlab(line)...)
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir, cmd.Env, cmd.SysProcAttr = k.Dir, k.Env, runners.OwnGroup
	s := &runners.Step{Life: rig.StartCmd(t, cmd), Cgroup: k.Cgroup}
	s.Out.Want("ready")
	s.SignalGroup(syscall.SIGTERM)
	if out := s.Out.Whole(); strings.Count(out, "got TERM") != 1 {
		t.Errorf("the job says %q", out)
	}
	s.MustBeGone()
}

// The server in the images of the recipes: it starts a helper in a session of its own.
const (
	imageServer = `#!/bin/sh
		setsid sh -c 'trap "sleep 0.2; echo helper saved; exit" TERM; echo helper ready; while :; do sleep 1000 & wait; done' &
		trap 'echo server got TERM; exit 7' TERM
		echo "$@"
		while :; do wait; done`
	imageProbe = "#!/bin/sh\nsetsid sleep 1000 &\nsleep 1000"
)

// With these lines there is an image with fini, a server and a probe.
const imageOfServer = "FROM busybox\nCOPY server check-health /bin/\n"

// built is the image that a Dockerfile makes.
func built(t *testing.T, text string) (image string) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"server": imageServer, "check-health": imageProbe, "Dockerfile": text} {
		rig.Put(t, filepath.Join(dir, name), text, 0o755)
	}
	return builtIn(t, dir)
}

// builtIn is the image that a folder's Dockerfile makes, on a busybox of this machine.
func builtIn(t *testing.T, dir string) (image string) {
	t.Helper()
	containers.NeedDocker(t)
	file := filepath.Join(dir, "Dockerfile")
	text := strings.NewReplacer("FROM busybox", "FROM "+example.Whole, "--from=fini:0.1.0", "--from="+example.Fini).Replace(rig.ReadFile(t, file))
	rig.Put(t, file, text, 0o644)
	image = containers.UniqueName("recipe")
	cmd := containers.Client(t, "build", "-q", "--no-cache", "-t", image, dir)
	cmd.Env = append(os.Environ(), "DOCKER_BUILDKIT=0")
	rig.Succeed(t, cmd)
	t.Cleanup(func() { containers.Docker(t, "rmi", image) })
	return image
}

// mustStopWell stops a container of a server's image, whose helper has its time.
func mustStopWell(t *testing.T, c *containers.Container) {
	t.Helper()
	c.Out.Want("--port=80")
	rig.Until(t, "the helper is ready", func() bool { return strings.Contains(c.Out.Text(), "helper ready\n") })
	containers.Docker(t, "stop", c.Name) // sends SIGKILL in the end, which would be 137
	out := c.MustEnd(7)
	rig.WantOnce(t, out, "server got TERM")
	rig.WantOnce(t, out, "helper saved")
}

func dockerfile(t *testing.T, text string) {
	c := containers.StartContainer(t, built(t, text))
	rig.Until(t, "the server runs", func() bool { return strings.Contains(c.Exec("sh", "-c", "cat /proc/[0-9]*/comm"), "httpd\n") })
	containers.Docker(t, "stop", c.Name) // sends SIGKILL in the end, which would be 137
	c.MustEnd(128 + int(syscall.SIGTERM))
}

// healthCheck runs the check as Docker does, without a shell. The check takes too long, and leaves a process.
func healthCheck(t *testing.T, text string) {
	m := regexp.MustCompile(`(?m)^HEALTHCHECK .*CMD (\[.*\])$`).FindStringSubmatch(text)
	var argv []string
	if m == nil || json.Unmarshal([]byte(m[1]), &argv) != nil || argv[0] != "/fini" {
		t.Fatalf("no check in an exec form: %s", text)
	}
	k := recipes.NewDir(t, map[string]string{"check-health": "setsid sleep 1000 & sleep 1000"})
	argv[0] = rig.Fini
	argv[slices.Index(argv, "3s")] = "300ms"
	k.MustLeaveNothing(k.Start(argv...), 124)
}

// serverForLaterSteps runs a step that starts a server: by its own shell, under which the server goes on, and by the shell
// of the workflow, which stops the server unless its name is allowed.
func serverForLaterSteps(t *testing.T, text string) {
	need.Program(t, "bash")
	step := fromYAML(t, text).([]any)[0]
	if shell := at(t, step, "shell"); shell != "bash" {
		t.Errorf("the shell is %v", shell)
	}
	workflow := fromYAML(t, recipes.BlockWith(t, "../docs/ci.md", "shell: \"fini"))
	inFront := strings.Fields(at(t, workflow, "defaults", "run", "shell").(string))
	bash := inFront[slices.Index(inFront, "bash"):]
	const serves = "mkfifo ready; read line <ready"
	npm := "exec " + need.Program(t, "npm") + " start"
	for _, c := range []struct {
		argv   []string
		env    string
		server string
		leaves bool
	}{
		{bash, "", serves, true},
		{inFront, "", serves, false},
		{inFront, "FINI_ALLOW_ORPHAN=start-server", serves, true},
		{inFront, "FINI_ALLOW_ORPHAN=start-server", "exec bash -c '" + serves + "; :'", false},
		{inFront, "FINI_ALLOW_ORPHAN=cmd:npm?start*", npm, true},
	} {
		k := recipes.NewDir(t, map[string]string{"start-server": c.server})
		k.File("package.json", `{"scripts": {"start": "`+serves+`"}}`, 0o644)
		if c.env != "" {
			k.Env = append(k.Env, c.env)
		}
		argv := slices.Clone(c.argv)
		argv[len(argv)-1] = k.File("step.sh", at(t, step, "run").(string)+"\nuntil [ -p ready ]; do :; done\n", 0o644)
		l := k.Start(argv...)
		l.Out.Whole() // to EOF, which the server doesn't put off
		if got := l.Status(); got != 0 {
			t.Errorf("%q: status %d", argv, got)
		}
		if left := k.Cgroup.Names(); (len(left) > 0) != c.leaves {
			t.Errorf("%q leaves %q", argv, left)
		}
	}
}

// buildsFirst runs the step that clones fini and builds it, with a repository and a make of its own.
func buildsFirst(t *testing.T, text string) {
	git := need.Program(t, "git")
	step := fromYAML(t, text).([]any)[0]
	if shell := at(t, step, "shell"); shell != "bash" {
		t.Errorf("the shell is %v", shell)
	}
	k := recipes.NewDir(t, map[string]string{
		"make": `[ "$1 $3" = "-C build" ] && mkdir "$2/bin" && cp "$2/main.go" "$2/bin/fini"`,
		"sudo": `echo "$1 $3" && test -f "$2"`,
	})
	repository := filepath.Join(k.Dir, "seed-126c5d8a/fini")
	k.File("seed-126c5d8a/fini/main.go", "package main\n", 0o644)
	rig.Run(t, git, "init", "-q", repository)
	rig.Run(t, git, "-C", repository, "add", ".")
	rig.Run(t, git, "-C", repository, "-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false", "commit", "-q", "-m", "a commit")
	k.Env = append(k.Env, "GITHUB_SERVER_URL=file://"+k.Dir, "RUNNER_TEMP="+t.TempDir())
	if out := k.MustLeaveNothing(k.Start("/bin/sh", "-ec", at(t, step, "run").(string)), 0); out != "install /usr/local/bin/\n" {
		t.Errorf("it says %q", out)
	}
}

func composed(t *testing.T, text string) {
	service := at(t, fromYAML(t, text), "services", "server")
	if exec.Command("docker", "compose", "version").Run() == nil {
		file := filepath.Join(t.TempDir(), "compose.yaml")
		rig.Put(t, file, text, 0o644)
		containers.Docker(t, "compose", "-f", file, "config", "-q")
	}
	if at(t, service, "init") != false {
		t.Error("init is not off")
	}
	entry := words(t, at(t, service, "entrypoint"))
	grace := strings.TrimSuffix(at(t, service, "stop_grace_period").(string), "s")
	flags := []string{"--init=false", "--stop-timeout", grace, "--entrypoint", entry[0]}
	for name, value := range at(t, service, "environment").(map[string]any) {
		flags = append(flags, "-e", fmt.Sprintf("%s=%v", name, value))
	}
	flags = append(append(flags, built(t, imageOfServer)), entry[1:]...)
	mustStopWell(t, containers.StartContainer(t, append(flags, words(t, at(t, service, "command"))...)...))
}

// PID 1 of the container reaps nothing.
func execProbe(t *testing.T, text string) {
	probe := at(t, fromYAML(t, text), "readinessProbe")
	line := words(t, at(t, probe, "exec", "command"))
	for i := range line {
		line[i] = strings.Replace(line[i], "3s", "300ms", 1)
	}
	c := containers.StartContainer(t, "--entrypoint", "sleep", built(t, imageOfServer), "1000")
	out, err := containers.Client(t, append([]string{"exec", c.Name}, line...)...).CombinedOutput()
	if exit, ok := err.(*exec.ExitError); !ok || exit.ExitCode() != 124 {
		t.Errorf("the probe ends with %v: %s", err, out)
	}
	if n := c.Zombies(); n > 0 {
		t.Errorf("%d zombies", n)
	}
	if list := c.Exec("ps"); strings.Contains(list, "check-health") || strings.Count(list, "sleep") != 1 {
		t.Errorf("left of the probe: %s", list)
	}
	c.Exec("sh", "-c", "sleep 0.01 & exit")
	rig.Until(t, "without fini there is a zombie", func() bool { return c.Zombies() == 1 })
}

// kubernetesInit runs the pod's two containers by hand.
func kubernetesInit(t *testing.T, text string) {
	pod := fromYAML(t, text)
	container, first := at(t, pod, "spec", "containers", 0), at(t, pod, "spec", "initContainers", 0)
	command := words(t, at(t, container, "command"))
	mount := at(t, container, "volumeMounts", 0)
	if at(t, pod, "kind") != "Pod" || at(t, mount, "name") != at(t, pod, "spec", "volumes", 0, "name") ||
		!slices.Equal(command, []string{at(t, mount, "mountPath").(string) + "/fini", "--"}) {
		t.Errorf("fini is not where the pod looks for it:\n%s", text)
	}
	server := built(t, imageOfServer)
	volume := containers.UniqueName("volume")
	containers.Docker(t, "volume", "create", volume)
	t.Cleanup(func() { containers.Docker(t, "volume", "rm", volume) })
	run := func(container any, image string, more ...string) []string {
		command := words(t, at(t, container, "command"))
		mount := volume + ":" + at(t, container, "volumeMounts", 0, "mountPath").(string)
		return slices.Concat([]string{"-v", mount, "--entrypoint", command[0], image}, command[1:], more)
	}
	containers.Docker(t, append([]string{"run", "--rm", "--network", "none"}, run(first, example.Fini)...)...)
	c := containers.StartContainer(t, run(container, server, words(t, at(t, container, "args"))...)...)
	c.MustBeFini()
	mustStopWell(t, c)
}

// Each server is started as its host would, with a stand-in that says what it was called with
// and echoes its input. TestMCPConfigByOthers asks a real one.
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
	echo := `echo "$@"; setsid sleep 1000 & exec cat`
	for _, s := range servers {
		k := recipes.NewDir(t, map[string]string{
			"npx":  `if [ "$2" = fini-init ]; then shift 2; exec fini "$@"; fi; ` + echo,
			"node": echo, "uvx": echo, "docker": echo,
		})
		l := k.Start(append([]string{s.Command}, s.Args...)...)
		got := l.Out.Want("")
		if !strings.HasSuffix(strings.Join(s.Args, " "), " "+got) || !slices.Contains(s.Args, "-i") {
			t.Errorf("%q starts %q", s.Args, got)
		}
		_, _ = io.WriteString(l.Stdin, "hello\n")
		l.Out.Want("hello")
		_ = l.Stdin.Close()
		k.MustLeaveNothing(l, 0)
	}
}

// debianPython is the one for which Debian's packages are.
func debianPython(t *testing.T, module string) string {
	t.Helper()
	const python = "/usr/bin/python3"
	need.That(t, exec.Command(python, "-c", "import "+module).Run() == nil, "Debian's python3-"+module)
	return python
}

func agentsShell(t *testing.T, text string) {
	need.Program(t, "bash")
	k := recipes.NewDir(t, nil)
	file := k.File("agent.py", text+`
result = shell('''setsid sleep 1000 & sleep 1001 >/dev/null 2>&1 & `+rig.UntilSleeps+`; echo $!; echo done''')
print(result.stdout, end="")
print("status", result.returncode)
`, 0o644)
	l := k.Start(need.Program(t, "python3"), file)
	pid := l.Out.WantPID("")
	l.Out.Want("done")
	l.Out.Want("status 0")
	l.MustHaveStatus(0)
	if left := k.Cgroup.Alive(); !slices.Equal(left, []int{pid}) {
		t.Errorf("alive are %v, want %d alone, whose output is elsewhere", k.Cgroup.Names(), pid)
	}
}

func systemdUnit(t *testing.T, text string) {
	analyze := need.Program(t, "systemd-analyze")
	k := recipes.NewDir(t, nil)
	command := regexp.MustCompile(`(?m)^ExecStart=(.*)$`).FindStringSubmatch(text)
	if command == nil {
		t.Fatal("no ExecStart")
	}
	line := strings.NewReplacer("/usr/local/bin/fini", rig.Fini, "/usr/local/bin/server", "/bin/sleep", "--port=80", "1000").Replace(command[1])
	unit := k.File("example.service", strings.Replace(text, command[1], line, 1), 0o644)
	if out, err := exec.Command(analyze, "verify", unit).CombinedOutput(); err != nil || strings.Contains(string(out), "example.service") {
		t.Errorf("systemd-analyze: %v: %s", err, out)
	}
	// systemd sends SIGTERM to fini alone.
	l := k.Start(strings.Fields(line)...)
	l.Caught()
	l.Signal(syscall.SIGTERM)
	k.MustLeaveNothing(l, 128+int(syscall.SIGTERM))
}

// cron gives the sixth field of a line to sh, with a few variables.
func cronJob(t *testing.T, text string) {
	fields := regexp.MustCompile(`^PATH=(\S+)\n(?:[0-9*/,-]+ ){5}(.*)\n$`).FindStringSubmatch(text)
	if fields == nil {
		t.Fatalf("no line of a crontab: %q", text)
	}
	k := recipes.NewDir(t, map[string]string{"backup": recipes.Leaky})
	// What `make install` installs, and the backup, are in /usr/local/bin.
	path := strings.Replace(fields[1], "/usr/local/bin", filepath.Join(k.Dir, "bin")+":"+filepath.Dir(rig.Fini), 1)
	k.Env = []string{"HOME=/", "LOGNAME=root", "SHELL=/bin/sh", "PATH=" + path}
	if out := k.MustLeaveNothing(k.Start("/bin/sh", "-c", fields[2]), 0); out != "done\n" {
		t.Errorf("the job says %q", out)
	}
}

// sshHost is a real sshd, which the client finds by this configuration under the name host. Its commands have this PATH.
func sshHost(t *testing.T, dir, path string) (ssh, config string) {
	t.Helper()
	ssh = need.Program(t, "ssh")
	sshd, err := exec.LookPath("/usr/sbin/sshd")
	need.That(t, err == nil, "sshd (openssh-server)")
	need.Root(t, "for sshd")
	rig.NoError(t, os.MkdirAll("/run/sshd", 0o755))
	for _, name := range []string{"host", "user"} {
		rig.Run(t, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", filepath.Join(dir, name))
	}
	server := rig.Put(t, filepath.Join(dir, "sshd_config"), fmt.Sprintf("HostKey %[1]s/host\nAuthorizedKeysFile %[1]s/user.pub\nStrictModes no\n"+
		"PermitRootLogin yes\nPidFile none\nUsePAM no\nSetEnv PATH=%[2]s HOME=%[1]s\n", dir, strings.TrimPrefix(path, "PATH=")), 0o644)
	// sshd -i speaks on its standard streams, so that no port is needed.
	return ssh, rig.Put(t, filepath.Join(dir, "ssh_config"), fmt.Sprintf("Host host\nIdentityFile %[1]s/user\nStrictHostKeyChecking no\n"+
		"UserKnownHostsFile /dev/null\nLogLevel ERROR\nUser root\nProxyCommand %[2]s -i -e -f %[3]s 2>/dev/null\n", dir, sshd, server), 0o644)
}

// The client is killed, and the connection with it.
func overSSH(t *testing.T, text string) {
	k := recipes.NewDir(t, map[string]string{"make": "setsid sleep 1000 & " + serving})
	ssh, client := sshHost(t, k.Dir, k.Env[len(k.Env)-1])
	argv := strings.Fields(text)
	for _, sig := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM} {
		l := k.Start(append([]string{ssh, "-F", client}, argv[1:]...)...)
		l.Out.Want("ready")
		l.Signal(sig)
		if got := l.Status(); got != 128+int(sig) && got != 255 {
			t.Errorf("ssh ends with %d: %s", got, l.Err.Text())
		}
		k.MustBeEmpty()
	}
}

// Each line's shell is gone at once; the server stays. Without what the line says it ends with its shell.
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
				script = strings.Replace(strings.Replace(script, "-p none ", "", 1), "nohup ", "", 1)
				// So may a shell that ends at once. Of this one fini knows.
				script = strings.Replace(script, "&", `& read end <"$SHELL_GATE"`, 1)
			}
			l := k.Start("/bin/sh", "-c", script)
			if !asked {
				l.Out.Want("ready")
				shell.Open(t)
			}
			if got := l.Status(); got != 0 {
				t.Errorf("%s: status %d", script, got)
			}
			if !asked {
				k.MustBeEmpty()
				continue // there is no server to ask
			}
			l.Out.Want("ready")
			if len(k.Cgroup.Alive()) == 0 {
				t.Errorf("%s: the server is gone", script)
			}
			g.Open(t)
			l.Out.Whole() // to EOF
			k.MustBeEmpty()
		}
	}
}

func makesShell(t *testing.T, text string) {
	make := need.Program(t, "make")
	k := recipes.NewDir(t, map[string]string{"start-server": "exec setsid sleep 1000", "run-tests": "echo tested"})
	k.File("Makefile", text, 0o644)
	if out := k.MustLeaveNothing(k.Start(make, "-s", "test"), 0); out != "tested\n" {
		t.Errorf("make says %q", out)
	}
	k.File("Makefile", strings.Replace(text, "run-tests", "exit 3", 1), 0o644)
	k.MustLeaveNothing(k.Start(make, "-s", "test"), 2)
}

func npmScript(t *testing.T, text string) {
	npm := need.Program(t, "npm")
	k := recipes.NewDir(t, nil)
	k.File("bin/fini-sh", text, 0o755)
	if _, shipped, _ := strings.Cut(rig.ReadFile(t, "../packaging/fini-sh"), `/fini"`); shipped == "" || !strings.HasSuffix(text, "exec fini"+shipped) {
		t.Error("the packages have a fini-sh that does something else")
	}
	k.File(".npmrc", recipes.BlockWith(t, "../docs/recipes.md", "script-shell="), 0o644)
	k.File("package.json", `{"name": "example", "version": "1.0.0", "scripts": {"test": "`+recipes.Leaky+`; exit 3"}}`, 0o644)
	if out := k.MustLeaveNothing(k.Start(npm, "test", "--silent"), 3); out != "done\n" {
		t.Errorf("npm says %q", out)
	}
}

func pytestFixture(t *testing.T, text string) {
	python := debianPython(t, "pytest")
	k := recipes.NewDir(t, nil)
	file := k.File("test_it.py", text+`
def test_hangs(server):
    import time
    print("hanging", flush=True)
    time.sleep(1000)
`, 0o644)
	pytest := []string{python, "-m", "pytest", "-q", "-s", "-p", "no:cacheprovider", file}
	k.MustLeaveNothing(k.Start(append(pytest, "-k", "not hangs")...), 0)
	l := k.Start(append(pytest, "-k", "hangs")...)
	l.Out.Want("hanging")
	l.Signal(syscall.SIGKILL)
	k.MustBeEmpty()
}

// mustNameTest runs tests that leave a server behind, and wants the line to name the test.
func mustNameTest(t *testing.T, name string, files map[string]string, argv ...string) {
	t.Helper()
	k := recipes.NewDir(t, map[string]string{"start-server": "exec sleep 1000"})
	k.Env = append(k.Env, "GOCACHE="+recipes.GoCache(t))
	for file, text := range files {
		k.File(file, text, 0o644)
	}
	l := k.Start(append([]string{"fini", "--orphans-exit=9", "--"}, argv...)...)
	k.MustLeaveNothing(l, 9)
	if said := l.Err.Whole(); !strings.Contains(said, "started in test "+name+"\n") && !strings.Contains(said, " in test "+name+"\n") {
		t.Errorf("fini says %q, and nothing of %s", said, name)
	}
}

// nodeProgram is a program of a package for the tests, and the folder of packages.
func nodeProgram(t *testing.T, name string) (program, modules string) {
	t.Helper()
	program = need.Module(t, ".bin/"+name)
	return program, filepath.Dir(filepath.Dir(program))
}

func leakInJest(t *testing.T, text string) {
	jest, modules := nodeProgram(t, "jest")
	mustNameTest(t, "shop.test.js::shop checkout", map[string]string{
		"fini-environment.js": strings.Replace(text, "'jest-environment-node'", "'"+modules+"/jest-environment-node'", 1),
		"jest.config.json":    `{"testEnvironment": "./fini-environment.js", "watchman": false}`,
		"shop.test.js": "const { spawn } = require('child_process');\n" +
			"describe('shop', () => test('checkout', () => { spawn('start-server', { detached: true, stdio: 'ignore' }).unref(); }));\n",
	}, jest, "--no-cache", "--ci")
}

// leakRanking merges the reports of runs in which two tests leak, one of them twice as often.
func leakRanking(t *testing.T, text string) {
	need.Program(t, "jq")
	k := recipes.NewDir(t, map[string]string{"server": "exec sleep 1000"})
	for i, tests := range [][]string{{"checkout", "login"}, {"checkout"}} {
		script := ""
		for _, name := range tests {
			script += "FINI_TEST='shop " + name + "' sleep 1000 & " + rig.UntilSleeps + "; "
		}
		report := k.File(fmt.Sprintf("reports/%d.json", i), "", 0o644)
		k.MustLeaveNothing(k.Start("fini", "-q", "--linger=0", "--report="+report, "--", "sh", "-c", script), 0)
	}
	want := "2\tshop checkout\tsleep\n1\tshop login\tsleep\n"
	if out := k.MustLeaveNothing(k.Start("/bin/sh", "-c", text), 0); out != want {
		t.Errorf("the ranking is %q, want %q", out, want)
	}
}

// leaksAsJUnit makes a suite of the reports of two runs, with a leak of an odd test that has a child, and one of no test.
// What it wants is valid by Jenkins' junit-10.xsd (of its xunit plugin).
func leaksAsJUnit(t *testing.T, text string) {
	need.Program(t, "jq")
	k := recipes.NewDir(t, map[string]string{"a&b": "sleep 1000 & " + rig.UntilSleeps + "; : >ready; read x <fifo"})
	const odd = `a<b> & "c" 'd' ]]> \x01 é`
	for i, script := range []string{
		"mkfifo fifo; FINI_TEST=$(printf '" + strings.ReplaceAll(odd, "'", `'\''`) + "') 'a&b' & until test -e ready && grep -q '^State:.S' /proc/$!/status; do sleep 0.01; done",
		"sleep 1000 & " + rig.UntilSleeps,
	} {
		report := k.File(fmt.Sprintf("reports/%d.json", i), "", 0o644)
		k.MustLeaveNothing(k.Start("fini", "-q", "--linger=0", "--report="+report, "--", "bash", "-c", script), 0)
	}
	k.MustLeaveNothing(k.Start("/bin/sh", "-c", text), 0)
	made := regexp.MustCompile(`pid \d+`).ReplaceAllString(rig.ReadFile(t, filepath.Join(k.Dir, "leaks.xml")), "pid N")
	want := `<testsuite name="leaks" tests="2" failures="2" errors="0">
<testcase classname="leaks" name="a&lt;b&gt; &amp; &quot;c&quot; &#39;d&#39; ]]&gt; ? é">
<failure message="left running: /bin/sh DIR/bin/a&amp;b">pid N, in DIR, ended: SIGTERM</failure></testcase>
<testcase classname="leaks" name="no test is known">
<failure message="left running: sleep 1000">pid N, in DIR, ended: SIGTERM</failure></testcase>
</testsuite>
`
	// An apostrophe has two names, of which each jq has one.
	if made = strings.NewReplacer(k.Dir, "DIR", "&apos;", "&#39;").Replace(made); made != want {
		t.Errorf("it makes %s\nwant %s", made, want)
	}
}
