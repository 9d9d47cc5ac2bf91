package rig

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"testing"
	"time"
)

// Each tree says "ready" when all of it runs, and its main child then waits for a line.
// At the end of stdin it goes on: only a signal ends it.
var Trees = []struct{ Name, Script string }{
	// npx: the client, npm exec, sh -c and the server.
	{"npx", `sh -c 'sh -c "(echo ready; exec sleep 1000); :"; :' & read go || sleep 1000`},
	{"holder", `setsid sh -c '(echo ready; exec sleep 1000); :' & read go || sleep 1000`},
	{"quiet", `mkfifo $DIR/f; setsid sh -c 'echo >$DIR/f; exec sleep 1000 </dev/null >/dev/null 2>&1' &
		read x <$DIR/f; echo ready; read go || sleep 1000`},
	{"stubborn", `trap "" TERM INT HUP; setsid sh -c 'sh -c "(echo ready; exec sleep 1000); :"; :' &
		read go || { sleep 1000; sleep 1000; }`},
}

// A stubborn leftover keeps fini at stopping it.
const stubbornLeftover = `setsid sh -c 'trap "" TERM; (echo stubborn; exec sleep 1000); :' & `

// A bound life is one whose launcher is a process of its own, and can be killed.
type BoundLife struct {
	*Life
	Launcher int
	Outer    int // 0 until its line was read
}

// Launch starts a launcher in a session of its own, which starts fini. Were it in the session
// of the process that inherits fini, a launcher that was gone before fini's first instruction
// would go unnoticed, as the README says.
func Launch(t testing.TB, p Place, args ...string) *BoundLife {
	t.Helper()
	return LaunchBy(t, nil, p, args...)
}

// LaunchBy has words before those of fini, which execute it.
func LaunchBy(t testing.TB, before []string, p Place, args ...string) *BoundLife {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", slices.Concat([]string{"@launcher"}, before, p.Command(args...).Args)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.Env = append(os.Environ(), "DIR="+t.TempDir())
	l := &BoundLife{Life: StartCmd(t, cmd)}
	l.Launcher = l.PID()
	l.Outer = l.Out.Launched()
	return l
}

// MustVanish asserts that everything ends within a ladder after it was told to. A tree that outlives the ladder by ten
// seconds, or as much longer as the machine is busy, stays.
func (l *BoundLife) MustVanish(ladder time.Duration) {
	l.T.Helper()
	if !Await(ladder+10*time.Second, func() bool { return HungUp(l.Witness) }) {
		l.T.Fatalf("the tree has not ended, where one ladder is %v; stderr: %s", ladder, l.Err.Text())
	}
}

// Inner finds the inner fini, as soon as there is one.
func (l *BoundLife) Inner() int { return l.ChildOf(l.Outer) }

// Main finds the main child. The first child of the outer fini may leave all to another one.
func (l *BoundLife) Main() (pid int) {
	Until(l.T, "the main child", func() bool {
		for _, inner := range ChildrenOf(l.T, l.Outer) {
			for _, pid = range ChildrenOf(l.T, inner) {
				return true
			}
		}
		return HungUp(l.Witness)
	})
	return pid
}

// ChildOf is 0 where all is over before there is one.
func (l *BoundLife) ChildOf(pid int) int {
	var children []int
	Until(l.T, fmt.Sprintf("a child of %d", pid), func() bool {
		children = ChildrenOf(l.T, pid)
		return len(children) > 0 || HungUp(l.Witness)
	})
	if len(children) == 0 {
		return 0
	}
	return children[0]
}

var Victims = []struct {
	Name  string
	Pids  func(l *BoundLife) []int // negative for a process group
	Quick string                   // the group of the command in which make test kills it
}{
	{"launcher", func(l *BoundLife) []int { return []int{l.Launcher} }, "own"},
	{"outer fini", func(l *BoundLife) []int { return []int{l.Outer} }, "job"},
	{"inner fini", func(l *BoundLife) []int { return []int{l.Inner()} }, "own"},
	{"main child", func(l *BoundLife) []int { return []int{l.Main()} }, "job"},
	{"launcher's group", func(l *BoundLife) []int {
		// Until the inner fini has left that group, SIGKILL would end both of the pair.
		Until(l.T, "the inner fini has a group of its own", func() bool {
			return HungUp(l.Witness) || slices.ContainsFunc(ChildrenOf(l.T, l.Outer), func(pid int) bool { return GroupOf(pid) == pid })
		})
		return []int{-l.Launcher}
	}, "own"},
	{"launcher and outer fini", func(l *BoundLife) []int { return []int{l.Launcher, l.Outer} }, "job"},
}

// The moments at which a victim is killed. Each returns when it has come, to a tree that the shell makes after First.
var Moments = []struct {
	Name, First string
	Come        func(l *BoundLife)
	Quick       string // the tree with which make test has it
}{
	{"at the start", "", func(*BoundLife) {}, "npx"},
	{"running", "", func(l *BoundLife) { l.Out.Want("ready") }, "holder"},
	{"in the ladder", "", func(l *BoundLife) {
		l.Out.Want("ready")
		_ = l.Stdin.Close()
		l.Err.Want("fini: waiting for the command: standard input has closed")
	}, "quiet"},
	{"stopping leftovers", stubbornLeftover, func(l *BoundLife) {
		for range 2 { // "stubborn" and "ready", in any order
			l.Out.Next()
		}
		Write(l.T, l.Life, "go\n")
		l.Err.Want("fini: stopping leftover")
	}, "stubborn"},
}

const (
	WithPidfds    = "with pidfds"
	WithoutPidfds = "without pidfds"
)

// WithAndWithoutPidfds runs a test where fini has pidfds, and where it has not. before are the words that
// execute fini. In make test it is the quick one of the two.
func WithAndWithoutPidfds(t *testing.T, quick string, test func(t *testing.T, before []string)) {
	t.Helper()
	for name, before := range map[string][]string{WithPidfds: nil, WithoutPidfds: Mode("refuse", BeforePidfds)} {
		Case(t, name == quick, name, func(t *testing.T) {
			t.Parallel()
			test(t, before)
		})
	}
}

// OutOfTime starts a life with a timeout that runs out after the life has said "ready": with a longer one
// if it did before that.
func OutOfTime(t testing.TB, start func(t testing.TB, timeout string) *Life) (l *Life) {
	t.Helper()
	for timeout := time.Second; timeout < 2*Patience; timeout *= 4 {
		l = start(t, "--timeout="+timeout.String())
		if line, _ := l.Out.Next(); line == "ready" {
			return l
		}
		_ = l.Status()
	}
	t.Fatalf("no time is long enough; stderr: %s", l.Err.Text())
	return nil
}
