package clients

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-126c5d8a/fini/e2e/need"
	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/e2e/rig/procfs"
	"golang.org/x/sys/unix"
)

// A real MCP server, started in the way that its users start it.
const (
	McpPackage = "@modelcontextprotocol/server-everything"
	McpProgram = "node_modules/.bin/mcp-server-everything"
)

// node sets close-on-exec on its first 16 descriptors, and on from there up to the
// first that is closed. The witness that every process gets as fd 3 thus ends at npx.
// One that stands alone above reaches npx's children too.
const highWitness = 64

// NeedMCP skips a test where npx or the package that it runs is missing.
func NeedMCP(t *testing.T) {
	t.Helper()
	need.Program(t, "node")
	need.Program(t, "npx")
	need.Module(t, ".bin/mcp-server-everything")
}

// A session is a life that speaks MCP with the server at the bottom of its tree.
type Session struct {
	*rig.Life
	server int      // the pid of the node process that answers
	pidfd  int      // the same process, which no other can take the place of
	high   *os.File // every process of the tree holds the other end, the server too
	calls  int
}

// StartSession starts cmd, which runs the server through npx, and opens the session.
func StartSession(t *testing.T, cmd *exec.Cmd) *Session {
	t.Helper()
	witR, witW := rig.Pipe(t)
	cmd.ExtraFiles = make([]*os.File, highWitness-4) // closed; fd 3 is the other witness
	cmd.ExtraFiles = append(cmd.ExtraFiles, witW)
	// With nothing in the cache and no network, npx has only what is installed here.
	cmd.Env = append(os.Environ(), "npm_config_offline=true", "npm_config_cache="+t.TempDir())
	cmd.Dir = Folder
	s := &Session{Life: rig.StartCmd(t, cmd), high: witR}
	_ = witW.Close()

	var hello struct {
		ServerInfo struct{ Name string }
	}
	s.Call("initialize", map[string]any{
		"protocolVersion": "2025-06-18",
		"capabilities":    map[string]any{},
		"clientInfo":      map[string]any{"name": "fini-e2e", "version": "0"},
	}, &hello)
	if hello.ServerInfo.Name == "" {
		t.Fatal("the server does not say its name")
	}
	s.Send(Message{Method: "notifications/initialized"})
	var list struct {
		Tools []struct{ Name string }
	}
	s.Call("tools/list", map[string]any{}, &list)
	if !slices.Contains(list.Tools, struct{ Name string }{"echo"}) {
		t.Fatalf("no tool named echo in %v", list.Tools)
	}

	s.findServer()
	s.mustHoldWitness()
	return s
}

// findServer looks for the node process that runs the server, and sees to it that it
// does not outlive the test.
func (s *Session) findServer() {
	s.T.Helper()
	for _, pid := range s.descendants() {
		args := CommandLineOf(pid)
		if len(args) == 2 && filepath.Base(args[0]) == "node" && strings.HasSuffix(args[1], McpProgram) {
			s.server = pid
		}
	}
	if s.server == 0 {
		s.T.Fatalf("no server among the descendants of %d: %v", s.PID(), s.describeTree())
	}
	var err error
	if s.pidfd, err = unix.PidfdOpen(s.server, 0); err != nil {
		s.T.Fatalf("cannot open a pidfd of %d: %v", s.server, err)
	}
	s.T.Cleanup(func() {
		_ = unix.PidfdSendSignal(s.pidfd, unix.SIGKILL, nil, 0)
		_ = unix.Close(s.pidfd)
	})
}

// mustHoldWitness asserts that the witness has reached every process that npx has
// brought into being. Without that its end would prove nothing.
func (s *Session) mustHoldWitness() {
	s.T.Helper()
	want, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", s.high.Fd()))
	if err != nil {
		s.T.Fatal(err)
	}
	fini, err := os.Stat(rig.Fini)
	if err != nil {
		s.T.Fatal(err)
	}
	for _, pid := range s.descendants() {
		if exe, err := os.Stat(fmt.Sprintf("/proc/%d/exe", pid)); err == nil && os.SameFile(exe, fini) {
			continue // fini answers for itself: its end is waited for
		}
		if got, _ := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", pid, highWitness)); got != want {
			s.T.Fatalf("%d does not hold the witness %s as descriptor %d but %q: %v",
				pid, want, highWitness, got, s.describeTree())
		}
	}
}

func (s *Session) descendants() (pids []int) {
	below := procfs.ChildrenOf(s.T, s.PID())
	for len(below) > 0 {
		pid := below[0]
		pids = append(pids, pid)
		below = append(below[1:], procfs.ChildrenOf(s.T, pid)...)
	}
	return pids
}

func (s *Session) describeTree() (tree []string) {
	for _, pid := range s.descendants() {
		tree = append(tree, fmt.Sprintf("%d %q", pid, CommandLineOf(pid)))
	}
	return tree
}

// CommandLineOf is empty for a process that is gone or a zombie.
func CommandLineOf(pid int) []string {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return strings.FieldsFunc(string(text), func(r rune) bool { return r == 0 })
}

func (s *Session) CloseStdin() { _ = s.Stdin.Close() }

func (s *Session) KillServer() {
	s.T.Helper()
	if err := unix.PidfdSendSignal(s.pidfd, unix.SIGKILL, nil, 0); err != nil {
		s.T.Fatalf("cannot kill the server %d: %v", s.server, err)
	}
}

// MustLeaveNothing is MustEnd with the witness that the server holds.
func (s *Session) MustLeaveNothing(status int) {
	s.T.Helper()
	s.MustEnd(status)
	if rig.HeldOpen(s.high) {
		s.T.Errorf("fini is gone and a process of npx is alive; stderr: %s", s.Err.Text())
	}
}

// Said is what fini itself wrote to stderr, once nobody can write to it any more.
func (s *Session) Said() (said []string) {
	s.T.Helper()
	for _, line := range s.Err.Rest() {
		if strings.HasPrefix(line, "fini: ") {
			said = append(said, line)
		}
	}
	return said
}

// Message is JSON-RPC in either direction.
type Message struct {
	Version string          `json:"jsonrpc"`
	ID      int             `json:"id,omitempty"` // from 1; without one, it is a notification
	Method  string          `json:"method,omitempty"`
	Params  any             `json:"params,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   json.RawMessage `json:"error,omitempty"`
}

func (s *Session) Send(m Message) {
	s.T.Helper()
	m.Version = "2.0"
	text, err := json.Marshal(m)
	if err != nil {
		s.T.Fatal(err)
	}
	// A message may be larger than the pipe, and its reader may be stuck.
	if err := s.Stdin.(*os.File).SetWriteDeadline(time.Now().Add(rig.Patience)); err != nil {
		s.T.Fatal(err)
	}
	if _, err := s.Stdin.Write(append(text, '\n')); err != nil {
		s.T.Fatalf("cannot send %s: %v; stderr: %s", m.Method, err, s.Err.Text())
	}
}

// Call sends a request and waits for its answer. All that comes on stdout must be
// JSON-RPC: it is the server's alone.
func (s *Session) Call(method string, params, result any) {
	s.T.Helper()
	s.calls++
	s.Send(Message{ID: s.calls, Method: method, Params: params})
	for {
		line, ok := s.Out.Next()
		if !ok {
			s.T.Fatalf("EOF before the answer to %s; stderr: %s", method, s.Err.Text())
		}
		var m Message
		if err := json.Unmarshal([]byte(line), &m); err != nil || m.Version != "2.0" {
			s.T.Fatalf("not JSON-RPC (%v): %.200q", err, line)
		}
		if m.Method != "" || m.ID != s.calls {
			continue // a notification
		}
		if m.Error != nil {
			s.T.Fatalf("%s: %s", method, m.Error)
		}
		if err := json.Unmarshal(m.Result, result); err != nil {
			s.T.Fatalf("%s: %v: %.200q", method, err, m.Result)
		}
		return
	}
}

// Echo makes the server say something, and asserts that it comes back as it was.
func (s *Session) Echo(text string) {
	s.T.Helper()
	var answer struct {
		Content []struct{ Text string }
	}
	s.Call("tools/call", map[string]any{
		"name":      "echo",
		"arguments": map[string]any{"message": text},
	}, &answer)
	if len(answer.Content) != 1 {
		s.T.Fatalf("%d parts in the answer to echo, want 1", len(answer.Content))
	}
	if got, want := answer.Content[0].Text, "Echo: "+text; got != want {
		s.T.Fatalf("%d bytes came back, want %d; they differ from byte %d on",
			len(got), len(want), DifferAt(got, want))
	}
}

func DifferAt(a, b string) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	return min(len(a), len(b))
}

// LargeText is size bytes that never repeat, with what JSON must escape and what
// UTF-8 spreads over several bytes, which a boundary between two reads may cut.
func LargeText(size int) string {
	alphabet := []rune("abcdefghijklmnopqrstuvwxyz0123456789 \"\\\n\t\x01äß€漢🙂")
	random := rand.New(rand.NewPCG(1, 2))
	var b strings.Builder
	for b.Len() < size-4 {
		b.WriteRune(alphabet[random.IntN(len(alphabet))])
	}
	return b.String() + strings.Repeat(".", size-b.Len())
}
