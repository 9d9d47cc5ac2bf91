package release

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/e2e/rig/clients"
	"github.com/seed-126c5d8a/fini/e2e/rig/pty"
	"github.com/seed-126c5d8a/fini/e2e/rig/recipes"
	"github.com/seed-126c5d8a/fini/internal/tests/need"
	"github.com/seed-126c5d8a/fini/internal/tests/procfs"
	"golang.org/x/sys/unix"
)

// newNode is the environment of a Node that is newer than Debian's, and that Node.
func newNode(t *testing.T) []string {
	t.Helper()
	arch := map[string]string{"amd64": "x64", "arm64": "arm64"}[runtime.GOARCH]
	folder, err := filepath.Abs("testdata/node/node_modules/node-linux-" + arch + "/bin")
	rig.NoError(t, err)
	_, err = os.Stat(filepath.Join(folder, "node"))
	need.That(t, err == nil, "a Node with process.execve (npm ci --prefix e2e/testdata/node)")
	return []string{"PATH=" + folder + ":" + os.Getenv("PATH"), "node"}
}

// preload is a variable by which Node runs a script before its own.
func preload(t *testing.T, script string) string {
	t.Helper()
	return "NODE_OPTIONS=--require=" + rig.Put(t, filepath.Join(t.TempDir(), "preload.cjs"), script, 0o644)
}

// A shim is the program of the npm package, which fini replaces, or which has fini as its child.
type shim struct {
	program string
	prefix  string // where npm has installed it
	stays   bool
	env     []string
}

func (s shim) command(args ...string) *exec.Cmd {
	cmd := exec.Command(s.program, args...)
	cmd.Env = append(os.Environ(), s.env...)
	return cmd
}

// releaseNPM installs the packages from their archives alone, and runs their program under both kinds of Node, whatever that
// of this machine is.
func releaseNPM(t *testing.T, r release) {
	need.Program(t, "npm", "node")
	s := shim{prefix: t.TempDir()}
	s.program = filepath.Join(s.prefix, "node_modules/.bin/fini-init")
	install := exec.Command("npm", "install", "--offline", "--ignore-scripts", "--no-audit", "--no-fund", "--prefix", s.prefix,
		r.file(t, "fini-init-linux-"+releaseMachines[runtime.GOARCH].npm+"-*.tgz"), r.file(t, "fini-init-[0-9]*.tgz"))
	install.Env = append(os.Environ(), "npm_config_cache="+t.TempDir())
	rig.Succeed(t, install)
	for kind, under := range map[string]shim{
		"child":  {s.program, s.prefix, true, []string{"PATH=" + os.Getenv("PATH"), preload(t, "delete process.execve")}},
		"execve": {s.program, s.prefix, false, newNode(t)[:1]},
	} {
		for name, test := range map[string]func(t *testing.T, s shim){
			"status": shimStatus, "signals": shimSignals, "ended": shimEnded, "transparent": shimTransparent, "bind": shimBind,
			"mcp": shimMCP,
		} {
			t.Run(kind+"/"+name, func(t *testing.T) { t.Parallel(); test(t, under) })
		}
	}
	t.Run("elsewhere", func(t *testing.T) { t.Parallel(); shimElsewhere(t, s) })
	// A script of a workspace is run by the package's fini-sh, as the recipe says.
	t.Run("script-shell", func(t *testing.T) {
		k := recipes.NewDir(t, nil)
		k.File("package.json", `{"private": true, "workspaces": ["part"]}`, 0o644)
		k.File(".npmrc", recipes.BlockWith(t, "../docs/recipes.md", "script-shell="), 0o644)
		k.File("part/package.json", `{"name": "part", "version": "1.0.0", "scripts": {"test": "`+recipes.Leaky+`; exit 3"}}`, 0o644)
		rig.NoError(t, os.Symlink(filepath.Join(s.prefix, "node_modules"), filepath.Join(k.Dir, "node_modules")))
		k.Env = append(os.Environ(), "npm_config_offline=true", "npm_config_cache="+t.TempDir()) // without another fini on PATH
		if out := k.MustLeaveNothing(k.Start("npm", "test", "--silent", "--workspace=part"), 3); out != "done\n" {
			t.Errorf("npm says %q", out)
		}
	})
}

func shimStatus(t *testing.T, s shim) {
	for script, want := range map[string]int{
		"exit 0": 0, "exit 1": 1, "exit 125": 125, "exit 255": 255, "kill -TERM $$": 143, "kill -KILL $$": 137, "kill -HUP $$": 129,
		"kill -INT $$": 130, "kill -PIPE $$": 141, "kill -USR1 $$": 138, "kill -USR2 $$": 140, "kill -XFSZ $$": 153,
	} {
		rig.StartCmd(t, s.command("--", "sh", "-c", script)).MustHaveStatus(want)
	}
	rig.StartCmd(t, s.command("--", "no such command")).MustEnd(127)
	rig.StartCmd(t, s.command("--no-such-flag", "true")).MustEnd(125)
}

// Each signal arrives once: the next line is that of the next one. What is sent to the whole group, as by a key at a
// terminal, arrives once as well. A second copy can be lost, when it comes before the first is taken, so it is sent
// often; what this process is sent alone comes behind it.
func shimSignals(t *testing.T, s shim) {
	each := []syscall.Signal{
		unix.SIGHUP, unix.SIGQUIT, unix.SIGTRAP, unix.SIGABRT, unix.SIGUSR2, unix.SIGPIPE, unix.SIGALRM, unix.SIGSTKFLT,
		unix.SIGXCPU, unix.SIGXFSZ, unix.SIGVTALRM, unix.SIGWINCH, unix.SIGIO, unix.SIGPWR, unix.SIGSYS,
	}
	for _, way := range []string{"each", "group", "terminal"} {
		t.Run(way, func(t *testing.T) {
			cmd := s.command(append([]string{"--"}, rig.Mode("signals", "15")...)...)
			var l *rig.Life
			var out *rig.Lines
			var keys io.Writer
			if way == "terminal" {
				l, out, keys = pty.Start(t, cmd)
			} else {
				cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: way == "group"}
				l = rig.StartCmd(t, cmd)
				out = l.Out
			}
			says := func(sig syscall.Signal) {
				t.Helper()
				if line, _ := out.Next(); strings.TrimPrefix(line, "^C") != fmt.Sprint("signal ", int(sig)) {
					t.Fatalf("signal %d: the command says %q", sig, line)
				}
			}
			out.Want("ready ")
			outer := l.PID()
			if s.stays {
				outer = procfs.ChildrenOf(t, outer)[0]
			}
			rig.WaitCaught(t, outer, procfs.ChildrenOf(t, outer)[0])
			for range 20 {
				switch way {
				case "each":
					for _, sig := range each {
						l.Signal(sig)
						says(sig)
					}
					l.Signal(unix.SIGINT)
				case "group":
					rig.MustKill(t, -l.PID(), unix.SIGINT)
				case "terminal":
					_, err := io.WriteString(keys, "\x03") // Ctrl-C
					rig.NoError(t, err)
				}
				says(unix.SIGINT)
				l.Signal(unix.SIGUSR1)
				says(unix.SIGUSR1)
			}
			l.Signal(unix.SIGTERM)
			out.Want("signal 15")
			l.MustEnd(7)
		})
	}
}

// However what stands in front is killed, or when stdin closes, nothing is left.
func shimEnded(t *testing.T, s shim) {
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
			h := rig.NewCgroup(t) // because Node lets no child of its have the witness
			cmd := rig.CommandOf(h.Wrap(s.program, "-i", "--grace=1s", "--", "sh", "-c",
				"setsid sh -c 'echo ready; exec sleep 1000' & sleep 1000"))
			cmd.Env, cmd.SysProcAttr = append(os.Environ(), s.env...), &syscall.SysProcAttr{Setsid: true}
			l := rig.StartCmd(t, cmd)
			l.Out.Want("ready")
			rig.NoError(t, tt.end(l))
			l.Out.Whole() // to EOF
			l.MustHaveStatus(tt.status)
			if tt.status == 143 { // fini itself has ended, and what it has left is left
				h.MustBeEmpty()
			}
			rig.Until(t, "the cgroup is empty", func() bool { return len(h.Alive()) == 0 })
		})
	}
}

// The command has the streams, arguments, variables and ignored signals that it has without npm's
// package: Node itself ignores SIGPIPE.
func shimTransparent(t *testing.T, s shim) {
	do := func(cmd *exec.Cmd) string {
		cmd.Env = append(cmd.Environ(), "VARIABLE=a = \"b\"\nc")
		cmd.Dir = t.TempDir()
		return strings.ReplaceAll(rig.Succeed(t, cmd), cmd.Dir, "DIR")
	}
	words := []string{"sh", "-c", `grep SigIgn /proc/self/status; pwd; umask; echo "$VARIABLE"; for word; do echo "[$word]"; done; ls -l /proc/self/fd/0 | sed 's/.*->//'`,
		"sh", "", "a b", "$HOME", `"`, "ä\n"}
	plain, under := do(rig.CommandOf(words)), do(s.command(append([]string{"--"}, words...)...))
	if under != plain {
		t.Errorf("the command sees %q, and without fini %q", under, plain)
	}
	// What is written to a pipe without a reader.
	into := s.command("--", "sh", "-c", "yes; echo status $? >&2")
	into.Args = slices.Concat([]string{"bash", "-c", `"$@" | head -n 1`, "bash", s.program}, into.Args[1:])
	into.Path = need.Program(t, "bash")
	if out := do(into); out != "y\nstatus 141\n" && out != "status 141\ny\n" { // of two writers
		t.Errorf("yes into a closed pipe: %q", out)
	}
}

// shimBind looks at the --bind flags with which the shim starts fini: who are the processes that they name?
func shimBind(t *testing.T, s shim) {
	const show = `tr '\0' '\n' </proc/$PPID/cmdline | sed -n 's/^--bind=//p' | while read pid; do
		case "$pid $(tr '\0' ' ' </proc/$pid/cmdline)" in "$TEST "*) echo caller ;; "$pid npm "*) echo npm ;; *) echo other ;; esac; done`
	dir := t.TempDir()
	rig.Put(t, filepath.Join(dir, "package.json"), `{"private": true, "scripts": {"show": "fini-init --no-shield -- sh -c \"$SHOW\"",
		"npx": "npx --no-install fini-init --no-shield -- sh -c \"$SHOW\"", "background": "node client.js"}}`, 0o644)
	// A program of a script's that starts fini by itself is its launcher, and npm only above.
	rig.Put(t, filepath.Join(dir, "client.js"),
		`require('child_process').spawn('fini-init', ['--no-shield', '--', 'sh', '-c', process.env.SHOW], {stdio: 'inherit'})`, 0o644)
	rig.NoError(t, os.Symlink(filepath.Join(s.prefix, "node_modules"), filepath.Join(dir, "node_modules")))
	own := "" // the shim's, where it stays
	if s.stays {
		own = "other"
	}
	for _, tt := range []struct{ name, line, bound string }{
		{"npx", `npx --no-install fini-init --no-shield -- sh -c "$SHOW"`, "caller npm"},
		{"npm run", "npm run --silent show", "caller npm"},
		{"npx in npm run", "npm run --silent npx", "caller npm npm"},
		{"a program in npm run", "npm run --silent background", own},
		{"alone", `$SHIM --no-shield -- sh -c "$SHOW"`, own},
		{"-p none", `npx --no-install fini-init --no-shield -vpnone -- sh -c "$SHOW"`, ""},
		{"--pdeathsig", `npx --no-install fini-init --no-shield --grace 1s --pdeathsig None sh -c "$SHOW"`, ""},
		{"FINI_PDEATHSIG", `env FINI_PDEATHSIG=none $SHIM --no-shield sh -c "$SHOW"`, ""},
		{"a command's -p", `npx --no-install fini-init --no-shield sh -c "$SHOW" -p none`, "caller npm"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cmd := exec.Command("sh", "-c", "exec "+tt.line)
			cmd.Env = append(append(os.Environ(), s.env...), "SHOW="+show, "SHIM="+s.program, fmt.Sprint("TEST=", os.Getpid()),
				"npm_config_offline=true", "npm_config_cache="+t.TempDir())
			cmd.Dir = dir
			l := rig.StartCmd(t, cmd)
			bound := strings.Fields(l.Out.Whole())
			slices.Sort(bound)
			if slices.Contains(bound, "npm") { // beside which there is its shell
				bound = slices.DeleteFunc(bound, func(who string) bool { return who == "other" })
			}
			if got := strings.Join(bound, " "); got != tt.bound {
				t.Errorf("bound to %q, want %q; stderr: %s", got, tt.bound, l.Err.Text())
			}
			l.MustHaveStatus(0)
		})
	}
}

// shimMCP ends the session of an MCP server that is started as its users will: by npx, which runs the package, which
// runs fini. The server goes on after the end of its stdin; so does its helper, in a session of its own. How else a
// process that fini is bound to ends, and fini itself, is for the rooms bond and kill9.
func shimMCP(t *testing.T, s shim) {
	clients.NeedHosts(t)
	server, err := filepath.Abs("npm/" + clients.ServerFile)
	rig.NoError(t, err)
	env := clients.Offline(t)
	for _, line := range s.env {
		name, value, _ := strings.Cut(line, "=")
		env[name] = value
	}
	for _, tt := range []struct {
		name string
		flag string
		end  func(h *clients.Host)
	}{
		{"client killed", "--grace=500ms", func(h *clients.Host) { h.End(syscall.SIGKILL) }},
		{"npm killed", "--grace=500ms", func(h *clients.Host) { rig.MustKill(h.T, h.Npx(), syscall.SIGKILL) }},
		{"session is closed", "-i", func(h *clients.Host) { h.Tell("close", nil) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h := clients.OpenHost(t, clients.NodeHost, env, "npx", "--no-install", "--prefix", s.prefix, "fini-init",
				"--grace=500ms", tt.flag,
				"node", server, clients.IgnoresEOF, clients.HelperWithout)
			h.Echo("a session")
			tt.end(h)
			h.MustVanish()
			h.Err.Rest() // to EOF
		})
	}
}

// shimElsewhere has Node believe that it runs on another system: the command runs without fini,
// and one line says so.
func shimElsewhere(t *testing.T, s shim) {
	as := func(system string, env []string, args ...string) *rig.Life {
		cmd := s.command(args...)
		cmd.Env = append(append(cmd.Env, env...), preload(t,
			fmt.Sprintf("Object.defineProperty(process, 'platform', {value: %q})", system)))
		return rig.StartCmd(t, cmd)
	}
	for _, flags := range []string{"", "-i --", "-it 5s --grace=1s --orphans leave -qpnone -r TERM:INT"} {
		l := as("darwin", nil, append(strings.Fields(flags), "sh", "-c", "echo out; exit 7")...)
		l.MustHaveStatus(7)
		if out, said := l.Out.Whole(), l.Err.Whole(); out != "out\n" || said != "fini: it needs Linux: sh runs without it\n" {
			t.Errorf("%q: %q and %q", flags, out, said)
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
	rig.Put(t, dir+"/tool.cmd", "", 0o755)
	rig.Put(t, dir+"/cmd", "#!/bin/sh\nprintf '[%s]\\n' \"$@\"; exit 5\n", 0o755)
	l = as("win32", []string{"PATH=" + dir + ":" + os.Getenv("PATH"), "ComSpec=" + dir + "/cmd"}, "-i", "--", "tool", "a b", `c"d`,
		"100%", `e\`)
	want := "[/d]\n[/s]\n[/c]\n[\"^\"" + dir + "/tool.cmd^\" ^\"a b^\" ^\"c\\^\"d^\" ^\"100^%^\" ^\"e\\\\^\"\"]\n"
	if out := l.Out.Whole(); out != want {
		t.Errorf("cmd.exe gets %q, want %q", out, want)
	}
	l.MustEnd(5)
	as("win32", nil, "--", "sh", "-c", "exit 6").MustEnd(6) // no batch file
}
