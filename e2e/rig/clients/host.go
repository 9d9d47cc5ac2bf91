package clients

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"maps"
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
	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/e2e/rig/columns"
)

// MCP hosts as they are: the official TypeScript SDK, and the sequence of Python's, with
// servers that behave and servers that don't. What a host starts runs in a cgroup, the host
// itself does not.

// Folder is where clients and servers run: in it npx finds what npm has installed for the tests.
const Folder = "npm"

// The servers of ours in npm/mcp-server.mjs.
const (
	ServerFile    = "mcp-server.mjs"
	IgnoresEOF    = "--timer"
	HelperWithout = "--helper=none"
)

var NodeHost = []string{"node", "mcp-client.mjs"}

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

// startHost makes a host start argv.
func startHost(t *testing.T, program []string, env Variables, argv ...string) *Host {
	t.Helper()
	return startHostAt(t, nil, program, env, argv...)
}

// startHostAt starts the host as the leader of a session with a terminal, unless that is nil. The terminal is
// its standard error.
func startHostAt(t *testing.T, terminal *os.File, program []string, env Variables, argv ...string) *Host {
	t.Helper()
	h := &Host{Cgroup: rig.NewCgroup(t)}
	text, err := json.Marshal(env)
	if err != nil {
		t.Fatal(err)
	}
	args := slices.Concat(program[1:], []string{string(text)}, h.Cgroup.Wrap(argv...))
	cmd := exec.Command(program[0], args...)
	cmd.Dir = Folder
	if terminal != nil {
		cmd.Stderr = terminal
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 2}
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

// A start takes a processor for a second or two. Many at once would all take long.
var starts = make(chan struct{}, runtime.NumCPU())

// InTurn runs a start, with few others at a time.
func InTurn(start func()) {
	starts <- struct{}{}
	defer func() { <-starts }()
	start()
}

// OpenHost is startHost with the session open: the server has said its name and its tools.
func OpenHost(t *testing.T, program []string, env Variables, argv ...string) (h *Host) {
	t.Helper()
	return OpenHostAt(t, nil, program, env, argv...)
}

func OpenHostAt(t *testing.T, terminal *os.File, program []string, env Variables, argv ...string) (h *Host) {
	t.Helper()
	InTurn(func() {
		h = startHostAt(t, terminal, program, env, argv...)
		var ready struct{ Tools []string }
		if err := json.Unmarshal([]byte(h.Out.Want("ready ")), &ready); err != nil || len(ready.Tools) == 0 {
			t.Fatalf("the server's tools: %v, %q", err, ready.Tools)
		}
	})
	return h
}

// Tell sends a line. It may be larger than the pipe, and its reader may be stuck.
func (h *Host) Tell(word string, params any) {
	h.T.Helper()
	text, err := json.Marshal(params)
	if err == nil {
		err = h.Stdin.(*os.File).SetWriteDeadline(time.Now().Add(rig.Patience))
	}
	if err == nil {
		_, err = h.Stdin.Write([]byte(word + " " + string(text) + "\n"))
	}
	if err != nil {
		h.T.Fatalf("cannot tell the host to %s: %v; its stderr: %s", word, err, h.Err.Text())
	}
}

// Call makes the host call the server's tool and returns the text of its answer.
func (h *Host) Call(tool string, arguments map[string]any) string {
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
	return result.Content[0].Text
}

func (h *Host) Echo(text string) {
	h.T.Helper()
	MustBeSame(h.T, h.Call("echo", map[string]any{"message": text}), "Echo: "+text)
}

func MustBeSame(t testing.TB, got, want string) {
	t.Helper()
	if got != want {
		t.Fatalf("%d bytes came back, want %d; they differ from byte %d on", len(got), len(want), DifferAt(got, want))
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

// Took is the time that the SDK's close took.
func (h *Host) Took() time.Duration {
	h.T.Helper()
	ms, err := strconv.ParseFloat(h.Fact("closed"), 64)
	if err != nil {
		h.T.Fatal(err)
	}
	return time.Duration(ms * float64(time.Millisecond))
}

// MustLeaveNothing asserts how the host's child ended, which left nothing behind. On a machine
// that is busy elsewhere a close may take so long that the SDK sends SIGTERM after 2 s, and
// SIGKILL after 4 s; nothing must be left then either.
func (h *Host) MustLeaveNothing(want ...string) {
	h.T.Helper()
	ended := h.Fact("ended")
	if h.Fact("closed") != "" && h.Took() >= 2*time.Second {
		want = append(want, "SIGTERM")
	}
	if h.Fact("closed") != "" && h.Took() >= 4*time.Second {
		want = append(want, "SIGKILL")
	}
	if !slices.Contains(want, ended) {
		h.T.Errorf("what the host has started ended with %s, want %s; stderr: %s", ended, want, h.Err.Text())
	}
	// Where the host has killed the outer fini, the inner one may have work left.
	if ended == "SIGKILL" {
		rig.Until(h.T, "the cgroup is empty", func() bool { return len(h.Cgroup.Alive()) == 0 })
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

// Outcome is what becomes of the cgroup and the output from now on. Only what has no fini is
// given up after the window.
func (h *Host) Outcome(wrap []string, out *rig.Lines) (o columns.Outcome) {
	h.T.Helper()
	limit := columns.Window
	if UnderFini(wrap) {
		limit = rig.Patience
	}
	o = columns.Watch(h.Cgroup, limit, out)
	if UnderFini(wrap) && o.Survivors > 0 {
		h.T.Errorf("left behind: %q; stderr: %s", h.Cgroup.Names(), h.Err.Text())
	}
	return o
}

func UnderFini(wrap []string) bool { return len(wrap) > 0 && wrap[0] == rig.Fini }

// Fact is what followed a word in the lines that have come.
func (h *Host) Fact(word string) string {
	for line := range strings.Lines(h.Out.Text()) {
		if fact, ok := strings.CutPrefix(line, word+" "); ok {
			return strings.TrimSpace(fact)
		}
	}
	return ""
}

// A trial is one of several that run side by side.
type Trial struct {
	Name string
	Run  func(t *testing.T)
}

// Together runs all trials at a time, which t.Parallel would not: once they have started,
// nearly all of their time is waiting.
func Together(t *testing.T, trials []Trial) {
	t.Helper()
	var all sync.WaitGroup
	for _, trial := range trials {
		all.Go(func() { t.Run(trial.Name, trial.Run) })
	}
	all.Wait()
}

// A registry has one package, a server that makes a file when it starts and then stays. Its
// archive is sent when told.
type registry struct {
	t       testing.TB
	url     string
	Name    string
	file    string        // the server makes it
	asked   chan struct{} // npx has asked for the archive
	Deliver chan struct{} // closed: the archive is sent
}

func NewRegistry(t testing.TB) *registry {
	t.Helper()
	r := &registry{
		t: t, Name: "fini-e2e-late-server", file: filepath.Join(t.TempDir(), "started"),
		asked: make(chan struct{}, 100), Deliver: make(chan struct{}),
	}
	manifest := map[string]any{"name": r.Name, "version": "1.0.0", "bin": "server.js"}
	archive := r.archive(manifest)
	r.url = Serve(t, func(path string, gone <-chan struct{}) (kind string, body []byte) {
		switch path {
		case "/" + r.Name:
			version := maps.Clone(manifest)
			version["dist"] = map[string]any{"tarball": r.url + "/archive.tgz"}
			text, _ := json.Marshal(map[string]any{
				"name": r.Name, "dist-tags": map[string]any{"latest": "1.0.0"}, "versions": map[string]any{"1.0.0": version},
			})
			return "application/json", text
		case "/archive.tgz":
			r.asked <- struct{}{}
			select {
			case <-r.Deliver:
				return "application/octet-stream", archive
			case <-gone:
			}
		}
		return "", nil
	})
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

// AskedBy makes a host start argv, and returns when npx has asked for the archive. This registry
// is the only one that it knows.
func (r *registry) AskedBy(t *testing.T, argv ...string) (h *Host) {
	t.Helper()
	env := Variables{
		"npm_config_registry": r.url, "npm_config_noproxy": "127.0.0.1", "npm_config_cache": t.TempDir(),
		"npm_config_audit": "false", "npm_config_fund": "false", "npm_config_update_notifier": "false",
	}
	InTurn(func() {
		h = startHost(t, NodeHost, env, argv...)
		select {
		case <-r.asked:
		case <-time.After(rig.Patience):
			t.Fatal("npx has not asked for the package")
		}
	})
	return h
}

func (r *registry) ServerStarted() bool {
	_, err := os.Stat(r.file)
	return err == nil
}

// Variables are for the server, beside those that a host hands on by itself.
type Variables map[string]string

// Offline is the environment in which npx has only what is installed here.
func Offline(t *testing.T) Variables {
	return Variables{"npm_config_offline": "true", "npm_config_cache": t.TempDir()}
}
