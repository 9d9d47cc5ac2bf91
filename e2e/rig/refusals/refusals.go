// Package refusals has the table of system calls that a kernel or a sandbox may refuse, and what fini keeps then.
package refusals

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/internal/tests/need"
	"golang.org/x/sys/unix"
)

// Alive is what of a case is alive when every fini of it is gone.
type Alive int

const (
	Nothing    Alive = iota
	Leftovers        // all that the main child started
	Everything       // and the main child
)

// Row is a row of the table in docs/platforms.md, or a name in the list before it if nothing is lost.
type Row struct {
	Refused string
	Calls   string // as @refuse names them
	Lost    string
	Holds   string

	Says    []string // by a pair; each line once and no other, ERROR for the error
	Left    Alive    // after the main child's end
	Unbound bool     // the launcher's death goes unnoticed
	Inner   Alive    // after SIGKILL of the inner fini
	Alone   Alive    // after SIGKILL of a fini without a shield

	Quick string // whom make test kills: the one by which the row differs from others, if there is one
}

const (
	noSubreaper  = "cannot become a subreaper: ERROR: leftovers will keep running"
	noBond       = "cannot set a parent death signal: ERROR: the command will keep running if fini's parent dies"
	noOwnGroup   = "cannot give the inner fini a process group of its own: ERROR: SIGKILL for fini's group would kill both processes of fini"
	noInitsGroup = "cannot give the command a process group: signals are sent only to the main child"
	noGroup      = "cannot give the command a process group and a parent death signal: signals are sent only to the main child, which survives if fini is killed"
)

var Rows = []Row{
	{
		Refused: "`clone3`, `close_range`, `pwritev2`",
		Calls:   "clone3,close_range,pwritev2", Lost: "nothing", Holds: "all", Alone: Leftovers, Quick: "launcher",
	},
	{
		Refused: "`pidfd_open`", Calls: "pidfd_open",
		Lost:  "`--bind`, and protection against a PID that is recycled just before a signal",
		Holds: "everything else", Alone: Leftovers, Quick: "outer",
	},
	{
		Refused: "`pidfd_open`, `pidfd_send_signal`, `clone3`, `close_range`, as on Linux 4.18 and in old sandboxes", Calls: BeforePidfds,
		Lost: "the same", Holds: "everything else", Alone: Leftovers, Quick: "inner",
	},
	{
		Refused: "`pidfd_send_signal`", Calls: "pidfd_send_signal",
		Lost: "protection against a PID that is recycled just before a signal", Holds: "everything else", Alone: Leftovers, Quick: "only",
	},
	{Refused: "`clone` with `CLONE_PIDFD`", Calls: "CLONE_PIDFD", Lost: "nothing", Holds: "all", Alone: Leftovers, Quick: "launcher"},
	{Refused: "`timerfd_create`", Calls: "timerfd_create", Lost: "nothing", Holds: "all", Alone: Leftovers, Quick: "only"},
	{Refused: "`eventfd2`", Calls: "eventfd2", Lost: "nothing", Holds: "all", Alone: Leftovers, Quick: "launcher"},
	{
		Refused: "`prctl(PR_SET_PDEATHSIG)`", Calls: "pdeathsig",
		Lost:  "with `--no-shield`, the command survives if `fini` is killed",
		Holds: "the shield of a pair, and the bond to the parent",
		Says:  []string{noGroup}, Alone: Everything, Quick: "only",
	},
	{
		Refused: "`prctl(PR_SET_PDEATHSIG)`, `pidfd_open`", Calls: "pdeathsig,pidfd_open",
		Lost:  "the bond to the parent; with `--no-shield`, the command survives if `fini` is killed",
		Holds: "the shield of a pair, and stopping leftovers",
		Says:  []string{noBond, noGroup}, Unbound: true, Alone: Everything, Quick: "launcher",
	},
	{
		Refused: "`prctl(PR_SET_CHILD_SUBREAPER)`", Calls: "subreaper",
		Lost:  "stopping leftovers, except as PID 1",
		Holds: "the main child ends with its parent and with either process of `fini`",
		Says:  []string{noSubreaper}, Left: Leftovers, Inner: Leftovers, Alone: Leftovers, Quick: "inner",
	},
	{
		Refused: "`prctl`", Calls: "prctl",
		Lost:  "the same. If the inner process, or a `fini` without a shield, is killed, the command survives",
		Holds: "the main child ends with its parent and with the outer process",
		Says:  []string{noSubreaper, noGroup}, Left: Leftovers, Inner: Everything, Alone: Everything, Quick: "inner",
	},
	{
		Refused: "`setpgid`", Calls: "setpgid",
		Lost:  "signals to the process group; with `--no-shield`, the command survives if `fini` is killed",
		Holds: "stopping leftovers, the bond to the parent, and the shield of a pair", Says: []string{noOwnGroup, noGroup}, Alone: Everything, Quick: "only",
	},
	{
		Refused: "`ioctl(TIOCSPGRP)`", Calls: "TIOCSPGRP", Lost: "the command's own process group, as PID 1 at a terminal", Holds: "everything else",
		Alone: Leftovers, Quick: "launcher",
	},
	{
		Refused: "all of these", Calls: All,
		Lost:  "the bond to the parent, the process group, and stopping leftovers except as PID 1",
		Holds: "the command runs, receives signals and returns its status; PID 1 reaps; the main child ends with the outer process",
		Says:  []string{noBond, noSubreaper, noOwnGroup, noGroup}, Left: Leftovers, Unbound: true, Inner: Everything, Alone: Everything, Quick: "launcher",
	},
}

// BeforePidfds are the newer calls that old kernels and sandboxes do not have.
const BeforePidfds = "pidfd_open,pidfd_send_signal,clone3,close_range"

const All = "prctl,pidfd_open,pidfd_send_signal,CLONE_PIDFD,clone3,close_range,timerfd_create," +
	"eventfd2,pwritev2,setpgid,TIOCSPGRP"

// SaysIn is what a row makes fini say in a place.
func (row Row) SaysIn(p rig.Place) []string {
	if p.PID1 { // it has no bond, and adopts orphans without being a subreaper; its end is that of its namespace
		if slices.Contains(row.Says, noOwnGroup) {
			return []string{noInitsGroup}
		}
		return nil
	}
	return slices.DeleteFunc(slices.Clone(row.Says), func(line string) bool {
		return p.Alone && line == noOwnGroup
	})
}

const WithPidfds = "with pidfds"

const WithoutPidfds = "without pidfds"

// WithAndWithoutPidfds runs a test where fini has pidfds, and where it has not. before are the words that
// execute fini. In make test it is the quick one of the two.
func WithAndWithoutPidfds(t *testing.T, quick string, test func(t *testing.T, before []string)) {
	t.Helper()
	for name, before := range map[string][]string{WithPidfds: nil, WithoutPidfds: rig.Mode("refuse", BeforePidfds)} {
		rig.Case(t, name == quick, name, func(t *testing.T) {
			t.Parallel()
			test(t, before)
		})
	}
}

// SetUserID makes a copy of a program that runs as its owner, root.
func SetUserID(t *testing.T, program string) string {
	t.Helper()
	dir := rig.ShortTempDir(t) // t.TempDir is not open to other users
	path := rig.Put(t, filepath.Join(dir, "program"), rig.ReadFile(t, program), 0o755)
	rig.NoError(t, errors.Join(os.Chmod(path, 0o755|os.ModeSetuid), os.Chmod(dir, 0o755)))
	var fs unix.Statfs_t
	need.That(t, unix.Statfs(dir, &fs) == nil && fs.Flags&unix.ST_NOSUID == 0, "a temporary directory without nosuid")
	return path
}
