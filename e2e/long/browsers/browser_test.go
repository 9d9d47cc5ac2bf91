package browsers

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/e2e/rig/columns"
)

func TestMain(m *testing.M) { rig.MainOfOthers(m) }

// MCP servers that drive a browser, with the real client of the SDK in front of npx. The
// browser is in sessions of its own and holds none of the client's descriptors: only the
// cgroup tells what is left of it.

// However the client of a browser's server ends, or npx, or a fini, nothing is left of it.
func TestBrowserLeavesNothing(t *testing.T) {
	t.Parallel()
	needBrowserServers(t)
	client := func(sig syscall.Signal) func(*browserSession) { return func(s *browserSession) { s.Signal(sig) } }
	// It is safe from recycled pids: nobody has waited for npx yet.
	npx := func(sig syscall.Signal) func(*browserSession) {
		return func(s *browserSession) { rig.MustKill(s.T, s.Npx, sig) }
	}
	for _, tt := range []struct {
		row   string
		fault func(*browserSession)
		end   browserEnd // under fini
	}{
		// npm reports its server's end, if that is faster.
		{"`npx` browser server, `close()`", func(s *browserSession) { s.Tell("close", nil) }, browserEnd{Exited: "SIGTERM or 1"}},
		{"`npx` browser server, client killed", client(syscall.SIGKILL), browserEnd{Client: 137}},
		{"`npx` browser server, TERM to client", client(syscall.SIGTERM), browserEnd{Client: 143}},
		{"`npx` browser server, TERM to `npx`", npx(syscall.SIGTERM), browserEnd{Exited: "SIGTERM", Stops: true}},
		{"`npx` browser server, `npx` killed", npx(syscall.SIGKILL), browserEnd{Exited: "SIGKILL", Stops: true}},
	} {
		t.Run(tt.row, func(t *testing.T) {
			t.Parallel()
			columns.Run(t, tt.row, []string{"-i"}, func(t *testing.T, wrap []string) columns.Outcome {
				t.Parallel()
				s := startBrowser(t, puppeteer, wrap)
				tt.fault(s)
				if len(s.Finis) == 0 {
					return columns.Watch(wrap, s.stderr, s.Cgroup.Count)
				}
				return s.MustLeaveNothing(tt.end)
			})
		})
	}
	for which, name := range []string{"outer fini killed", "inner fini killed"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startBrowser(t, puppeteer, []string{rig.Fini, "-i", "--"})
			if len(s.Finis) != 2 {
				t.Fatalf("%d finis, want a pair", len(s.Finis))
			}
			rig.MustKill(t, s.Finis[which], syscall.SIGKILL)
			s.MustLeaveNothing(browserEnd{Exited: "SIGKILL"})
		})
	}
}

// A server is idle though its browser, whose processes never stand still, has a page open.
func TestForgottenBrowserEnds(t *testing.T) {
	t.Parallel()
	needBrowserServers(t)
	for name, server := range map[string]browserServer{"puppeteer": puppeteer, "devtools": devtools} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startBrowser(t, server, []string{rig.Fini, "--idle=20s", "--"})
			s.MustLeaveNothing(browserEnd{Exited: "124"})
			if said := strings.Join(s.Said(), ""); !strings.Contains(said, "for 20s (--idle)") {
				t.Errorf("says %q", said)
			}
		})
	}
}

// A server that ends its browser by itself, at the end of its stdin, does so under fini as
// it does without: with the same status, its own clean-up done, and nothing for fini to say.
func TestBrowserEndsByItself(t *testing.T) {
	t.Parallel()
	needBrowserServers(t)
	for name, tt := range map[string]struct {
		server browserServer
		args   []string
		// What is there while the browser runs and gone after a clean end: what the server
		// made in its TMPDIR, or the browser's lock of the profile that it was given.
		trace string
	}{
		"playwright, isolated": {playwright, []string{"--isolated"}, "playwright_chromiumdev_profile-*"},
		"devtools, profile":    {devtools, []string{"--userDataDir", "TMPDIR/profile"}, "profile/SingletonLock"},
	} {
		for column, wrap := range map[string][]string{
			"without": nil,
			// However slow the machine, fini leaves the server its time.
			"fini": {rig.Fini, "-i", "--grace", rig.Patience.String(), "--linger", rig.Patience.String(), "--"},
		} {
			t.Run(name+"/"+column, func(t *testing.T) {
				t.Parallel()
				s := startBrowser(t, tt.server, wrap, tt.args...)
				// A browser's lock is a symbolic link to nowhere, which Glob sees.
				traces := func() int {
					found, err := filepath.Glob(filepath.Join(s.Tmp, tt.trace))
					rig.NoError(t, err)
					return len(found)
				}
				if traces() == 0 {
					t.Fatalf("no %s beside a running browser", tt.trace)
				}
				s.Tell("end", nil)
				if wrap != nil {
					s.MustLeaveNothing(browserEnd{Exited: "0"})
				} else {
					s.MustHaveExited("0")
					s.MustVanish()
				}
				if traces() > 0 {
					t.Errorf("the server has left %s", tt.trace)
				}
				if said := s.Said(); len(said) > 0 {
					t.Errorf("fini had to do something: %q", said)
				}
			})
		}
	}
}
