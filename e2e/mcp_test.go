package e2e

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/seed-126c5d8a/fini/e2e/need"
)

// MCP hosts as they are: the official TypeScript SDK, and the sequence of Python's, with
// servers that behave and servers that don't. What a host starts runs in a cgroup, the host
// itself does not.

// The servers of ours in testdata/mcp-server.mjs.
const (
	serverFile       = "testdata/mcp-server.mjs"
	ignoresEOF       = "--timer"
	ignoresTERM      = "--ignore-term"
	helperWithStdout = "--helper=stdout"
	helperWithout    = "--helper=none"
)

var (
	nodeHost   = []string{"node", "testdata/mcp-client.mjs"}
	pythonHost = []string{"python3", "testdata/mcp-client.py", "asyncio"}
)

func needHosts(t *testing.T) {
	t.Helper()
	needMCP(t)
	need.Program(t, "python3")
	_, err := os.Stat("node_modules/@modelcontextprotocol/sdk")
	need.That(t, err == nil, "e2e/node_modules/@modelcontextprotocol/sdk")
}

// A host is a client of a server, a program that is told by lines on its stdin what to do
// and tells facts by lines on its stdout.
type host struct {
	*life
	cgroup  *cgroup // what it has started
	started int     // the pid of its child, which is fini, where there is one
}

// variables are for the server, beside those that a host hands on by itself.
type variables map[string]string

// startHost makes a host start argv.
func startHost(t *testing.T, program []string, env variables, argv ...string) *host {
	t.Helper()
	return startHostAt(t, nil, program, env, argv...)
}

// startHostAt starts the host as the leader of a session with a terminal, unless that is nil. The terminal is
// its standard error.
func startHostAt(t *testing.T, terminal *os.File, program []string, env variables, argv ...string) *host {
	t.Helper()
	h := &host{cgroup: newCgroup(t)}
	text, err := json.Marshal(env)
	if err != nil {
		t.Fatal(err)
	}
	args := slices.Concat(program[1:], []string{string(text)}, h.cgroup.wrap(argv...))
	cmd := exec.Command(program[0], args...)
	if terminal != nil {
		cmd.Stderr = terminal
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 2}
	}
	h.life = startCmd(t, cmd)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("stdout of the host: %.1000s\nstderr: %s", h.Out.text(), h.Err.text())
		}
	})
	h.started = h.Out.wantPid("started ")
	return h
}

// A start takes a processor for a second or two. Many at once would all take long.
var starts = make(chan struct{}, runtime.NumCPU())

// inTurn runs a start, with few others at a time.
func inTurn(start func()) {
	starts <- struct{}{}
	defer func() { <-starts }()
	start()
}

// openHost is startHost with the session open: the server has said its name and its tools.
func openHost(t *testing.T, program []string, env variables, argv ...string) (h *host) {
	t.Helper()
	return openHostAt(t, nil, program, env, argv...)
}

func openHostAt(t *testing.T, terminal *os.File, program []string, env variables, argv ...string) (h *host) {
	t.Helper()
	inTurn(func() {
		h = startHostAt(t, terminal, program, env, argv...)
		var ready struct{ Tools []string }
		if err := json.Unmarshal([]byte(h.Out.want("ready ")), &ready); err != nil || len(ready.Tools) == 0 {
			t.Fatalf("the server's tools: %v, %q", err, ready.Tools)
		}
	})
	return h
}

// offline is the environment in which npx has only what is installed here.
func offline(t *testing.T) variables {
	return variables{"npm_config_offline": "true", "npm_config_cache": t.TempDir()}
}

// tell sends a line. It may be larger than the pipe, and its reader may be stuck.
func (h *host) tell(word string, params any) {
	h.t.Helper()
	text, err := json.Marshal(params)
	if err == nil {
		err = h.Stdin.(*os.File).SetWriteDeadline(time.Now().Add(patience))
	}
	if err == nil {
		_, err = h.Stdin.Write([]byte(word + " " + string(text) + "\n"))
	}
	if err != nil {
		h.t.Fatalf("cannot tell the host to %s: %v; its stderr: %s", word, err, h.Err.text())
	}
}

// call makes the host call the server's tool and returns the text of its answer.
func (h *host) call(tool string, arguments map[string]any) string {
	h.t.Helper()
	h.tell("call", map[string]any{"name": tool, "arguments": arguments})
	var result struct {
		Content []struct{ Text string }
		IsError bool
	}
	text := h.Out.want("result ")
	if err := json.Unmarshal([]byte(text), &result); err != nil || result.IsError || len(result.Content) == 0 {
		h.t.Fatalf("%s: %v: %.300s", tool, err, text)
	}
	return result.Content[0].Text
}

func (h *host) echo(text string) {
	h.t.Helper()
	mustBeSame(h.t, h.call("echo", map[string]any{"message": text}), "Echo: "+text)
}

func mustBeSame(t testing.TB, got, want string) {
	t.Helper()
	if got != want {
		t.Fatalf("%d bytes came back, want %d; they differ from byte %d on", len(got), len(want), differAt(got, want))
	}
}

// inMidCall has a call in flight that takes a day. The server has it, for it has answered
// another one behind it.
func (h *host) inMidCall() {
	h.t.Helper()
	h.tell("call", map[string]any{"name": "trigger-long-running-operation",
		"arguments": map[string]any{"duration": 86400, "steps": 1}})
	h.echo("behind it")
}

// close makes the host close the session in its SDK's way. No process that holds the server's
// stdout is left when it returns.
func (h *host) close() {
	h.t.Helper()
	h.tell("close", nil)
	h.Out.want("ended ")
}

// took is the time that the SDK's close took.
func (h *host) took() time.Duration {
	h.t.Helper()
	ms, err := strconv.ParseFloat(h.fact("closed"), 64)
	if err != nil {
		h.t.Fatal(err)
	}
	return time.Duration(ms * float64(time.Millisecond))
}

// mustLeaveNothing asserts how the host's child ended, which left nothing behind. On a machine
// that is busy elsewhere a close may take so long that the SDK sends SIGTERM after 2 s, and
// SIGKILL after 4 s; nothing must be left then either.
func (h *host) mustLeaveNothing(want ...string) {
	h.t.Helper()
	ended := h.fact("ended")
	if h.fact("closed") != "" && h.took() >= 2*time.Second {
		want = append(want, "SIGTERM")
	}
	if h.fact("closed") != "" && h.took() >= 4*time.Second {
		want = append(want, "SIGKILL")
	}
	if !slices.Contains(want, ended) {
		h.t.Errorf("what the host has started ended with %s, want %s; stderr: %s", ended, want, h.Err.text())
	}
	// Where the host has killed the outer fini, the inner one may have work left.
	if ended == "SIGKILL" {
		until(h.t, "the cgroup is empty", func() bool { return len(h.cgroup.alive()) == 0 })
	}
	if left := h.cgroup.names(); len(left) > 0 {
		h.t.Errorf("left behind: %q; stderr: %s", left, h.Err.text())
	}
	if status := h.status(); status != 0 {
		h.t.Errorf("the host ended with %d; stderr: %s", status, h.Err.text())
	}
}

// end sends the host a signal that ends it.
func (h *host) end(sig syscall.Signal) {
	h.t.Helper()
	h.signal(sig)
	if status := h.status(); status != 128+int(sig) {
		h.t.Fatalf("the host ended with %d, want %d", status, 128+int(sig))
	}
}

// npx is the pid of npx in the cgroup.
func (h *host) npx() int {
	h.t.Helper()
	for _, pid := range h.cgroup.alive() {
		if args := commandLineOf(pid); len(args) > 0 && strings.HasPrefix(args[0], "npm exec ") {
			return pid
		}
	}
	h.t.Fatalf("no npx among %q", h.cgroup.names())
	return 0
}

// outcome is what becomes of the cgroup and the output from now on. Only what has no fini is
// given up after the window.
func (h *host) outcome(wrap []string, out *lines) (o outcome) {
	h.t.Helper()
	limit := window
	if underFini(wrap) {
		limit = patience
	}
	o = h.cgroup.outcomeWithin(limit, out)
	if underFini(wrap) && o.survivors > 0 {
		h.t.Errorf("left behind: %q; stderr: %s", h.cgroup.names(), h.Err.text())
	}
	return o
}

func underFini(wrap []string) bool { return len(wrap) > 0 && wrap[0] == finiPath }

// fact is what followed a word in the lines that have come.
func (h *host) fact(word string) string {
	for line := range strings.Lines(h.Out.text()) {
		if fact, ok := strings.CutPrefix(line, word+" "); ok {
			return strings.TrimSpace(fact)
		}
	}
	return ""
}

// A trial is one of several that run side by side.
type trial struct {
	name string
	run  func(t *testing.T)
}

// together runs all trials at a time, which t.Parallel would not: once they have started,
// nearly all of their time is waiting.
func together(t *testing.T, trials []trial) {
	t.Helper()
	var all sync.WaitGroup
	for _, trial := range trials {
		all.Go(func() { t.Run(trial.name, trial.run) })
	}
	all.Wait()
}

// A full session with each of the real servers, with 1 MiB there and back.
func TestMCPSession(t *testing.T) {
	t.Parallel()
	needHosts(t)
	large := largeText(1 << 20)
	tests := []struct {
		server string
		args   func(dir string) []string
		large  func(t *testing.T, h *host, dir string)
	}{
		{"everything", nil, func(_ *testing.T, h *host, _ string) { h.echo(large) }},
		{"filesystem", func(dir string) []string { return []string{dir} }, func(t *testing.T, h *host, dir string) {
			file := filepath.Join(dir, "large")
			h.call("write_file", map[string]any{"path": file, "content": large})
			written, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			mustBeSame(t, string(written), large)
			mustBeSame(t, h.call("read_text_file", map[string]any{"path": file}), large)
		}},
		{"memory", nil, func(t *testing.T, h *host, _ string) {
			h.call("create_entities", map[string]any{"entities": []any{
				map[string]any{"name": "fini", "entityType": "program", "observations": []string{large}},
			}})
			var graph struct {
				Entities []struct{ Observations []string }
			}
			text := h.call("open_nodes", map[string]any{"names": []string{"fini"}})
			if err := json.Unmarshal([]byte(text), &graph); err != nil {
				t.Fatal(err)
			}
			mustBeSame(t, graph.Entities[0].Observations[0], large)
		}},
	}
	var trials []trial
	for _, tt := range tests {
		for _, program := range [][]string{nodeHost, pythonHost} {
			if program[0] == "python3" && tt.server != "everything" {
				continue
			}
			trials = append(trials, trial{tt.server + ", " + program[0], func(t *testing.T) {
				_, err := os.Stat("node_modules/.bin/mcp-server-" + tt.server)
				need.That(t, err == nil, "e2e/node_modules/.bin/mcp-server-"+tt.server)
				dir := t.TempDir()
				env := offline(t)
				env["MEMORY_FILE_PATH"] = filepath.Join(dir, "memory")
				argv := []string{finiPath, "-i", "--", "npx", "-y", "@modelcontextprotocol/server-" + tt.server}
				if tt.args != nil {
					argv = append(argv, tt.args(dir)...)
				}
				h := openHost(t, program, env, argv...)
				tt.large(t, h, dir)
				h.close()
				h.mustLeaveNothing("0")
				for _, line := range h.Err.rest() {
					if strings.HasPrefix(line, "fini: ") {
						t.Errorf("fini had to do something, and close() took %v: %s", h.took(), line)
					}
				}
			}})
		}
	}
	together(t, trials)
}

// fini adds nothing to the close of a session that goes well. Where the machine was busy
// elsewhere, more pairs are measured.
func TestMCPCloseTakesAsLong(t *testing.T) {
	serial(t, "it compares times")
	needHosts(t)
	const limit = 100 * time.Millisecond
	npx := []string{"npx", "-y", mcpPackage}
	env := offline(t)
	measure := func(argv []string) time.Duration {
		h := openHost(t, nodeHost, env, argv...)
		h.close()
		h.mustLeaveNothing("0")
		return h.took()
	}
	var plain, under []time.Duration
	for range 12 {
		plain = append(plain, measure(npx))
		under = append(under, measure(append([]string{finiPath, "-i", "--"}, npx...)))
		without, with := median(plain), median(under)
		t.Logf("the median of %d: close() takes %v under fini, %v without", len(plain), with, without)
		if with-without <= limit {
			return
		}
	}
	t.Errorf("close() takes more than %v longer under fini: %v against %v", limit, under, plain)
}

func median(all []time.Duration) time.Duration {
	return slices.Sorted(slices.Values(all))[len(all)/2]
}

// The rows of the table: how a session ends, and what is left of it.
func TestMCPLeftBehind(t *testing.T) {
	t.Parallel()
	needHosts(t)
	// A host closes a session with a server of ours.
	closes := func(name string, flags, program, want []string, server ...string) trial {
		return trial{name, func(t *testing.T) {
			inColumns(t, name, flags, func(t *testing.T, wrap []string) outcome {
				h := openHost(t, program, offline(t), append(wrap, misbehaving(server...)...)...)
				h.echo(largeText(1 << 16))
				h.tell("close", nil)
				o := h.outcome(wrap, h.Out)
				t.Logf("close() took %s ms", h.fact("closed"))
				if underFini(wrap) {
					h.mustLeaveNothing(want...)
				}
				return o
			})
		}}
	}
	// The client of a real server is killed, or what stands between them.
	fault := func(name, want string, fault func(h *host)) trial {
		return trial{name, func(t *testing.T) {
			inColumns(t, name, []string{"-i"}, func(t *testing.T, wrap []string) outcome {
				h := openHost(t, nodeHost, offline(t), append(wrap, "npx", "-y", mcpPackage)...)
				h.inMidCall()
				fault(h)
				if want == "" { // nobody is there to be told how fini ended
					return h.outcome(wrap, h.Err)
				}
				o := h.outcome(wrap, h.Out)
				if underFini(wrap) {
					h.mustLeaveNothing(want)
				}
				return o
			})
		}}
	}
	client := func(sig syscall.Signal) func(*host) { return func(h *host) { h.end(sig) } }
	send := func(sig syscall.Signal, to func(*host) int) func(*host) {
		return func(h *host) {
			if err := syscall.Kill(to(h), sig); err != nil {
				h.t.Fatal(err)
			}
		}
	}
	child := func(h *host) int { return h.started }
	// With a short grace a slow npx may need SIGKILL. It does not ignore SIGTERM, as the server does.
	soon, stopped := []string{"-i", "--grace=500ms"}, []string{"SIGTERM", "SIGKILL"}
	calm, clean := []string{"-i"}, []string{"0"}
	trials := []trial{
		fault("`npx` server, client killed", "", client(syscall.SIGKILL)),
		fault("`npx` server, client sent SIGTERM", "", client(syscall.SIGTERM)),
		fault("`npx` server, `npx` killed", "SIGKILL", send(syscall.SIGKILL, (*host).npx)),
		fault("`npx` server, `npx` sent SIGTERM", "SIGTERM", send(syscall.SIGTERM, (*host).npx)),
		fault("`npx` server, the client's child killed", "SIGKILL", send(syscall.SIGKILL, child)),
		fault("`npx` server, the client's child sent SIGTERM", "SIGTERM", send(syscall.SIGTERM, child)),
		{"client killed while `npx` installs", clientKilledWhileInstalling},
		closes("TypeScript SDK closes, server goes on", soon, nodeHost, stopped, ignoresEOF),
		closes("TypeScript SDK closes, server ignores SIGTERM", soon, nodeHost, stopped, ignoresEOF, ignoresTERM),
		closes("TypeScript SDK closes, `setsid` helper holds stdout", calm, nodeHost, clean, helperWithStdout),
		closes("TypeScript SDK closes, `setsid` helper holds nothing", calm, nodeHost, clean, helperWithout),
		closes("Python SDK closes, server ignores SIGTERM", soon, pythonHost, stopped, ignoresEOF, ignoresTERM),
		closes("Python SDK closes, `setsid` helper holds stdout", calm, pythonHost, clean, helperWithStdout),
		closes("Python SDK closes, `setsid` helper holds nothing", calm, pythonHost, clean, helperWithout),
	}
	for _, trial := range trials { // which run at once
		addRow(trial.name)
	}
	together(t, trials)
}

// misbehaving runs a server of ours below npx, as it runs any other: npx, sh and node.
func misbehaving(flags ...string) []string {
	return []string{"npx", "-y", "-c", strings.Join(append([]string{"node", serverFile}, flags...), " ")}
}

// A host that somebody has started at a terminal shares its process group with fini, unless it makes a session
// for its server, as the Python SDK does.
func TestMCPAtATerminal(t *testing.T) {
	t.Parallel()
	needHosts(t)
	for name, program := range map[string][]string{"TypeScript": nodeHost, "Python": pythonHost} {
		for how, end := range map[string]func(h *host, keys *os.File){
			"closes": func(h *host, _ *os.File) {
				h.close()
				h.mustLeaveNothing("0", "SIGTERM")
			},
			"Ctrl-C":  func(_ *host, keys *os.File) { _, _ = keys.WriteString("\x03") },
			"hang-up": func(_ *host, keys *os.File) { _ = keys.Close() },
			"killed":  func(h *host, _ *os.File) { h.end(syscall.SIGKILL) },
		} {
			if !asInCI() && (name == "Python") != (how == "closes" || how == "killed") {
				continue // each end has one of them
			}
			t.Run(name+"/"+how, func(t *testing.T) {
				t.Parallel()
				theirs, keys := terminal(t)
				h := openHostAt(t, theirs, program, offline(t), finiPath, "-i", "--grace=2s", "--", "npx", "-y", mcpPackage)
				_ = theirs.Close()
				h.echo(largeText(1 << 16))
				end(h, keys)
				_ = h.status()
				until(t, "the cgroup is empty", func() bool { return len(h.cgroup.alive()) == 0 })
			})
		}
	}
}

// With the default --grace the SDKs lose their patience before fini has: they send fini SIGTERM
// and then SIGKILL, and the inner fini finishes the work.
func TestMCPCloseWithDefaultFlags(t *testing.T) {
	t.Parallel()
	needHosts(t)
	var trials []trial
	for _, program := range [][]string{nodeHost, pythonHost} {
		for _, tt := range []struct {
			flags []string
			want  string
		}{
			{[]string{ignoresEOF}, "SIGTERM"},
			{[]string{helperWithStdout}, "0"},
			{[]string{helperWithout}, "0"},
			{[]string{ignoresEOF, ignoresTERM, helperWithStdout}, "SIGKILL"},
		} {
			if program[0] == "python3" && !asInCI() {
				continue // in CI this SDK too
			}
			name := fmt.Sprint(program[0], tt.flags)
			trials = append(trials, trial{name, func(t *testing.T) {
				argv := append([]string{finiPath, "-i", "--"}, misbehaving(tt.flags...)...)
				h := openHost(t, program, offline(t), argv...)
				h.echo("a session")
				start := time.Now()
				h.close()
				h.mustLeaveNothing(tt.want)
				t.Logf("close() took %.1f s, and all was gone after %.1f s", h.took().Seconds(), time.Since(start).Seconds())
			}})
		}
	}
	together(t, trials)
}

// stdin comes in the forms in which clients make it, and its end is seen in each, also with a
// server that does not see it.
func TestMCPStdinForms(t *testing.T) {
	t.Parallel()
	needHosts(t)
	large := largeText(1 << 20)
	servers := []struct {
		flags []string
		grace string
		want  string
	}{
		{nil, "--grace=5s", "0"},
		{[]string{ignoresEOF}, "--grace=1s", "SIGTERM"},
		{[]string{ignoresEOF, ignoresTERM}, "--grace=300ms", "SIGKILL"},
	}
	python := func(form string) []string { return []string{"python3", "testdata/mcp-client.py", form} }
	hosts := []struct {
		program []string
		form    string
	}{
		{nodeHost, "socket:"},
		{pythonHost, ""}, // a socketpair before Python 3.12, and then a pipe
		{python("pipe"), "pipe:"},
		{python("socketpair"), "socket:"},
	}
	var trials []trial
	for i, server := range servers {
		argv := append([]string{finiPath, "-v", "-i", server.grace, "--", "node", serverFile}, server.flags...)
		for j, tt := range hosts {
			if !asInCI() && (i+j)%len(servers) != 0 {
				continue // each form has one of the servers
			}
			name := fmt.Sprint(strings.Join(tt.program, " "), server.flags)
			trials = append(trials, trial{name, func(t *testing.T) {
				h := openHost(t, tt.program, variables{}, argv...)
				inner := childrenOf(t, h.started)[0] // the outer one has let go of it
				form, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/0", inner))
				if err != nil || !strings.HasPrefix(form, tt.form) {
					t.Errorf("stdin is %q, want a %s (%v)", form, tt.form, err)
				}
				h.echo(large)
				h.close()
				t.Logf("stdin is %s, and close() took %.1f s", form, h.took().Seconds())
				h.mustLeaveNothing(server.want)
				if len(server.flags) > 0 {
					mustHaveSeenEnd(h.Err)
				}
			}})
		}
		trials = append(trials, trial{fmt.Sprint("Go", server.flags), func(t *testing.T) {
			cgroup := newCgroup(t)
			argv := cgroup.wrap(argv...)
			s := &session{}
			inTurn(func() {
				s.life = startCmd(t, exec.Command(argv[0], argv[1:]...))
				var hello struct{ ServerInfo struct{ Name string } }
				s.call("initialize", map[string]any{
					"protocolVersion": "2025-06-18",
					"capabilities":    map[string]any{},
					"clientInfo":      map[string]any{"name": "fini-e2e", "version": "0"},
				}, &hello)
			})
			s.send(message{Method: "notifications/initialized"})
			s.echo(large)
			s.closeStdin()
			s.Out.rest() // to EOF
			s.mustEnd(map[string]int{"0": 0, "SIGTERM": 143, "SIGKILL": 137}[server.want])
			if left := cgroup.names(); len(left) > 0 {
				t.Errorf("left behind: %q; stderr: %s", left, s.Err.text())
			}
			if len(server.flags) > 0 {
				mustHaveSeenEnd(s.Err)
			}
		}})
	}
	together(t, trials)
}

// mustHaveSeenEnd asserts that fini stopped the command for the end of stdin. The SDKs send
// SIGTERM later, which looks the same from outside.
func mustHaveSeenEnd(stderr *lines) {
	stderr.t.Helper()
	stderr.want("fini: waiting for the command: its standard input has closed")
}

// The client is killed when npx has asked for the server's package, which comes only then.
// A bare npx goes on, installs it, and starts a server for nobody.
func clientKilledWhileInstalling(t *testing.T) {
	inColumns(t, "client killed while `npx` installs", []string{"-i"}, func(t *testing.T, wrap []string) outcome {
		r := newRegistry(t)
		h := r.askedBy(t, append(wrap, "npx", "-y", r.name)...)
		h.end(syscall.SIGKILL)
		close(r.deliver)
		if !underFini(wrap) {
			until(t, "the server has started", r.serverStarted)
		}
		o := h.outcome(wrap, h.Err)
		if underFini(wrap) && r.serverStarted() { // from an empty cgroup nobody starts it any more
			t.Error("the server was started for a client that was gone")
		}
		return o
	})
}

// The package never comes. What asked for it is gone all the same, and its connection too.
func TestMCPClientKilledWhileInstallHangs(t *testing.T) {
	t.Parallel()
	needHosts(t)
	for _, sig := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM} {
		t.Run(sig.String(), func(t *testing.T) {
			t.Parallel()
			r := newRegistry(t)
			h := r.askedBy(t, finiPath, "-i", "--", "npx", "-y", r.name)
			h.end(sig)
			h.Err.rest() // to EOF
			until(t, "the cgroup is empty", func() bool { return len(h.cgroup.alive()) == 0 })
			select {
			case <-r.hungUp:
			case <-time.After(patience):
				t.Error("npx is gone, and its connection is not")
			}
			if r.serverStarted() {
				t.Error("a server was started that has not been installed")
			}
		})
	}
}

// A registry has one package, a server that makes a file when it starts and then stays. Its
// archive is sent when told.
type registry struct {
	t       testing.TB
	url     string
	name    string
	file    string        // the server makes it
	asked   chan struct{} // npx has asked for the archive
	deliver chan struct{} // closed: the archive is sent
	hungUp  chan struct{} // who asked is gone and has not got it
}

func newRegistry(t testing.TB) *registry {
	t.Helper()
	r := &registry{
		t: t, name: "fini-e2e-late-server", file: filepath.Join(t.TempDir(), "started"),
		asked: make(chan struct{}, 100), deliver: make(chan struct{}), hungUp: make(chan struct{}, 100),
	}
	manifest := map[string]any{"name": r.name, "version": "1.0.0", "bin": "server.js"}
	archive := r.archive(manifest)
	mux := http.NewServeMux()
	mux.HandleFunc("/"+r.name, func(w http.ResponseWriter, _ *http.Request) {
		version := maps.Clone(manifest)
		version["dist"] = map[string]any{"tarball": r.url + "/archive.tgz"}
		_ = json.NewEncoder(w).Encode(map[string]any{
			"name": r.name, "dist-tags": map[string]any{"latest": "1.0.0"}, "versions": map[string]any{"1.0.0": version},
		})
	})
	mux.HandleFunc("/archive.tgz", func(w http.ResponseWriter, request *http.Request) {
		r.asked <- struct{}{}
		select {
		case <-r.deliver:
			_, _ = w.Write(archive)
		case <-request.Context().Done():
			r.hungUp <- struct{}{}
		}
	})
	server := httptest.NewServer(mux)
	r.url = server.URL
	t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	return r
}

func (r *registry) archive(manifest map[string]any) []byte {
	r.t.Helper()
	text, err := json.Marshal(manifest)
	if err != nil {
		r.t.Fatal(err)
	}
	program := fmt.Sprintf("#!/usr/bin/env node\nrequire('fs').writeFileSync(%q, '');\nsetInterval(() => {}, 1000);\n",
		r.file)
	var b bytes.Buffer
	zip := gzip.NewWriter(&b)
	out := tar.NewWriter(zip)
	for _, file := range []struct{ name, text string }{
		{"package/package.json", string(text)}, {"package/server.js", program},
	} {
		err = out.WriteHeader(&tar.Header{Name: file.name, Mode: 0o755, Size: int64(len(file.text))})
		if err == nil {
			_, err = out.Write([]byte(file.text))
		}
		if err != nil {
			r.t.Fatal(err)
		}
	}
	if err := out.Close(); err != nil {
		r.t.Fatal(err)
	}
	if err := zip.Close(); err != nil {
		r.t.Fatal(err)
	}
	return b.Bytes()
}

// askedBy makes a host start argv, and returns when npx has asked for the archive. This registry
// is the only one that it knows.
func (r *registry) askedBy(t *testing.T, argv ...string) (h *host) {
	t.Helper()
	env := variables{
		"npm_config_registry": r.url, "npm_config_noproxy": "127.0.0.1", "npm_config_cache": t.TempDir(),
		"npm_config_audit": "false", "npm_config_fund": "false", "npm_config_update_notifier": "false",
	}
	inTurn(func() {
		h = startHost(t, nodeHost, env, argv...)
		select {
		case <-r.asked:
		case <-time.After(patience):
			t.Fatal("npx has not asked for the package")
		}
	})
	return h
}

func (r *registry) serverStarted() bool {
	_, err := os.Stat(r.file)
	return err == nil
}
