package rig

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"testing"

	"github.com/seed-126c5d8a/fini/internal/tests/need"
	"golang.org/x/sys/unix"
)

// A place is one of the ways in which fini lives.
type Place struct {
	Name  string
	PID1  bool
	Alone bool // a wrapper without a shield
}

var (
	Pair   = Place{Name: "pair"}
	Alone  = Place{Name: "alone", Alone: true}
	PID1   = Place{Name: "pid1", PID1: true}
	Places = []Place{Pair, Alone, PID1}
)

// Flags is what fini is given to be so.
func (p Place) Flags() []string {
	if p.Alone {
		return []string{"--no-shield"}
	}
	return nil
}

// InPlaces runs a test as each kind of wrapper and as PID 1 of a real PID namespace. In make test it is the quick one of
// these places alone.
func InPlaces(t *testing.T, quick Place, test func(t *testing.T, p Place)) {
	t.Helper()
	for _, p := range Places {
		inPlace(t, p, p == quick, test)
	}
}

// InEveryPlace runs a test in all places, also in make test: the first test of a promise, or a test that differs from place
// to place.
func InEveryPlace(t *testing.T, test func(t *testing.T, p Place)) {
	t.Helper()
	for _, p := range Places {
		inPlace(t, p, true, test)
	}
}

// AloneOrPair are the ways to live outside of a PID namespace. In make test it is the quick one alone.
func AloneOrPair(_ *testing.T, quick Place) []Place {
	if Quick() {
		return []Place{quick}
	}
	return []Place{Pair, Alone}
}

func inPlace(t *testing.T, p Place, quick bool, test func(t *testing.T, p Place)) {
	t.Helper()
	Case(t, quick, p.Name, func(t *testing.T) {
		if p.PID1 {
			NeedPidNamespace(t)
		}
		test(t, p)
	})
}

var pidNamespace = sync.OnceValue(func() error {
	cmd := exec.Command("/proc/self/exe", "@pid1", "/bin/true")
	AsPID1(cmd)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
})

func NeedPidNamespace(t testing.TB) {
	t.Helper()
	err := pidNamespace()
	need.That(t, err == nil, fmt.Sprintf("the right to make a PID namespace (%v)", err))
}

// AsPID1 makes cmd the first process of a new PID namespace.
func AsPID1(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS}
	if os.Geteuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= unix.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
}

// Command is fini with these arguments, in this place. As PID 1 program @pid1 mounts
// /proc first and becomes fini by exec, so that cmd.Process.Pid is fini's pid.
func (p Place) Command(args ...string) *exec.Cmd { return p.Executed(nil, args...) }

// Executed is Command, where prefix is what executes fini.
func (p Place) Executed(prefix []string, args ...string) *exec.Cmd {
	argv := slices.Concat(prefix, []string{Fini}, p.Flags(), args)
	if !p.PID1 {
		return CommandOf(argv)
	}
	cmd := exec.Command("/proc/self/exe", append([]string{"@pid1"}, argv...)...)
	AsPID1(cmd)
	return cmd
}
