package e2e

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seed-126c5d8a/fini/e2e/need"
	"golang.org/x/sys/unix"
)

// A real MCP server, started in the way that its users start it.
const (
	mcpPackage = "@modelcontextprotocol/server-everything"
	mcpProgram = "node_modules/.bin/mcp-server-everything"
)

// node sets close-on-exec on its first 16 descriptors, and on from there up to the
// first that is closed. The witness that every process gets as fd 3 thus ends at npx.
// One that stands alone above reaches npx's children too.
const highWitness = 64

// However a session ends, nothing of it is left and its status is the one that npx
// has without fini.
func TestNpx(t *testing.T) {
	t.Parallel()
	needMCP(t)
	tests := []struct {
		name  string
		end   func(*session) // with fini
		plain func(*session) // without; a signal goes to the group, as fini forwards it

		// The end goes up from the server to npx, each waiting for the one below it,
		// so that fini finds nothing to stop.
		byItself bool
	}{
		{"stdin closed", (*session).closeStdin, (*session).closeStdin, true},
		{"TERM", signalled(syscall.SIGTERM), groupSignalled(syscall.SIGTERM), false},
		{"INT", signalled(syscall.SIGINT), groupSignalled(syscall.SIGINT), false},
		{"server killed", (*session).killServer, (*session).killServer, true},
	}
	for i, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			plain := startPlain(t)
			tt.plain(plain)
			want := plain.status()

			inPlaces(t, func(t *testing.T, p place) {
				if !asInCI() && !p.takes(i) {
					return
				}
				s := startSession(t, p.command("--", "npx", "-y", mcpPackage))
				s.echo("before the end")
				tt.end(s)
				s.Out.rest() // to EOF
				s.mustLeaveNothing(want)
				if said := s.said(); tt.byItself && len(said) > 0 {
					t.Errorf("fini had to do something: %q", said)
				}
			})
		})
	}
}

// A message many times the size of a pipe goes to the server and comes back unchanged.
func TestNpxLargeMessage(t *testing.T) {
	t.Parallel()
	needMCP(t)
	s := startSession(t, pair.command("--", "npx", "-y", mcpPackage))
	s.echo(largeText(1 << 20))
	s.closeStdin()
	s.Out.rest()
	s.mustLeaveNothing(0)
}

// The reason for fini: SIGTERM to a bare npx ends npx and leaves its server.
func TestNpxWithoutFini(t *testing.T) {
	t.Parallel()
	needMCP(t)
	s := startPlain(t)
	parent, _ := strconv.Atoi(procStatus(s.server, "PPid"))
	need.That(t, parent != s.pid(), "a /bin/sh that does not become the command that npx gives it")

	s.signal(syscall.SIGTERM)
	if got := s.status(); got != 128+int(syscall.SIGTERM) {
		t.Errorf("npx ended with %d, want 143", got)
	}
	s.echo("npx is gone") // which only a living server answers
	if hungUp(s.high) {
		t.Error("the server answers and holds no witness")
	}

	s.killServer()
	s.Out.rest()
	until(t, "the witness hangs up once the server is killed", func() bool { return hungUp(s.high) })
}

// needMCP skips a test where npx or the package that it runs is missing.
func needMCP(t *testing.T) {
	t.Helper()
	need.Program(t, "node")
	need.Program(t, "npx")
	_, err := os.Stat(mcpProgram)
	need.That(t, err == nil, "e2e/"+mcpProgram)
}

// A session is a life that speaks MCP with the server at the bottom of its tree.
type session struct {
	*life
	server int      // the pid of the node process that answers
	pidfd  int      // the same process, which no other can take the place of
	high   *os.File // every process of the tree holds the other end, the server too
	calls  int
}

// startSession starts cmd, which runs the server through npx, and opens the session.
func startSession(t *testing.T, cmd *exec.Cmd) *session {
	t.Helper()
	witR, witW := pipe(t)
	cmd.ExtraFiles = make([]*os.File, highWitness-4) // closed; fd 3 is the other witness
	cmd.ExtraFiles = append(cmd.ExtraFiles, witW)
	// With nothing in the cache and no network, npx has only what is installed here.
	cmd.Env = append(os.Environ(), "npm_config_offline=true", "npm_config_cache="+t.TempDir())
	s := &session{life: startCmd(t, cmd), high: witR}
	_ = witW.Close()

	var hello struct {
		ServerInfo struct{ Name string }
	}
	s.call("initialize", map[string]any{
		"protocolVersion": "2025-06-18",
		"capabilities":    map[string]any{},
		"clientInfo":      map[string]any{"name": "fini-e2e", "version": "0"},
	}, &hello)
	if hello.ServerInfo.Name == "" {
		t.Fatal("the server does not say its name")
	}
	s.send(message{Method: "notifications/initialized"})
	var list struct {
		Tools []struct{ Name string }
	}
	s.call("tools/list", map[string]any{}, &list)
	if !slices.Contains(list.Tools, struct{ Name string }{"echo"}) {
		t.Fatalf("no tool named echo in %v", list.Tools)
	}

	s.findServer()
	s.mustHoldWitness()
	return s
}

// startPlain opens a session without fini, in a process group of its own.
func startPlain(t *testing.T) *session {
	t.Helper()
	cmd := exec.Command("npx", "-y", mcpPackage)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return startSession(t, cmd)
}

// findServer looks for the node process that runs the server, and sees to it that it
// does not outlive the test.
func (s *session) findServer() {
	s.t.Helper()
	for _, pid := range s.descendants() {
		args := commandLineOf(pid)
		if len(args) == 2 && filepath.Base(args[0]) == "node" && strings.HasSuffix(args[1], mcpProgram) {
			s.server = pid
		}
	}
	if s.server == 0 {
		s.t.Fatalf("no server among the descendants of %d: %v", s.pid(), s.describeTree())
	}
	var err error
	if s.pidfd, err = unix.PidfdOpen(s.server, 0); err != nil {
		s.t.Fatalf("cannot open a pidfd of %d: %v", s.server, err)
	}
	s.t.Cleanup(func() {
		_ = unix.PidfdSendSignal(s.pidfd, unix.SIGKILL, nil, 0)
		_ = unix.Close(s.pidfd)
	})
}

// mustHoldWitness asserts that the witness has reached every process that npx has
// brought into being. Without that its end would prove nothing.
func (s *session) mustHoldWitness() {
	s.t.Helper()
	want, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", s.high.Fd()))
	if err != nil {
		s.t.Fatal(err)
	}
	fini, err := os.Stat(finiPath)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, pid := range s.descendants() {
		if exe, err := os.Stat(fmt.Sprintf("/proc/%d/exe", pid)); err == nil && os.SameFile(exe, fini) {
			continue // fini answers for itself: its end is waited for
		}
		if got, _ := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", pid, highWitness)); got != want {
			s.t.Fatalf("%d does not hold the witness %s as descriptor %d but %q: %v",
				pid, want, highWitness, got, s.describeTree())
		}
	}
}

func (s *session) descendants() (pids []int) {
	below := childrenOf(s.t, s.pid())
	for len(below) > 0 {
		pid := below[0]
		pids = append(pids, pid)
		below = append(below[1:], childrenOf(s.t, pid)...)
	}
	return pids
}

func (s *session) describeTree() (tree []string) {
	for _, pid := range s.descendants() {
		tree = append(tree, fmt.Sprintf("%d %q", pid, commandLineOf(pid)))
	}
	return tree
}

// commandLineOf is empty for a process that is gone or a zombie.
func commandLineOf(pid int) []string {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return strings.FieldsFunc(string(text), func(r rune) bool { return r == 0 })
}

func (s *session) closeStdin() { _ = s.Stdin.Close() }

func (s *session) killServer() {
	s.t.Helper()
	if err := unix.PidfdSendSignal(s.pidfd, unix.SIGKILL, nil, 0); err != nil {
		s.t.Fatalf("cannot kill the server %d: %v", s.server, err)
	}
}

func signalled(sig syscall.Signal) func(*session) {
	return func(s *session) { s.signal(sig) }
}

func groupSignalled(sig syscall.Signal) func(*session) {
	return func(s *session) {
		s.t.Helper()
		if err := syscall.Kill(-s.pid(), sig); err != nil {
			s.t.Fatalf("cannot send %v to the group %d: %v", sig, s.pid(), err)
		}
	}
}

// mustLeaveNothing is mustEnd with the witness that the server holds.
func (s *session) mustLeaveNothing(status int) {
	s.t.Helper()
	s.mustEnd(status)
	if heldOpen(s.high) {
		s.t.Errorf("fini is gone and a process of npx is alive; stderr: %s", s.Err.text())
	}
}

// said is what fini itself wrote to stderr, once nobody can write to it any more.
func (s *session) said() (said []string) {
	s.t.Helper()
	for _, line := range s.Err.rest() {
		if strings.HasPrefix(line, "fini: ") {
			said = append(said, line)
		}
	}
	return said
}

// message is JSON-RPC in either direction.
type message struct {
	Version string          `json:"jsonrpc"`
	ID      int             `json:"id,omitempty"` // from 1; without one, it is a notification
	Method  string          `json:"method,omitempty"`
	Params  any             `json:"params,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   json.RawMessage `json:"error,omitempty"`
}

func (s *session) send(m message) {
	s.t.Helper()
	m.Version = "2.0"
	text, err := json.Marshal(m)
	if err != nil {
		s.t.Fatal(err)
	}
	// A message may be larger than the pipe, and its reader may be stuck.
	if err := s.Stdin.(*os.File).SetWriteDeadline(time.Now().Add(patience)); err != nil {
		s.t.Fatal(err)
	}
	if _, err := s.Stdin.Write(append(text, '\n')); err != nil {
		s.t.Fatalf("cannot send %s: %v; stderr: %s", m.Method, err, s.Err.text())
	}
}

// call sends a request and waits for its answer. All that comes on stdout must be
// JSON-RPC: it is the server's alone.
func (s *session) call(method string, params, result any) {
	s.t.Helper()
	s.calls++
	s.send(message{ID: s.calls, Method: method, Params: params})
	for {
		line, ok := s.Out.next()
		if !ok {
			s.t.Fatalf("EOF before the answer to %s; stderr: %s", method, s.Err.text())
		}
		var m message
		if err := json.Unmarshal([]byte(line), &m); err != nil || m.Version != "2.0" {
			s.t.Fatalf("not JSON-RPC (%v): %.200q", err, line)
		}
		if m.Method != "" || m.ID != s.calls {
			continue // a notification
		}
		if m.Error != nil {
			s.t.Fatalf("%s: %s", method, m.Error)
		}
		if err := json.Unmarshal(m.Result, result); err != nil {
			s.t.Fatalf("%s: %v: %.200q", method, err, m.Result)
		}
		return
	}
}

// echo makes the server say something, and asserts that it comes back as it was.
func (s *session) echo(text string) {
	s.t.Helper()
	var answer struct {
		Content []struct{ Text string }
	}
	s.call("tools/call", map[string]any{
		"name":      "echo",
		"arguments": map[string]any{"message": text},
	}, &answer)
	if len(answer.Content) != 1 {
		s.t.Fatalf("%d parts in the answer to echo, want 1", len(answer.Content))
	}
	if got, want := answer.Content[0].Text, "Echo: "+text; got != want {
		s.t.Fatalf("%d bytes came back, want %d; they differ from byte %d on",
			len(got), len(want), differAt(got, want))
	}
}

func differAt(a, b string) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	return min(len(a), len(b))
}

// largeText is size bytes that never repeat, with what JSON must escape and what
// UTF-8 spreads over several bytes, which a boundary between two reads may cut.
func largeText(size int) string {
	alphabet := []rune("abcdefghijklmnopqrstuvwxyz0123456789 \"\\\n\t\x01äß€漢🙂")
	random := rand.New(rand.NewPCG(1, 2))
	var b strings.Builder
	for b.Len() < size-4 {
		b.WriteRune(alphabet[random.IntN(len(alphabet))])
	}
	return b.String() + strings.Repeat(".", size-b.Len())
}
