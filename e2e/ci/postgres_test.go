package ci

import (
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/rig"
)

const (
	// pg_ctl waits until the server accepts connections, and leaves it the job's output.
	pgStart  = "pg_ctl start"
	pgTests  = `psql -q -c "create table results as select generate_series(1, 3) as n" || exit; `
	pgStatus = 4
)

// A CI job that starts a PostgreSQL for its tests and never stops it. The server makes
// itself a session of its own, holds the job's output, has half a dozen processes, and
// wants to shut down in its own way, or else has to recover at its next start.

func TestPostgres(t *testing.T) {
	t.Parallel()
	template := rig.InitCluster(t)
	// Its own shutdown takes as long as the disk does.
	flags := []string{"--grace=20s"}
	fini := slices.Concat([]string{rig.Fini}, flags, []string{"--"})

	t.Run("tests over", func(t *testing.T) {
		t.Parallel()
		rig.InColumns(t, "`pg_ctl start` and tests, tests over", flags, func(t *testing.T, wrap []string) rig.Outcome {
			c := template.Copy(t)
			s := c.Start(t, wrap, pgStart, pgTests+"echo tests passed; exit 4")
			s.Out.Want("tests passed")
			o := s.Outcome(wrap, pgStatus)
			if slices.Contains(wrap, rig.Fini) {
				c.MustBeShutDown("1 2 3")
			}
			return o
		})
	})

	// At SIGTERM the server waits for its clients. One that the tests have left in the middle
	// of a transaction is a leftover too, and so is the process of the server that serves it.
	for name, killed := range map[string]bool{"a client in a transaction": false, "fini killed": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, g := template.Copy(t), newReadableGate(t)
			s := c.Start(t, fini, pgStart, pgTests+`{ printf '%s\n' 'begin; insert into results values (4);' '\! echo in a transaction'
				cat `+g.Name+`; } | psql -q &
				read go; exit 4`)
			s.Out.Want("in a transaction")
			if killed {
				s.Signal(syscall.SIGKILL)
				s.Out.Rest()
				s.MustHaveStatus(128 + int(syscall.SIGKILL))
				s.MustBeGone()
			} else {
				rig.Write(t, s.Life, "go\n")
				s.Out.Rest()
				s.MustEndWithNothing(pgStatus)
			}
			c.MustBeShutDown("1 2 3")
		})
	}
}

// newReadableGate is one that another user can read.
func newReadableGate(t *testing.T) *rig.Gate {
	t.Helper()
	g := rig.NewGate(t)
	for path := g.Name; path != os.TempDir() && path != "/"; path = filepath.Dir(path) {
		if err := os.Chmod(path, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return g
}
