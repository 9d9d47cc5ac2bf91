package ci

import (
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/e2e/rig/columns"
	"github.com/seed-126c5d8a/fini/e2e/rig/runners"
	"github.com/seed-126c5d8a/fini/internal/tests/need"
)

// A CI job that starts a PostgreSQL for its tests and never stops it. The server makes
// itself a session of its own, holds the job's output, has half a dozen processes, and
// wants to shut down in its own way, or else has to recover at its next start.
func TestPostgres(t *testing.T) {
	t.Parallel()
	template := initCluster(t)
	// Its own shutdown takes as long as the disk does.
	flags := []string{"--grace=5m", "--orphans-grace=5m"}
	fini := slices.Concat([]string{rig.Fini}, flags, []string{"--"})

	t.Run("tests over", func(t *testing.T) {
		t.Parallel()
		columns.Run(t, "`pg_ctl start` and tests, tests over", flags, func(t *testing.T, wrap []string) columns.Outcome {
			c := template.Copy(t)
			s := c.Start(t, wrap, "echo tests passed; exit 4")
			s.Out.Want("tests passed")
			o := outcome(s, wrap, 4, 0)
			if slices.Contains(wrap, rig.Fini) {
				c.MustBeShutDown()
			}
			return o
		})
	})

	// At SIGTERM the server waits for its clients. One that the tests have left in the middle
	// of a transaction is a leftover too, and so is the process of the server that serves it.
	for name, killed := range map[string]bool{"a client in a transaction": false, "fini killed": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := template.Copy(t)
			s := c.Start(t, fini, `{ printf '%s\n' 'begin; insert into results values (4);' '\! echo in a transaction'; exec sleep 1000; } | psql -q &
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
				mustEndWithNothing(s, 4)
			}
			c.MustBeShutDown()
		})
	}
}

// A cluster is a PostgreSQL's data, in a directory of its own, with its socket beside it.
type cluster struct {
	t   testing.TB
	bin string   // where its programs are
	as  []string // what goes before them, for they refuse to run as root
	dir string
}

// initCluster makes the one of which each case has a copy, for that takes a while.
func initCluster(t *testing.T) *cluster {
	t.Helper()
	dirs, _ := filepath.Glob("/usr/lib/postgresql/*/bin/pg_ctl") // where Debian has them
	if path, err := exec.LookPath("pg_ctl"); err == nil && len(dirs) == 0 {
		dirs = []string{path}
	}
	need.That(t, len(dirs) > 0, "PostgreSQL (postgresql)")
	c := &cluster{t: t, bin: filepath.Dir(dirs[len(dirs)-1])}
	if os.Getuid() == 0 {
		setpriv := need.Program(t, "setpriv")
		someone, err := user.Lookup("postgres")
		if err != nil {
			someone, err = user.Lookup("nobody")
		}
		need.That(t, err == nil, fmt.Sprintf("a user for PostgreSQL (%v)", err))
		c.as = []string{setpriv, "--reuid", someone.Uid, "--regid", someone.Gid, "--clear-groups"}
	} else {
		need.That(t, exec.Command("id", "-un").Run() == nil, "a name for this user, which initdb wants")
	}
	c.makeDir()
	c.must(c.bin+"/initdb", "-D", "data", "--no-sync", "--no-instructions", "-A", "trust", "-U", "ci", "-E", "UTF8", "--locale=C")
	return c
}

// makeDir makes a directory that belongs to the user. Into t.TempDir another user can't look.
func (c *cluster) makeDir() {
	c.t.Helper()
	dir := strings.TrimSpace(c.must("mktemp", "-d", "-p", os.TempDir(), "fini-pg-XXXXXX"))
	c.t.Cleanup(func() { _ = os.RemoveAll(dir) })
	c.dir = dir
}

// Copy is another cluster for this case.
func (c *cluster) Copy(t *testing.T) *cluster {
	t.Helper()
	other := &cluster{t: t, bin: c.bin, as: c.as}
	other.makeDir()
	other.must("cp", "-r", "--preserve=mode", c.dir+"/data", "data")
	return other
}

func (c *cluster) must(argv ...string) string {
	c.t.Helper()
	cmd := rig.CommandOf(slices.Concat(c.as, argv))
	cmd.Dir = c.dir
	return rig.Succeed(c.t, cmd)
}

// Start runs a script in which the server is started, under wrap, and has a table. The socket's name is short, and no network is
// used. pg_ctl waits until the server accepts connections, and leaves it the job's output.
func (c *cluster) Start(t *testing.T, wrap []string, tests string) *runners.Step {
	t.Helper()
	script := "PATH=" + c.bin + ":$PATH PGHOST=" + c.dir + ` PGUSER=ci PGDATABASE=postgres
		export PATH PGHOST PGUSER PGDATABASE
		cd "$PGHOST" && pg_ctl start -D data -o "-F -h '' -k $PGHOST -c shared_buffers=1MB -c dynamic_shared_memory_type=mmap" &&
		psql -q -c "create table results as select generate_series(1, 3) as n" || exit
		` + tests
	return runners.StartStep(t, nil, slices.Concat(wrap, c.as, []string{"sh", "-c", script})...)
}

// MustBeShutDown asserts that the server took its leave in order: that there is nothing to
// recover, and that what was committed is there.
func (c *cluster) MustBeShutDown() {
	c.t.Helper()
	state := c.must("sh", "-c", c.bin+"/pg_controldata -D data | sed -n 's/^Database cluster state: *//p'; test -e data/postmaster.pid && echo postmaster.pid; :")
	if state != "shut down\n" {
		c.t.Errorf("the cluster is %q, want it shut down", state)
	}
	// A server for one user, which reads from stdin and prints `1: n = "7"`.
	rows := c.must("sh", "-c", `echo "select string_agg(n::text, ' ' order by n) as rows from results" | `+c.bin+"/postgres --single -D data postgres")
	if !strings.Contains(rows, `rows = "1 2 3"`) {
		c.t.Errorf("want the rows 1 2 3: %s", rows)
	}
}
