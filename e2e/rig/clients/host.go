package clients

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/internal/tests/need"
)

// MCP hosts as they are: the official TypeScript SDK, and the sequence of Python's, with
// servers that behave and servers that don't. What a host starts runs in a cgroup, the host
// itself does not.

// Folder is where clients and servers run: in it npx finds what npm has installed for the tests.
const Folder = "npm"

// A real MCP server, as its users start it by npx, and the program that npx runs.
const (
	McpPackage = "@modelcontextprotocol/server-everything"
	McpProgram = "node_modules/.bin/mcp-server-everything"
)

// The servers of ours in npm/mcp-server.mjs.
const (
	ServerFile    = "mcp-server.mjs"
	IgnoresEOF    = "--timer"
	HelperWithout = "--helper=none"
)

// A host in Node, and one that forgets its servers, as hosts do on a retry, an edited configuration, a subagent's end or a
// reconnect.
var (
	NodeHost  = []string{"node", "mcp-client.mjs"}
	Forgetful = append([]string{"env", "FORGETFUL=1"}, NodeHost...)
)

// NeedMCP skips a test where npx or the package that it runs is missing.
func NeedMCP(t *testing.T) {
	t.Helper()
	need.Program(t, "node")
	need.Program(t, "npx")
	need.Module(t, ".bin/mcp-server-everything")
}

func NeedHosts(t *testing.T) {
	t.Helper()
	NeedMCP(t)
	need.Program(t, "python3")
	need.Module(t, "@modelcontextprotocol/sdk")
}

// A host is a client of a server, a program that is told by lines on its stdin what to do
// and tells facts by lines on its stdout.
type Host struct {
	*rig.Life
	Cgroup  *rig.Cgroup // what it has started
	Started int         // the pid of its child, which is fini, where there is one
}

// A Way is how a host is started.
type Way struct {
	Program  []string
	Env      Variables
	Terminal *os.File // of the session that the host leads, and its standard error; nil for none
	Stderr   *os.File // that of its servers, of which the host keeps no copy; nil for its own
}

// Start makes a host start argv.
func (w Way) Start(t *testing.T, argv ...string) *Host {
	t.Helper()
	h := &Host{Cgroup: rig.NewCgroup(t)}
	text, err := json.Marshal(w.Env)
	rig.NoError(t, err)
	cmd := rig.CommandOf(slices.Concat(w.Program, []string{string(text)}, h.Cgroup.Wrap(argv...)))
	cmd.Dir = Folder
	if w.Terminal != nil {
		cmd.Stderr = w.Terminal
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 2}
	}
	if w.Stderr != nil {
		cmd.ExtraFiles = []*os.File{w.Stderr} // behind the witness
		cmd.Env = append(os.Environ(), "SERVER_STDERR=4")
	}
	h.Life = rig.StartCmd(t, cmd)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("stdout of the host: %.1000s\nstderr: %s", h.Out.Text(), h.Err.Text())
		}
	})
	h.Started = h.Out.WantPID("started ")
	return h
}

// Open is Start with the session open: the server has said its name and its tools.
func (w Way) Open(t *testing.T, argv ...string) (h *Host) {
	t.Helper()
	InTurn(func() {
		h = w.Start(t, argv...)
		var ready struct{ Tools []string }
		if err := json.Unmarshal([]byte(h.Out.Want("ready ")), &ready); err != nil || len(ready.Tools) == 0 {
			t.Fatalf("the server's tools: %v, %q", err, ready.Tools)
		}
	})
	return h
}

// OpenHost opens a session of a host.
func OpenHost(t *testing.T, program []string, env Variables, argv ...string) *Host {
	t.Helper()
	return Way{Program: program, Env: env}.Open(t, argv...)
}

// A start takes a processor for a second or two. Many at once would all take long.
var starts = make(chan struct{}, runtime.NumCPU())

// InTurn runs a start, with few others at a time.
func InTurn(start func()) {
	starts <- struct{}{}
	defer func() { <-starts }()
	start()
}

// Tell sends a line. It may be larger than the pipe, and its reader may be stuck.
func (h *Host) Tell(word string, params any) {
	h.T.Helper()
	text, err := json.Marshal(params)
	rig.NoError(h.T, err)
	rig.NoError(h.T, h.Stdin.(*os.File).SetWriteDeadline(time.Now().Add(rig.Patience)))
	if _, err = h.Stdin.Write([]byte(word + " " + string(text) + "\n")); err != nil {
		h.T.Fatalf("cannot tell the host to %s: %v; its stderr: %s", word, err, h.Err.Text())
	}
}

// Call makes the host call the server's tool and returns the text of its answer.
func (h *Host) Call(tool string, arguments any) string {
	h.T.Helper()
	h.Tell("call", map[string]any{"name": tool, "arguments": arguments})
	var result struct {
		Content []struct{ Text string }
		IsError bool
	}
	text := h.Out.Want("result ")
	if err := json.Unmarshal([]byte(text), &result); err != nil || result.IsError || len(result.Content) == 0 {
		h.T.Fatalf("%s: %v: %.300s", tool, err, text)
	}
	text = ""
	for _, part := range result.Content {
		text += part.Text
	}
	return text
}

func (h *Host) Echo(text string) {
	h.T.Helper()
	MustBeSame(h.T, h.Call("echo", map[string]any{"message": text}), "Echo: "+text)
}

// MustBeSame asserts that a text came back as it was.
func MustBeSame(t testing.TB, got, want string) {
	t.Helper()
	if got != want {
		at := 0
		for at < min(len(got), len(want)) && got[at] == want[at] {
			at++
		}
		t.Fatalf("%d bytes came back, want %d; they differ from byte %d on", len(got), len(want), at)
	}
}

// InMidCall has a call in flight that takes a day. The server has it, for it has answered
// another one behind it.
func (h *Host) InMidCall() {
	h.T.Helper()
	h.Tell("call", map[string]any{"name": "trigger-long-running-operation",
		"arguments": map[string]any{"duration": 86400, "steps": 1}})
	h.Echo("behind it")
}

// Close makes the host close the session in its SDK's way. No process that holds the server's
// stdout is left when it returns.
func (h *Host) Close() {
	h.T.Helper()
	h.Tell("close", nil)
	h.Out.Want("ended ")
}

// Took is the time that the SDK's close took; 0 if there was none.
func (h *Host) Took() time.Duration {
	ms, _ := strconv.ParseFloat(h.Fact("closed"), 64)
	return time.Duration(ms * float64(time.Millisecond))
}

// HasSent reports whether the SDK has sent a signal to the server while it closed the session: SIGTERM after 2 s, SIGKILL
// after 4 s, by a clock of its own, which is early if its process got no processor meanwhile.
func (h *Host) HasSent(sig string) bool {
	after := map[string]time.Duration{"SIGTERM": 2 * time.Second, "SIGKILL": 4 * time.Second}[sig]
	return h.Took() >= after || strings.Contains("\n"+h.Out.Text(), "\nsent "+sig+"\n")
}

// MustLeaveNothing asserts how the host's child ended, which left nothing behind. On a machine
// that is busy elsewhere a close may take so long that the SDK sends signals; nothing must be left then either.
func (h *Host) MustLeaveNothing(want ...string) {
	h.T.Helper()
	ended := h.Fact("ended")
	for _, sig := range []string{"SIGTERM", "SIGKILL"} {
		if h.HasSent(sig) {
			want = append(want, sig)
		}
	}
	if !slices.Contains(want, ended) {
		h.T.Errorf("what the host has started ended with %s, want %s; stderr: %s", ended, want, h.Err.Text())
	}
	// Where the host has killed the outer fini, the inner one may have work left.
	if ended == "SIGKILL" {
		h.MustVanish()
	}
	if left := h.Cgroup.Names(); len(left) > 0 {
		h.T.Errorf("left behind: %q; stderr: %s", left, h.Err.Text())
	}
	if status := h.Status(); status != 0 {
		h.T.Errorf("the host ended with %d; stderr: %s", status, h.Err.Text())
	}
}

// End sends the host a signal that ends it.
func (h *Host) End(sig syscall.Signal) {
	h.T.Helper()
	h.Signal(sig)
	if status := h.Status(); status != 128+int(sig) {
		h.T.Fatalf("the host ended with %d, want %d", status, 128+int(sig))
	}
}

// Npx is the pid of npx in the cgroup.
func (h *Host) Npx() int {
	h.T.Helper()
	for _, pid := range h.Cgroup.Alive() {
		if args := CommandLineOf(pid); len(args) > 0 && strings.HasPrefix(args[0], "npm exec ") {
			return pid
		}
	}
	h.T.Fatalf("no npx among %q", h.Cgroup.Names())
	return 0
}

// MustVanish waits until nothing of what the host has started is left.
func (h *Host) MustVanish() {
	h.T.Helper()
	rig.Until(h.T, "the cgroup is empty", func() bool { return len(h.Cgroup.Alive()) == 0 })
}

// Fact is what followed a word in the lines that have come.
func (h *Host) Fact(word string) string {
	for line := range strings.Lines(h.Out.Text()) {
		if fact, ok := strings.CutPrefix(line, word+" "); ok {
			return strings.TrimSpace(fact)
		}
	}
	return ""
}

// Variables are for the server, beside those that a host hands on by itself.
type Variables map[string]string

// Offline is the environment in which npx has only what is installed here.
func Offline(t *testing.T) Variables {
	return Variables{"npm_config_offline": "true", "npm_config_cache": t.TempDir()}
}

// CommandLineOf is empty for a process that is gone or a zombie.
func CommandLineOf(pid int) []string {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return strings.FieldsFunc(string(text), func(r rune) bool { return r == 0 })
}

// LargeText is size bytes, lines that differ, with what JSON must escape and what
// UTF-8 spreads over several bytes, which a boundary between two reads may cut.
func LargeText(size int) string {
	var b strings.Builder
	for n := 0; b.Len() < size-100; n++ {
		fmt.Fprintf(&b, "%d \"\\\t\x01äß€漢🙂\n", n*n)
	}
	return b.String() + strings.Repeat(".", size-b.Len())
}
