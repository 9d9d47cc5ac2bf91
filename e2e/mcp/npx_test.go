package mcp

import (
	"os/exec"
	"syscall"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/e2e/rig/clients"
)

// However a session ends, nothing of it is left and its status is the one that npx
// has without fini.
func TestNpx(t *testing.T) {
	t.Parallel()
	clients.NeedMCP(t)
	tests := []struct {
		name  string
		end   func(*clients.Session) // with fini
		plain func(*clients.Session) // without; a signal goes to the group, as fini forwards it

		// The end goes up from the server to npx, each waiting for the one below it,
		// so that fini finds nothing to stop.
		byItself bool
		quick    bool
	}{
		{"stdin closed", (*clients.Session).CloseStdin, (*clients.Session).CloseStdin, true, true},
		{"TERM", signalled(syscall.SIGTERM), groupSignalled(syscall.SIGTERM), false, false},
		{"INT", signalled(syscall.SIGINT), groupSignalled(syscall.SIGINT), false, true},
		{"server killed", (*clients.Session).KillServer, (*clients.Session).KillServer, true, false},
	}
	for _, tt := range tests {
		rig.Case(t, tt.quick, tt.name, func(t *testing.T) {
			t.Parallel()
			plain := startPlain(t)
			tt.plain(plain)
			want := plain.Status()

			rig.InPlaces(t, rig.Pair, func(t *testing.T, p rig.Place) {
				s := clients.StartSession(t, p.Command("--", "npx", "-y", clients.McpPackage))
				s.Echo("before the end")
				tt.end(s)
				s.Out.Rest() // to EOF
				s.MustLeaveNothing(want)
				if said := s.Said(); tt.byItself && len(said) > 0 {
					t.Errorf("fini had to do something: %q", said)
				}
			})
		})
	}
}

// startPlain opens a session without fini, in a process group of its own.
func startPlain(t *testing.T) *clients.Session {
	t.Helper()
	cmd := exec.Command("npx", "-y", clients.McpPackage)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return clients.StartSession(t, cmd)
}

func signalled(sig syscall.Signal) func(*clients.Session) {
	return func(s *clients.Session) { s.Signal(sig) }
}

func groupSignalled(sig syscall.Signal) func(*clients.Session) {
	return func(s *clients.Session) { rig.MustKill(s.T, -s.PID(), sig) }
}
