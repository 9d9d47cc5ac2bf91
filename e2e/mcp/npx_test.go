package mcp

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/e2e/rig/clients"
)

// However a session ends, nothing of it is left and its status is the one that npx has without fini. Without it a signal goes
// to the group, as fini forwards it.
func TestNpx(t *testing.T) {
	t.Parallel()
	clients.NeedMCP(t)
	signal := func(sig syscall.Signal) func(s *session, plain bool) {
		return func(s *session, plain bool) {
			if plain {
				rig.MustKill(s.T, -s.PID(), sig)
			} else {
				s.Signal(sig)
			}
		}
	}
	for _, tt := range []struct {
		name string
		end  func(s *session, plain bool)

		// The end goes up from the server to npx, each waiting for the one below it,
		// so that fini finds nothing to stop.
		byItself bool
		quick    bool
	}{
		{"stdin closed", func(s *session, _ bool) { s.closeStdin() }, true, true},
		{"TERM", signal(syscall.SIGTERM), false, false},
		{"INT", signal(syscall.SIGINT), false, true},
		{"server killed", func(s *session, _ bool) { rig.MustKill(s.T, s.server(), syscall.SIGKILL) }, true, false},
	} {
		rig.Case(t, tt.quick, tt.name, func(t *testing.T) {
			t.Parallel()
			c := rig.NewCgroup(t)
			cmd := rig.CommandOf(c.Wrap(everything...))
			cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
			plain := startSession(t, c, cmd)
			tt.end(plain, true)
			want := plain.Status()

			rig.InPlaces(t, rig.Pair, func(t *testing.T, p rig.Place) {
				c := rig.NewCgroup(t)
				s := startSession(t, c, c.Around(p, nil, append([]string{"--"}, everything...)...))
				tt.end(s, false)
				s.Out.Rest() // to EOF
				c.MustLeaveNothing(t, s.Life, want)
				if said := s.Err.Whole(); tt.byItself && strings.Contains("\n"+said, "\nfini: ") {
					t.Errorf("fini had to do something: %q", said)
				}
			})
		})
	}
}

// A session speaks MCP with a real server without a host between the test and fini, or npx.
type session struct {
	*rig.Life
	cgroup *rig.Cgroup
}

// startSession starts cmd, which runs the server through npx in the cgroup, and opens the session.
func startSession(t *testing.T, c *rig.Cgroup, cmd *exec.Cmd) *session {
	t.Helper()
	cmd.Dir = clients.Folder
	cmd.Env = os.Environ()
	for name, value := range clients.Offline(t) {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	s := &session{rig.StartCmd(t, cmd), c}
	rig.Write(t, s.Life, `{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": `+
		`{"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "fini-e2e", "version": "0"}}}`+"\n")
	s.answer(1)
	rig.Write(t, s.Life, `{"jsonrpc": "2.0", "method": "notifications/initialized"}`+"\n")
	rig.Write(t, s.Life, `{"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "echo", "arguments": {"message": "hello"}}}`+"\n")
	if text := s.answer(2); !strings.Contains(text, "Echo: hello") {
		t.Fatalf("it answers %s", text)
	}
	return s
}

// answer waits for one. All that comes on stdout must be JSON-RPC: it is the server's alone.
func (s *session) answer(id int) string {
	s.T.Helper()
	for {
		line, _ := s.Out.Next()
		if !json.Valid([]byte(line)) || !strings.Contains(line, `"jsonrpc":"2.0"`) {
			s.T.Fatalf("answer %d is not JSON-RPC: %.200q; stderr: %s", id, line, s.Err.Text())
		}
		if strings.Contains(line, fmt.Sprintf(`"id":%d`, id)) { // and no notification
			return line
		}
	}
}

func (s *session) closeStdin() { _ = s.Stdin.Close() }

// server is the node process that answers.
func (s *session) server() int {
	s.T.Helper()
	for _, pid := range s.cgroup.Alive() {
		args := clients.CommandLineOf(pid)
		if len(args) == 2 && filepath.Base(args[0]) == "node" && strings.HasSuffix(args[1], clients.McpProgram) {
			return pid
		}
	}
	s.T.Fatalf("no server among %q", s.cgroup.Names())
	return 0
}
