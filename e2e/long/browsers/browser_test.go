package browsers

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/e2e/rig/columns"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { rig.Main(m) }

// MCP servers that drive a browser, with the real client of the SDK in front of npx. The
// browser is in sessions of its own and holds none of the client's descriptors: only the
// cgroup tells what is left of it.

// However the client of a browser's server ends, or npx, or a fini, nothing is left of it.
func TestBrowserLeavesNothing(t *testing.T) {
	t.Parallel()
	needBrowserServers(t)
	server := puppeteerServer(t)
	flags := []string{"-i"}
	closes := func(s *browserSession) { s.Tell("close", nil) }
	rows := []struct {
		row   string
		fault func(*browserSession)
		end   browserEnd // under fini
	}{
		{"`npx` browser server, `close()`", closes, browserEnd{Exited: "SIGTERM or 1"}}, // npm reports its server's end, if that is faster
		{"`npx` browser server, client killed", signals(syscall.SIGKILL), browserEnd{Client: 137}},
		{"`npx` browser server, TERM to client", signals(syscall.SIGTERM), browserEnd{Client: 143}},
		{"`npx` browser server, TERM to `npx`", signalsNpx(syscall.SIGTERM), browserEnd{Exited: "SIGTERM", Stops: true}},
		{"`npx` browser server, `npx` killed", signalsNpx(syscall.SIGKILL), browserEnd{Exited: "SIGKILL", Stops: true}},
	}
	for _, tt := range rows { // which run at once
		columns.AddRow(tt.row)
	}
	for _, tt := range rows {
		t.Run(tt.row, func(t *testing.T) {
			t.Parallel()
			columns.Run(t, tt.row, flags, func(t *testing.T, wrap []string) columns.Outcome {
				t.Parallel()
				s := startBrowser(t, server, wrap)
				tt.fault(s)
				if len(s.Finis) == 0 {
					return s.Watch()
				}
				return s.MustLeaveNothing(tt.end)
			})
		})
	}
	for which, name := range []string{"outer fini killed", "inner fini killed"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startBrowser(t, server, append(append([]string{rig.Fini}, flags...), "--"))
			if len(s.Finis) != 2 {
				t.Fatalf("%d finis, want a pair", len(s.Finis))
			}
			if err := unix.PidfdSendSignal(s.Finis[which], unix.SIGKILL, nil, 0); err != nil {
				t.Fatalf("cannot kill fini: %v", err)
			}
			s.MustLeaveNothing(browserEnd{Exited: "SIGKILL"})
		})
	}
}

// A server is idle though its browser, whose processes never stand still, has a page open.
func TestForgottenBrowserEnds(t *testing.T) {
	t.Parallel()
	needBrowserServers(t)
	for name, server := range map[string]func(*testing.T) browserServer{
		"puppeteer": puppeteerServer,
		"devtools":  func(t *testing.T) browserServer { return devtoolsServer(t) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startBrowser(t, server(t), []string{rig.Fini, "--idle=20s", "--"})
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
	tests := []struct {
		name   string
		server func(t *testing.T, profile string) browserServer
		// What is there while the browser runs and gone after a clean end: what the server
		// made in its TMPDIR, or the browser's lock of the profile that it was given.
		trace string
	}{
		{"playwright, isolated", func(t *testing.T, _ string) browserServer {
			return playwrightServer(t, "--isolated")
		}, "TMPDIR/playwright_chromiumdev_profile-*"},
		{"devtools, profile", func(t *testing.T, profile string) browserServer {
			return devtoolsServer(t, "--userDataDir", profile)
		}, "PROFILE/SingletonLock"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			for _, column := range []string{"without", "fini"} {
				t.Run(column, func(t *testing.T) {
					t.Parallel()
					var wrap []string
					if column == "fini" {
						// However slow the machine, fini leaves the server its time.
						wrap = []string{rig.Fini, "-i", "--grace", rig.Patience.String(), "--linger", rig.Patience.String(), "--"}
					}
					profile := filepath.Join(rig.ShortTempDir(t), "profile")
					s := startBrowser(t, tt.server(t, profile), wrap)
					trace := strings.NewReplacer("TMPDIR", s.Tmp, "PROFILE", profile).Replace(tt.trace)
					if !matches(t, trace) {
						t.Fatalf("no %s beside a running browser", tt.trace)
					}

					s.Tell("end", nil)
					if column == "fini" {
						s.MustLeaveNothing(browserEnd{Exited: "0"})
					} else {
						s.MustHaveExited("0")
						rig.Until(t, "the browser is gone", func() bool { return len(s.Cgroup.Alive()) == 0 })
					}
					if matches(t, trace) {
						t.Errorf("the server has left %s", tt.trace)
					}
					if said := s.Said(); len(said) > 0 {
						t.Errorf("fini had to do something: %q", said)
					}
				})
			}
		})
	}
}

// matches reports whether there is a file of this pattern. A browser's lock is a symbolic
// link to nowhere, which Glob sees.
func matches(t *testing.T, pattern string) bool {
	t.Helper()
	found, err := filepath.Glob(pattern)
	rig.NoError(t, err)
	return len(found) > 0
}

func signals(sig syscall.Signal) func(*browserSession) {
	return func(s *browserSession) { s.Signal(sig) }
}

// signalsNpx is safe from recycled pids: nobody has waited for npx yet.
func signalsNpx(sig syscall.Signal) func(*browserSession) {
	return func(s *browserSession) { rig.MustKill(s.T, s.Npx, sig) }
}
