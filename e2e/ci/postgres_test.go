package ci

import (
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/need"
	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/e2e/rig/columns"
	"github.com/seed-126c5d8a/fini/e2e/rig/runners"
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
	template := initCluster(t)
	// Its own shutdown takes as long as the disk does.
	flags := []string{"--grace=20s"}
	fini := slices.Concat([]string{rig.Fini}, flags, []string{"--"})

	t.Run("tests over", func(t *testing.T) {
		t.Parallel()
		columns.Run(t, "`pg_ctl start` and tests, tests over", flags, func(t *testing.T, wrap []string) columns.Outcome {
			c := template.Copy(t)
			s := c.Start(t, wrap, pgStart, pgTests+"echo tests passed; exit 4")
			s.Out.Want("tests passed")
			o := outcome(s, wrap, pgStatus)
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
				mustEndWithNothing(s, pgStatus)
			}
			c.MustBeShutDown("1 2 3")
		})
	}
}

// newReadableGate is one that another user can read.
func newReadableGate(t *testing.T) *runners.Gate {
	t.Helper()
	g := runners.NewGate(t)
	for path := g.Name; path != os.TempDir() && path != "/"; path = filepath.Dir(path) {
		rig.NoError(t, os.Chmod(path, 0o755))
	}
	return g
}

// A cluster is a PostgreSQL's data, in a directory of its own, with its socket beside it.
type cluster struct {
	t    testing.TB
	bin  string   // where its programs are
	as   []string // what goes before them, for they refuse to run as root
	uid  int
	gid  int
	dir  string
	data string
}

// initCluster makes the one of which each case has a copy, for that takes a while.
func initCluster(t *testing.T) *cluster {
	t.Helper()
	dirs, _ := filepath.Glob("/usr/lib/postgresql/*/bin/pg_ctl") // where Debian has them
	if path, err := exec.LookPath("pg_ctl"); err == nil && len(dirs) == 0 {
		dirs = []string{path}
	}
	need.That(t, len(dirs) > 0, "PostgreSQL (postgresql)")
	c := &cluster{t: t, bin: filepath.Dir(dirs[len(dirs)-1]), uid: os.Getuid(), gid: os.Getgid()}
	if c.uid == 0 {
		setpriv := need.Program(t, "setpriv")
		someone, err := user.Lookup("postgres")
		if err != nil {
			someone, err = user.Lookup("nobody")
		}
		need.That(t, err == nil, fmt.Sprintf("a user for PostgreSQL (%v)", err))
		c.uid, _ = strconv.Atoi(someone.Uid)
		c.gid, _ = strconv.Atoi(someone.Gid)
		c.as = []string{setpriv, "--reuid", someone.Uid, "--regid", someone.Gid, "--clear-groups"}
	} else {
		need.That(t, exec.Command("id", "-un").Run() == nil, "a name for this user, which initdb wants")
	}
	c.makeDir()
	c.must(c.bin+"/initdb", "-D", c.data, "--no-sync", "--no-instructions", "-A", "trust", "-U", "ci",
		"-E", "UTF8", "--locale=C")
	// The socket's name is short, and no network is used.
	config, err := os.OpenFile(filepath.Join(c.data, "postgresql.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err == nil {
		_, err = config.WriteString("listen_addresses = ''\nunix_socket_directories = '..'\n" +
			"dynamic_shared_memory_type = mmap\nshared_buffers = 1MB\nfsync = off\n")
	}
	rig.NoError(t, err)
	rig.NoError(t, config.Close())
	return c
}

func (c *cluster) makeDir() {
	c.t.Helper()
	// Not t.TempDir, into which another user can't look.
	dir, err := os.MkdirTemp("", "fini-pg-")
	if err == nil {
		err = os.Chown(dir, c.uid, c.gid)
	}
	rig.NoError(c.t, err)
	c.t.Cleanup(func() { _ = os.RemoveAll(dir) })
	c.dir, c.data = dir, filepath.Join(dir, "data")
}

// Copy is another cluster for this case.
func (c *cluster) Copy(t *testing.T) *cluster {
	t.Helper()
	other := *c
	other.t = t
	other.makeDir()
	other.must("cp", "-r", "--preserve=mode", c.data, other.data)
	return &other
}

func (c *cluster) must(argv ...string) string {
	c.t.Helper()
	argv = slices.Concat(c.as, argv)
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir = c.dir
	return rig.Succeed(c.t, cmd)
}

// Start runs a script in which the server is started, under wrap.
func (c *cluster) Start(t *testing.T, wrap []string, start, tests string) *runners.Step {
	t.Helper()
	h := rig.NewCgroup(t)
	script := "PATH=" + c.bin + ":$PATH PGHOST=" + c.dir + " PGUSER=ci PGDATABASE=postgres PGDATA=" + c.data + `
		export PATH PGHOST PGUSER PGDATABASE PGDATA
		cd "$PGHOST" || exit
		` + start + " || exit\n" + tests
	return &runners.Step{Life: rig.StartCmd(t, rig.CommandOf(h.Wrap(slices.Concat(wrap, c.as, []string{"sh", "-c", script})...))), Cgroup: h}
}

// MustBeShutDown asserts that the server took its leave in order: that there is nothing to
// recover, and that what was committed is there.
func (c *cluster) MustBeShutDown(rows string) {
	c.t.Helper()
	state := ""
	for line := range strings.Lines(c.must(c.bin+"/pg_controldata", "-D", c.data)) {
		if rest, ok := strings.CutPrefix(line, "Database cluster state:"); ok {
			state = strings.TrimSpace(rest)
		}
	}
	if state != "shut down" {
		c.t.Errorf("the cluster is %q, want it shut down", state)
	}
	if _, err := os.Stat(filepath.Join(c.data, "postmaster.pid")); err == nil {
		c.t.Error("postmaster.pid is still there")
	}
	// A server for one user, which reads from stdin and prints `1: n = "7"`.
	cmd := rig.CommandOf(slices.Concat(c.as, []string{c.bin + "/postgres", "--single", "-D", c.data, "postgres"}))
	cmd.Dir = c.dir
	cmd.Stdin = strings.NewReader("select string_agg(n::text, ' ' order by n) as rows from results\n")
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), fmt.Sprintf("rows = %q", rows)) {
		c.t.Errorf("want the rows %q: %v: %s", rows, err, out)
	}
}
