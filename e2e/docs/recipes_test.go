package docs

import (
	"cmp"
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
	"github.com/seed-126c5d8a/fini/internal/tests/need"
	"github.com/seed-126c5d8a/fini/internal/tests/procfs"
)

func TestMain(m *testing.M) { rig.MainOfOthers(m) }

// The recipes that the pages show are run as they stand there, with the real program where it
// can be had, and with a stand-in for what is the reader's own: a server, tests, a backup.

// A trial does what a page tells its reader to do: a script runs in a folder with the reader's own programs and files, finds
// the block in $BLOCK, and leaves nothing.
type trial struct {
	needs     []string          // programs
	npm       string            // "fini-init" and its modules, or the folder or program of a package for the tests
	standIns  map[string]string // the reader's programs
	files     map[string]string // and files
	yaml      []string          // where in the block that is which is run
	changes   []string          // of the block: the old and the new text, in turn
	as        string            // the file that the block becomes
	env       []string
	script    string // by default it runs the block
	meanwhile func(t *testing.T, l *rig.Life)
	status    int
	out       string   // all of stdout; "" for any
	says      []string // parts of stdout and stderr
	leaves    string   // a pattern for the names of the processes that go on
	later     bool     // what is left then ends soon
}

const inPlace = `exec sh -c "exec $BLOCK"`

func (tr trial) run(t *testing.T, text string) {
	t.Helper()
	for _, program := range tr.needs {
		need.Program(t, program)
	}
	k := recipes.NewDir(t, tr.standIns)
	if ours := tr.npm == "fini-init"; ours || strings.HasPrefix(tr.npm, "@") {
		k = recipes.WithModules(t, tr.standIns)
		if !ours {
			rig.NoError(t, os.Symlink(need.Module(t, tr.npm), filepath.Join(k.Dir, "node_modules", tr.npm)))
		}
	} else if tr.npm != "" {
		modules := filepath.Dir(filepath.Dir(need.Module(t, ".bin/"+tr.npm)))
		rig.NoError(t, os.Symlink(modules, filepath.Join(k.Dir, "node_modules")))
	}
	if tr.yaml != nil {
		text = yaml[string](t, text, tr.yaml...)
	}
	for i := 0; i < len(tr.changes); i += 2 {
		if !strings.Contains(text, tr.changes[i]) {
			t.Fatalf("no %q in %s", tr.changes[i], text)
		}
		text = strings.Replace(text, tr.changes[i], tr.changes[i+1], 1)
	}
	for name, text := range tr.files {
		k.File(name, text, 0o755)
	}
	if tr.as != "" {
		k.File(tr.as, text, 0o755)
	}
	k.Env = append(append(k.Env, "BLOCK="+text, "GOFLAGS=-vet=off"), tr.env...)
	l := k.Start("/bin/sh", "-c", cmp.Or(tr.script, `exec sh -c "$BLOCK"`))
	if tr.meanwhile != nil {
		tr.meanwhile(t, l)
	}
	out := strings.NewReplacer(k.Dir, "DIR").Replace(l.Out.Whole()) // to EOF
	if got := l.Status(); got != tr.status {
		t.Errorf("status %d, want %d", got, tr.status)
	}
	if tr.later {
		k.MustBeEmpty()
	}
	left := k.Cgroup.Names()
	others := slices.DeleteFunc(slices.Clone(left), func(name string) bool {
		return tr.leaves != "" && regexp.MustCompile(" ("+tr.leaves+")").MatchString(name)
	})
	if len(others) > 0 || (len(left) > 0) != (tr.leaves != "") {
		t.Errorf("still running: %q, want %q", left, tr.leaves)
	}
	said := out + l.Err.Whole()
	if tr.out != "" && out != tr.out {
		t.Errorf("stdout is %q, want %q", out, tr.out)
	}
	for _, want := range tr.says {
		if !strings.Contains(said, want) {
			t.Errorf("nothing says %q", want)
		}
	}
	if t.Failed() {
		t.Log(said)
	}
}

// each runs several tests with a block.
func each(tests ...func(t *testing.T, text string)) func(t *testing.T, text string) {
	return func(t *testing.T, text string) {
		for _, test := range tests {
			test(t, text)
		}
	}
}

// A recipe is the test of each block that has all of these words.
type recipe struct {
	kind, has string
	quick     bool
	run       func(t *testing.T, text string)
}

const (
	quick, long = true, false
	stopping    = "fini: stopping leftover "
	// A serving one leaves a process behind, says that it is ready, ends at SIGTERM, and says so.
	serving = "setsid sleep 1000 & " + rig.UntilSleeps +
		`; trap 'echo "$0 got TERM"; exit 0' TERM; echo ready; while :; do sleep 1000 & wait; done`
)

var recipeTests = []recipe{
	{"sh", "make demo", quick, shellParses}, // see TestPagesCommandLines
	{"text", "setsid sleep 60", quick, session},
	{"text", "REASON\n", quick, saidLines},
	{"text", "--timeout=TIME", quick, saidLines},
	{"text", "stopped NUMBER", quick, saidLines},
	{"text", "--install: CAUSE", quick, saidLines},
	{"sh", "'sleep 60 & echo tests passed' | cat", quick, waitsForLeak},
	{"sh", "git bisect", quick, bisects},
	{"sh", "-- bats", long, leakThatBatsAwaits},
	{"sh", "trap 'kill $server", quick, stopsInTrap},
	{"sh", "--allow-orphan=sccache -- make", quick, allowed},
	{"sh", "KEEP=web setsid server", quick, keeps},
	{"sh", "unshare -U", quick, inNamespace},
	{"sh", "bwrap --dev-bind", quick, inNamespace},
	{"sh", "dpkg -i", quick, shellParses}, // see releaseInstalled
	{"dockerfile", "HEALTHCHECK", quick, healthCheck},
	{"dockerfile", "COPY --from=fini", quick, dockerfile},
	{"yaml", "- run: fini", quick, leakyStep},
	{"yaml", "git clone", quick, each(mustBeBash, stepParses("0", "run"))},
	{"yaml", "shell: bash", quick, serverForLaterSteps},
	{"yaml", "shell: \"fini", quick, stepParses("jobs", "tests", "steps", "-1", "run")},
	{"yaml", "matrix:", quick, githubMatrix},
	{"yaml", "script:", quick, stepParses("tests", "script", "0")},
	{"yaml", "entrypoint:", quick, composeParses},
	{"yaml", "--install=", quick, commandParses("spec", "containers", "0", "command")},
	{"yaml", "exec:", quick, commandParses("readinessProbe", "exec", "command")},
	{"json", "", quick, mcpServers},
	{"python", "def shell(", quick, agentsShell},
	{"ini", "[Service]", quick, systemdUnit},
	{"cron", "", quick, func(t *testing.T, text string) { shellParses(t, text[strings.LastIndex(text, "*")+1:]) }},
	{"sh", "ssh host", long, overSSH},
	{"sh", "setsid -f", quick, inBackground},
	{"make", ".SHELLFLAGS", quick, makesShell},
	{"sh", `exec fini -q -- sh "$@"`, quick, npmScript},
	{"ini", "script-shell", quick, func(*testing.T, string) {}}, // see npmScript
	{"python", "@pytest.fixture", quick, pytestFixture},
	{"js", "process.platform === 'linux'", quick, insistsOnLinux},
	{"js", "// npm install", quick, wraps},
	{"python", "server = StdioServerParameters", quick, wrapsInPython},
	{"js", "require('fini-init')", quick, embedsNode},
	{"js", "StdioClientTransport", long, embedsTransport},
	{"python", "import fini_init", quick, embedsPython},
	{"go", "func Run(", long, embedsGo},
	{"go", "orphans.Adopt", long, withoutTheBinary},
	{"js", "handleTestEvent", long, leakInJest},
	{"js", "beforeEach(({ task })", long, leakInVitest},
	{"js", "treekill", long, underPM2},
	{"sh", "fini -t 20m --orphans-exit=1", quick, stepThatHangs},
	{"sh", "fini --orphans-exit=1 -- make e2e", quick, trial{standIns: leakyMake, status: 1,
		says: []string{stopping, "exit 1 instead of 0"}}.run},
	{"sh", "--allow-orphan=adb", long, daemonsStay},
	{"sh", "--orphans=leave --report=reports", quick, audits},
	{"sh", "podman run -d", long, containerInStep},
	{"yaml", "--no-foreground", quick, stepParses("steps", "0", "command")},
	{"sh", "go test -exec \"sh", long, auditsGoTest},
	{"sh", "go test -exec", long, leakInGoTest},
	{"toml", "runner", long, leakInCargo},
	{"sh", "ctest", long, leakInCTest},
	{"sh", "--entrypoint=/fini example -P", long, sandbox},
	{"sh", "server.pid", quick, keptServer},
	{"sh", "unshare -pf", quick, inUnshare},
	{"sh", "FINI_ORPHANS_GRACE=20s --stop-timeout", long, timeToStop},
	{"dockerfile", "celery", long, builds},
	{"yaml", "command: [\"/fini\", \"--\"]", quick, commandParses("containers", "0", "command")},
	{"ini", "[program:server]", long, underSupervisord},
	{"sh", "exec 2>&1\nexec fini", long, underRunit},
	{"sh", "start-stop-daemon", long, underStartStopDaemon},
	{"sh", "fini -k 3s --grace=3s -- server", long, supervised},
	{"sh", "--idle=1h", quick, forgotten},
	{"sh", "fini -i -k 5s --grace=1s node", quick, atTheEndOfInput},
	{"sh", "--report=hang.xml", quick, stepHangs},
	{"sh", "jq -nr", quick, leakRanking},
	{"sh", "grep -rn", quick, migrationGrep},
	{"diff", "FROM ", long, migratesImage},
	{"diff", "docker run", long, migratesRun},
}

// example is what the images of the recipes are made of. It is built once, and gone when the last recipe is over.
var example containers.ExampleImage

func TestRecipes(t *testing.T) {
	t.Parallel()
	if containers.DockerWorks(t) {
		example = containers.BuildExample(t)
	}
	seen, used := map[string]bool{}, map[int]bool{}
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
			used[n] = true
			rig.Case(t, recipeTests[n].quick, b.Section, func(t *testing.T) {
				t.Parallel()
				recipeTests[n].run(t, b.Text)
			})
		}
	}
	for n, r := range recipeTests {
		if !used[n] { // a row before it takes its block
			t.Errorf("no block of %q with %q is left for its test", r.kind, r.has)
		}
	}
}

// debianPython is the one for which Debian's packages are.
func debianPython(t *testing.T, module string) string {
	t.Helper()
	const python = "/usr/bin/python3"
	need.That(t, exec.Command(python, "-c", "import "+module).Run() == nil, "Debian's python3-"+module)
	return python
}

// yaml is what a path of names and numbers leads to in a block.
func yaml[T any](t *testing.T, text string, path ...string) (value T) {
	t.Helper()
	cmd := exec.Command(debianPython(t, "yaml"), append([]string{"-c", `
import json, sys, yaml
value = yaml.safe_load(sys.stdin)
for step in sys.argv[1:]:
    value = value[int(step) if isinstance(value, list) else step]
json.dump(value, sys.stdout)`}, path...)...)
	cmd.Stdin = strings.NewReader(text)
	rig.MustParse(t, []byte(rig.Succeed(t, cmd)), &value)
	return value
}

// A block of which no test has the program, such as a runner of GitHub's, is one that this program could read: its commands
// are a shell's, and what they say to fini are flags of fini's.

func shellParses(t *testing.T, text string) {
	t.Helper()
	rig.Succeed(t, exec.Command("bash", "-n", "-c", text))
	for _, m := range regexp.MustCompile(`(?m)\bfini (.*?)--( |$)`).FindAllStringSubmatch(text, -1) {
		finiTakes(t, strings.Fields(m[1]))
	}
}

// finiTakes asserts that these are flags of fini's. With --version in front they are read, and no command is started.
func finiTakes(t *testing.T, flags []string) {
	t.Helper()
	rig.Succeed(t, exec.Command(rig.Fini, append([]string{"--version"}, flags...)...))
}

func stepParses(path ...string) func(t *testing.T, text string) {
	return func(t *testing.T, text string) { shellParses(t, yaml[string](t, text, path...)) }
}

func commandParses(path ...string) func(t *testing.T, text string) {
	return func(t *testing.T, text string) { mustBeFini(t, yaml[[]string](t, text, path...)) }
}

func mustBeFini(t *testing.T, argv []string) {
	t.Helper()
	if filepath.Base(argv[0]) != "fini" {
		t.Fatalf("it runs %q", argv)
	}
	finiTakes(t, argv[1:])
}

func composeParses(t *testing.T, text string) {
	mustBeFini(t, yaml[[]string](t, text, "services", "server", "entrypoint"))
	if yaml[bool](t, text, "services", "server", "init") {
		t.Error("init is not off")
	}
}

// What README and docs/recipes.md show.

var leakyMake = map[string]string{"make": recipes.Leaky}

// session runs the lines of README's session that begin with a prompt: without fini the leftover holds the pipe, and with fini
// the reader's end comes long before it would exit.
func session(t *testing.T, text string) {
	lines := regexp.MustCompile(`(?m)^\$ time (.*) \| cat$`).FindAllStringSubmatch(text, -1)
	said := regexp.MustCompile(`(?m)^fini: stopping leftover \d+ \(sleep \d+\), detached, which holds stdout`)
	if len(lines) != 2 || strings.TrimPrefix(lines[1][1], "fini -- ") != lines[0][1] || !said.MatchString(text) {
		t.Fatalf("the session runs %q", lines)
	}
	trial{
		changes: []string{"sleep 60 &", "sleep 1000 & echo $! >pid;"},
		script:  `sh -c "$BLOCK" | { read line; echo $line; grep . pid; cat; echo EOF; }`,
		meanwhile: func(t *testing.T, l *rig.Life) {
			l.Out.Want("tests passed")
			rig.MustKill(t, l.Out.WantPID(""), syscall.SIGKILL) // which has the pipe open: there is no EOF before
			l.Out.Want("EOF")
		},
	}.run(t, lines[0][1])
	// It is named by what it becomes. The line is in single quotes.
	sleeps := "sleep 1000 & " + strings.ReplaceAll(rig.UntilSleeps, "'", "") + ";"
	trial{changes: []string{"sleep 60 &", sleeps}, script: `bash -c "$BLOCK | cat" 2>said; grep -E '` +
		strings.ReplaceAll(said.String()[4:], `\d`, "[0-9]") + `' said >&2`,
		out: "tests passed\n"}.run(t, lines[1][1])
}

// stepThatHangs is README's: tests that leave a server behind, and tests that don't end.
var stepThatHangs = each(
	trial{standIns: leakyMake, script: `sh -c "$BLOCK"; status=$?; grep -c "<failure" leaks.xml; exit $status`, status: 1, out: "done\n1\n",
		says: []string{stopping, "exit 1 instead of 0"}}.run,
	trial{standIns: map[string]string{"make": "exec sleep 1000"}, changes: []string{"20m", "1s"}, status: 124,
		says: []string{"still running"}}.run,
)

// inNamespace: nothing stays after the command's exit, SIGTERM for fini itself is a request to end, and SIGKILL for the
// program that has made the namespace is the end of all in it.
func inNamespace(t *testing.T, text string) {
	rig.NeedPidNamespace(t)
	maker, _, _ := strings.Cut(text, " ")
	trial{needs: []string{maker}, standIns: leakyMake, out: "done\n"}.run(t, text)
	waits := map[string]string{"make": `trap "echo cleaned up; exit 7" TERM; (setsid sleep 1000 &); echo ready; while :; do sleep 0.01; done`}
	trial{standIns: waits, script: inPlace, status: 7, says: []string{"cleaned up\n"}, meanwhile: func(t *testing.T, l *rig.Life) {
		l.Out.Want("ready")
		rig.MustKill(t, procfs.ChildrenOf(t, l.PID())[0], syscall.SIGTERM)
	}}.run(t, text)
	trial{standIns: waits, script: inPlace, status: 137, later: true, meanwhile: func(_ *testing.T, l *rig.Life) {
		l.Out.Want("ready")
		l.Signal(syscall.SIGKILL)
	}}.run(t, text)
}

var makesShell = each(
	trial{needs: []string{"make"}, standIns: startsServer, as: "Makefile", script: "exec make -s test", out: "tested\n"}.run,
	trial{standIns: startsServer, as: "Makefile", changes: []string{"run-tests", "exit 3"}, script: "exec make -s test", status: 2}.run,
)

var startsServer = map[string]string{"start-server": "exec setsid sleep 1000", "run-tests": "echo tested"}

func npmScript(t *testing.T, text string) {
	if _, shipped, _ := strings.Cut(rig.ReadFile(t, "../packaging/fini-sh"), `/fini"`); shipped == "" ||
		!strings.HasSuffix(text, "exec fini"+shipped) {
		t.Error("the packages have a fini-sh that does something else")
	}
	trial{needs: []string{"npm"}, as: "bin/fini-sh", files: map[string]string{
		".npmrc":       recipes.BlockWith(t, "../docs/recipes.md", "script-shell="),
		"package.json": `{"name": "example", "version": "1.0.0", "scripts": {"test": "` + recipes.Leaky + `; exit 3"}}`,
	}, script: "exec npm test --silent", out: "done\n", status: 3}.run(t, text)
}

// What docs/hosts.md shows and says, with Node, Python and Go as they are.

var (
	// A server that leaves a process behind, ends at the end of its standard input, and has the report say so.
	embedded = map[string]string{"server": "sleep 1000 >/dev/null 2>&1 & until grep -qx sleep /proc/$!/comm; do sleep 0.01; done; cat >/dev/null; exit 3"}
	exits3   = map[string]string{"server": "exit 3"}
	inNode   = []string{"wrap('node', ['server.js']", "wrap('server', []"}
	inPython = []string{`wrap("node", ["server.js"]`, `wrap("server", []`}
	asMac    = map[string]string{"mac.js": "Object.defineProperty(process, 'platform', {value: 'darwin'})"}
)

// Another system has no fini, and the command runs as it is.
var embedsNode = each(
	trial{needs: []string{"node"}, npm: "fini-init", standIns: embedded, changes: inNode, as: "host.js", script: "exec node host.js",
		out: "3 null [ 'sleep 1000' ]\n"}.run,
	trial{npm: "fini-init", standIns: exits3, changes: inNode, as: "host.js", files: asMac,
		script: "exec node --require ./mac.js host.js 2>&1",
		out:    "fini: it needs Linux, and this is darwin: server runs without it\n3 null \n"}.run,
)

var embedsPython = each(
	trial{needs: []string{"python3"}, npm: "fini-init", standIns: embedded, changes: inPython, as: "host.py",
		script: "exec python3 host.py", out: "3 ['sleep 1000']\n"}.run,
	trial{npm: "fini-init", standIns: exits3, changes: inPython, as: "host.py", script: "exec python3 host.py",
		env: []string{"FINI_BINARY=/no/such/file"}, out: "3 \n", says: []string{": server runs without it\n"}}.run,
)

// embedsTransport connects the SDK's client to a real server, closes it, and reads the report.
var embedsTransport = trial{
	needs: []string{"node"}, npm: "@modelcontextprotocol",
	changes: []string{"'server.js'", "'node_modules/@modelcontextprotocol/server-everything/dist/index.js'"}, as: "transport.mjs",
	files: map[string]string{"host.mjs": `import { readFileSync } from 'node:fs';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { transport } from './transport.mjs';
const client = new Client({ name: 'host', version: '1' });
await client.connect(transport);
await client.close();
console.log(JSON.parse(readFileSync('server.json', 'utf8')).leftovers.length);
`}, script: "exec node host.mjs", out: "0\n",
}.run

var embedsGo = trial{needs: []string{"go"}, standIns: embedded, as: "host.go",
	files: map[string]string{"go.mod": "module host\n\ngo 1.21\n", "host_test.go": `package host

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
`}, script: "exec go test -count=1 ."}.run

// withoutTheBinary is a module that requires this one, and that has no fini.
func withoutTheBinary(t *testing.T, text string) {
	root, err := filepath.Abs("..")
	rig.NoError(t, err)
	trial{needs: []string{"go"}, as: "host.go", env: []string{"GOFLAGS=-mod=mod", "GOPROXY=off"},
		files: map[string]string{"go.mod": "module host\n\ngo 1.26.0\n\nrequire github.com/seed-126c5d8a/fini v0.0.0\n\n" +
			"replace github.com/seed-126c5d8a/fini => " + root + "\n",
			"go.sum": rig.ReadFile(t, "../go.sum"), "host_test.go": `package host

import (
	"os/exec"
	"testing"
)

func TestRunAlone(t *testing.T) {
	if err := RunAlone(exec.Command("sh", "-c", "setsid sleep 1000 & exit 3")); err == nil || err.Error() != "exit status 3" {
		t.Error(err)
	}
}
`}, script: "exec go test -count=1 ."}.run(t, text)
}

// insistsOnLinux has no fini to find, on Linux and elsewhere.
var insistsOnLinux = trial{needs: []string{"node"}, npm: "fini-init", as: "host.js", files: map[string]string{"use.js": `
for (const platform of ['linux', 'darwin']) {
  Object.defineProperty(process, 'platform', { value: platform });
  process.env.FINI_BINARY = '/none';
  try { console.log(JSON.stringify(require('./host.js').serverCommand())); } catch (err) { console.log(err.message); }
}
`}, script: "exec node use.js", out: "fini: FINI_BINARY: /none does not exist\n{\"command\":\"node\",\"args\":[\"server.js\"]}\n"}.run

// wraps runs README's wrap, which has fini's flags in front of the command.
var wraps = trial{needs: []string{"node"}, npm: "fini-init",
	script: `exec node -e "class StdioClientTransport { constructor(of) { this.of = of; } }; $BLOCK;
		console.log(require('path').basename(transport.of.command), transport.of.args.join(' '))"`,
	out: "fini -i -k 5s --grace=1s -- node server.js\n"}.run

// wrapsInPython does the same in Python.
var wrapsInPython = trial{needs: []string{"python3"}, npm: "fini-init", as: "block.py", files: map[string]string{"host.py": `
import os.path
import fini_init
def StdioServerParameters(command, args): print(os.path.basename(command), *args)
exec(open("block.py").read())
`}, script: "exec python3 host.py", out: "fini-init -i -k 5s --grace=1s -- node server.js\n"}.run

var atTheEndOfInput = trial{standIns: map[string]string{"node": "sleep 1000 & echo ready; exec sleep 1001"}, script: inPlace, status: 143,
	meanwhile: func(_ *testing.T, l *rig.Life) {
		l.Out.Want("ready")
		_ = l.Stdin.Close()
	}}.run

// forgotten is a server whose host holds the pipe open, and has sent it its last call: before it is ready, for then it may
// be idle until a busy machine comes to the call.
var forgotten = trial{
	standIns: map[string]string{"node": "echo ready; while read -r call; do echo $call answered; done"},
	changes:  []string{"--idle=1h", "--idle=1s"}, script: inPlace,
	meanwhile: func(t *testing.T, l *rig.Life) { rig.Write(t, l, "call\n") }, out: "ready\ncall answered\n", status: 124,
}.run
