package mcp

import (
	"strings"
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
		end   func(*session) // with fini
		plain func(*session) // without; a signal goes to the group, as fini forwards it

		// The end goes up from the server to npx, each waiting for the one below it,
		// so that fini finds nothing to stop.
		byItself bool
		quick    bool
	}{
		{"stdin closed", (*session).closeStdin, (*session).closeStdin, true, true},
		{"TERM", signalled(syscall.SIGTERM), groupSignalled(syscall.SIGTERM), false, false},
		{"INT", signalled(syscall.SIGINT), groupSignalled(syscall.SIGINT), false, true},
		{"server killed", (*session).killServer, (*session).killServer, true, false},
	}
	for _, tt := range tests {
		rig.Case(t, tt.quick, tt.name, func(t *testing.T) {
			t.Parallel()
			plain := startPlain(t)
			tt.plain(plain)
			want := plain.Status()

			rig.InPlaces(t, rig.Pair, func(t *testing.T, p rig.Place) {
				c := rig.NewCgroup(t)
				s := startSession(t, c, c.Around(p, nil, "--", "npx", "-y", clients.McpPackage))
				tt.end(s)
				s.Out.Rest() // to EOF
				c.MustLeaveNothing(t, s.Life, want)
				if said := s.Err.Whole(); tt.byItself && strings.Contains("\n"+said, "\nfini: ") {
					t.Errorf("fini had to do something: %q", said)
				}
			})
		})
	}
}

// startPlain opens a session without fini, in a process group of its own.
func startPlain(t *testing.T) *session {
	t.Helper()
	c := rig.NewCgroup(t)
	cmd := rig.CommandOf(c.Wrap("npx", "-y", clients.McpPackage))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return startSession(t, c, cmd)
}

func signalled(sig syscall.Signal) func(*session) {
	return func(s *session) { s.Signal(sig) }
}

func groupSignalled(sig syscall.Signal) func(*session) {
	return func(s *session) { rig.MustKill(s.T, -s.PID(), sig) }
}
