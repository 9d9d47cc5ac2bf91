package ci

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/internal/tests/need"
)

// bats waits until nobody holds its descriptor 3, so a test that leaks a process keeps it from going on, and what is behind bats
// has nothing to stop. With --orphan-timeout it goes on, and the leak is named.
func TestBatsGoesOn(t *testing.T) {
	t.Parallel()
	bats := need.Program(t, "bats")
	file := rig.Put(t, filepath.Join(t.TempDir(), "leak.bats"), `
@test "it leaks" {
	(sleep 600 &)
}
@test "it goes on" {
	true
}
`, 0o644)
	l := rig.Start(t, rig.Pair, "--orphan-timeout=2s", "--orphans-exit=9", "--", bats, "--tap", file)
	l.Out.Want("ok 2 it goes on")
	l.MustEnd(9)
	said := l.Err.Whole()
	for _, want := range []string{"fini: stopping orphan ", " (sleep 600), started in test test_it_leaks: its parent exited at least 2s ago (--orphan-timeout)"} {
		if strings.Count(said, want) != 1 {
			t.Errorf("%q is not said once: %q", want, said)
		}
	}
}

// A server that pg_ctl has started is an orphan. With its name in --allow-orphan it serves while others are stopped.
func TestPostgresIsNoOrphan(t *testing.T) {
	t.Parallel()
	c := initCluster(t)
	flags := []string{rig.Fini, "--orphan-timeout=500ms", "--allow-orphan=postgres", "--grace=5m", "--"}
	s := c.Start(t, flags, `(sleep 600 &)
		read go
		psql -qtc "select 'rows', count(*) from results" | tr -d ' |'
		pg_ctl stop -D data -m fast >/dev/null; exit 4`)
	s.Err.Want("fini: stopping orphan ") // the server was an orphan before that
	rig.Write(t, s.Life, "go\n")
	s.Out.Want("rows3")
	s.Out.Rest()
	s.MustHaveStatus(4)
	for line := range strings.Lines(s.Err.Whole()) {
		if strings.Contains(line, "postgres") && !strings.HasPrefix(line, "fini: leaving leftover") { // it may still be exiting
			t.Errorf("says %q", line)
		}
	}
	c.MustBeShutDown()
}
