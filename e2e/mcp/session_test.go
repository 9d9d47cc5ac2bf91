package mcp

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/e2e/rig/clients"
)

// A session speaks MCP with a real server without a host between the test and fini, or npx.
type session struct {
	*rig.Life
	cgroup *rig.Cgroup
	server int // the node process that answers
}

// startSession starts cmd, which runs the server through npx in the cgroup, and opens the session.
func startSession(t *testing.T, c *rig.Cgroup, cmd *exec.Cmd) *session {
	t.Helper()
	cmd.Dir = clients.Folder
	cmd.Env = os.Environ()
	for name, value := range clients.Offline(t) {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	s := &session{Life: rig.StartCmd(t, cmd), cgroup: c}
	rig.Write(t, s.Life, `{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": `+
		`{"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "fini-e2e", "version": "0"}}}`+"\n")
	s.answer(1)
	rig.Write(t, s.Life, `{"jsonrpc": "2.0", "method": "notifications/initialized"}`+"\n")
	rig.Write(t, s.Life, `{"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "echo", "arguments": {"message": "hello"}}}`+"\n")
	if text := s.answer(2); !strings.Contains(text, "Echo: hello") {
		t.Fatalf("it answers %s", text)
	}
	for _, pid := range c.Alive() {
		args := clients.CommandLineOf(pid)
		if len(args) == 2 && filepath.Base(args[0]) == "node" && strings.HasSuffix(args[1], clients.McpProgram) {
			s.server = pid
		}
	}
	if s.server == 0 {
		t.Fatalf("no server among %q", c.Names())
	}
	return s
}

// answer is the result of a request. All that comes on stdout must be JSON-RPC: it is the server's alone.
func (s *session) answer(id int) string {
	s.T.Helper()
	for {
		line, ok := s.Out.Next()
		if !ok {
			s.T.Fatalf("EOF before answer %d; stderr: %s", id, s.Err.Text())
		}
		var m struct {
			JSONRPC, Method string
			ID              int
			Result          json.RawMessage
		}
		if err := json.Unmarshal([]byte(line), &m); err != nil || m.JSONRPC != "2.0" {
			s.T.Fatalf("not JSON-RPC (%v): %.200q", err, line)
		}
		if m.Method == "" && m.ID == id { // and no notification
			return string(m.Result)
		}
	}
}

func (s *session) closeStdin() { _ = s.Stdin.Close() }

func (s *session) killServer() { rig.MustKill(s.T, s.server, syscall.SIGKILL) }
