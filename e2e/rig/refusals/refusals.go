// Package refusals has the table of system calls that a kernel or a sandbox may refuse, and what fini loses then.
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
		Calls:   "clone3,close_range,pwritev2", Lost: "nothing", Alone: Leftovers, Quick: "launcher",
	},
	{
		Refused: "`pidfd_open`", Calls: "pidfd_open",
		Lost: "`--bind` doesn't work. If a PID is recycled just before a signal, `fini` doesn't notice.", Alone: Leftovers, Quick: "outer",
	},
	{
		Refused: "`pidfd_open`, `pidfd_send_signal`, `clone3`, `close_range` (Linux 4.18, old sandboxes)", Calls: BeforePidfds,
		Lost: "`--bind` doesn't work. If a PID is recycled just before a signal, `fini` doesn't notice.", Alone: Leftovers, Quick: "inner",
	},
	{
		Refused: "`pidfd_send_signal`", Calls: "pidfd_send_signal",
		Lost: "If a PID is recycled just before a signal, `fini` doesn't notice.", Alone: Leftovers, Quick: "only",
	},
	{Refused: "`clone` with `CLONE_PIDFD`", Calls: "CLONE_PIDFD", Lost: "nothing", Alone: Leftovers, Quick: "launcher"},
	{Refused: "`timerfd_create`", Calls: "timerfd_create", Lost: "nothing", Alone: Leftovers, Quick: "only"},
	{Refused: "`eventfd2`", Calls: "eventfd2", Lost: "nothing", Alone: Leftovers, Quick: "launcher"},
	{
		Refused: "`prctl(PR_SET_PDEATHSIG)`", Calls: "pdeathsig",
		Lost: "With `--no-shield`, the command keeps running if `fini` is killed.",
		Says: []string{noGroup}, Alone: Everything, Quick: "only",
	},
	{
		Refused: "`prctl(PR_SET_PDEATHSIG)`, `pidfd_open`", Calls: "pdeathsig,pidfd_open",
		Lost: "The command keeps running if the parent dies or, with `--no-shield`, if `fini` is killed.",
		Says: []string{noBond, noGroup}, Unbound: true, Alone: Everything, Quick: "launcher",
	},
	{
		Refused: "`prctl(PR_SET_CHILD_SUBREAPER)`", Calls: "subreaper",
		Lost: "Only PID 1 stops leftovers. Elsewhere, `fini` stops just the main child.",
		Says: []string{noSubreaper}, Left: Leftovers, Inner: Leftovers, Alone: Leftovers, Quick: "inner",
	},
	{
		Refused: "`prctl`", Calls: "prctl",
		Lost: "Only PID 1 stops leftovers. The command also keeps running if the inner process or, with `--no-shield`, `fini` is killed.",
		Says: []string{noSubreaper, noGroup}, Left: Leftovers, Inner: Everything, Alone: Everything, Quick: "inner",
	},
	{
		Refused: "`setpgid`", Calls: "setpgid",
		Lost: "Only the main child receives signals. With `--no-shield`, it keeps running if `fini` is killed.", Says: []string{noOwnGroup, noGroup}, Alone: Everything, Quick: "only",
	},
	{
		Refused: "`ioctl(TIOCSPGRP)`", Calls: "TIOCSPGRP", Lost: "As PID 1 at a terminal, the command has no process group of its own.",
		Alone: Leftovers, Quick: "launcher",
	},
	{
		Refused: "all of these", Calls: All,
		Lost: "All of the above. The command still runs, receives signals and returns its status. If the outer process dies, it is stopped.",
		Says: []string{noBond, noSubreaper, noOwnGroup, noGroup}, Left: Leftovers, Unbound: true, Inner: Everything, Alone: Everything, Quick: "launcher",
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
