package kill9

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/e2e/rig/kills"
	"github.com/seed-126c5d8a/fini/e2e/rig/refusals"
	"github.com/seed-126c5d8a/fini/e2e/rig/runners"
	"github.com/seed-126c5d8a/fini/internal/tests/need"
	"github.com/seed-126c5d8a/fini/internal/tests/procfs"
)

func TestMain(m *testing.M) { rig.Main(m) }

func TestKillMatrix(t *testing.T) {
	t.Parallel()
	killMatrix(t, nil)
}

// The same where the kernel is old, or a sandbox or a filter has less: nothing is lost.
func TestKillMatrixWithoutPidfds(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"ENOSYS", "EPERM"} {
		rig.Case(t, kind == "ENOSYS", kind, func(t *testing.T) {
			t.Parallel()
			killMatrix(t, rig.Mode("refuse", refusals.BeforePidfds+":"+kind))
		})
	}
}

// killMatrix kills each victim at each moment. before are the words that start fini. Each victim at each moment is quick
// for the moment's tree and in the victim's group.
func killMatrix(t *testing.T, before []string) {
	const grace, linger = 300 * time.Millisecond, 50 * time.Millisecond
	for _, victim := range kills.Victims {
		for _, moment := range kills.Moments {
			for _, tree := range kills.Trees {
				if victim.Name == "main child" && moment.Name == "stopping leftovers" {
					continue // it is gone by then
				}
				for _, group := range []string{"own", "job"} {
					rig.Case(t, tree.Name == moment.Quick && group == victim.Quick, victim.Name+"/"+moment.Name+"/"+tree.Name+"/"+group+" group", func(t *testing.T) {
						t.Parallel()
						hit := false // on a busy machine the ladder may have come to its end before
						for range rig.Rounds(t, rig.QuickOrFull(1, 20), "the victim was there to be killed", func() bool { return hit }) {
							l := rig.LaunchBy(t, before, rig.Pair, "-v", "-i", "--foreground="+strconv.FormatBool(group == "job"),
								"--grace="+grace.String(), "--linger="+linger.String(), "--", "/bin/sh", "-c", moment.First+tree.Script)
							moment.Come(l)
							for _, pid := range victim.Pids(l) {
								hit = pid != 0 && syscall.Kill(pid, syscall.SIGKILL) == nil || hit
							}
							l.MustVanish()
						}
					})
				}
			}
		}
	}
}

// As PID 1 fini's death is the namespace's, and no launcher's death is.
func TestKillMatrixAsPID1(t *testing.T) {
	t.Parallel()
	rig.NeedPidNamespace(t)
	for _, tree := range kills.Trees {
		for _, victim := range []string{"fini", "main child"} {
			t.Run(victim+"/"+tree.Name, func(t *testing.T) {
				t.Parallel()
				cmd := rig.PID1.Command("--grace=300ms", "--linger=50ms", "--", "/bin/sh", "-c", tree.Script)
				cmd.Env = append(os.Environ(), "DIR="+t.TempDir())
				l := rig.StartCmd(t, cmd)
				l.Out.Want("ready")
				pid := l.PID()
				if victim == "main child" {
					pid = procfs.ChildrenOf(t, pid)[0]
				}
				rig.MustKill(t, pid, syscall.SIGKILL)
				l.MustEnd(128 + 9)
			})
		}
	}
}

// No policy leaves anything to a launcher that is gone, nor to a fini that was killed.
func TestDeathOverrulesThePolicy(t *testing.T) {
	t.Parallel()
	for _, policy := range []string{"leave", "wait", "pipes"} {
		for _, victim := range kills.Victims[:3] {
			t.Run(policy+"/"+victim.Name, func(t *testing.T) {
				t.Parallel()
				l := rig.Launch(t, rig.Pair, "--orphans="+policy, "--grace=300ms", "--linger=50ms", "--", "/bin/sh", "-c", kills.Trees[2].Script)
				l.Out.Want("ready")
				rig.MustKill(t, victim.Pids(l)[0], syscall.SIGKILL)
				l.MustVanish()
			})
		}
	}
}

// What can't be had outside a PID namespace: nobody is left to end the tree. The kernel
// still asks the command, as its parent dies.
func TestBothOfThePairKilledAtOnce(t *testing.T) {
	t.Parallel()
	l := rig.Launch(t, rig.Pair, append([]string{"--"}, rig.Mode("signals")...)...)
	command := l.Out.WantPID("ready ")
	inner := l.Inner()
	// Stopped, the outer one can't act on the death of the inner one. The other way round the kernel would continue the inner one.
	rig.MustKill(t, l.Outer, syscall.SIGSTOP)
	rig.Until(t, "the outer fini is stopped", func() bool { return procfs.IsStopped(l.Outer) })
	rig.MustKill(t, inner, syscall.SIGKILL)
	rig.MustKill(t, l.Outer, syscall.SIGKILL)
	l.Out.Want("signal 15")
	if rig.HungUp(l.Witness) {
		t.Error("a command that ignores SIGTERM is gone: the README says that it stays")
	}
	rig.MustKill(t, command, syscall.SIGKILL)
}

// A runner's SIGKILL for fini's group spares the inner fini from the command's first instruction on.
func TestGroupIsKilledAtOnce(t *testing.T) {
	t.Parallel()
	const kills = `trap "" TERM; kill -KILL -$GROUP; setsid sleep 1000 & sleep 1000`
	for name, argv := range map[string][]string{
		"the command has its own group": {"--", "sh", "-c", kills},
		"it stays in the job":           {"--foreground", "--", "setsid", "sh", "-c", kills}, // setsid(1) does not lead that
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for range rig.QuickOrFull(20, 100) {
				argv := append([]string{"sh", "-c", `GROUP=$$ exec "$0" "$@"`, rig.Fini, "-q", "--grace=100ms", "--linger=0"}, argv...)
				s := runners.StartStep(t, runners.OwnGroup, argv...)
				s.Out.Rest() // to EOF
				s.MustHaveStatus(128 + int(syscall.SIGKILL))
				s.MustBeGone()
			}
		})
	}
}

// Without a pair the kernel kills the main child with fini: see PR_SET_PDEATHSIG in prctl(2). The main child's descendants
// survive.
func TestFiniAloneIsKilled(t *testing.T) {
	t.Parallel()
	l := rig.Launch(t, rig.Alone, "--", "/bin/sh", "-c", `trap "" TERM; sleep 1000 & echo sleep $!; echo main $$; wait`)
	sleep, main := l.Out.WantPID("sleep "), l.Out.WantPID("main ")
	t.Cleanup(func() { _ = syscall.Kill(sleep, syscall.SIGKILL) }) // then the main child ends too
	rig.MustKill(t, l.Outer, syscall.SIGKILL)
	rig.Until(t, "the end of a main child that ignores SIGTERM", func() bool { return procfs.StatOf(main).Gone() })
	rig.MustStay(t, "its child", sleep)
}

// Whoever may look at fini may open what its descriptors are once more: neither process may have one by which
// that hides an end, or tells one that has not been.
func TestTreeCannotOpenWhatThePairTells(t *testing.T) {
	t.Parallel()
	l := rig.Launch(t, rig.Pair, "--grace=1s", "--", need.Program(t, "bash"), "-c", `
		outer=$(cut -d " " -f 4 /proc/$PPID/stat)
		for fd in /proc/{$PPID,$outer}/fd/*; do
			case ${fd##*/}:$(readlink $fd) in
			[0-2]:*) ;;
			*:pipe:* | *:socket:*) exec {taken}<>$fd && printf %12s >&$taken ;;
			esac
		done 2>/dev/null
		trap "" TERM; echo ready
		while :; do sleep 1000; done`)
	l.Out.Want("ready")
	rig.MustKill(t, l.Outer, syscall.SIGKILL)
	l.MustVanish()
}

// The inner fini notices the end of the outer one by a socket, of which nobody else has the other end: whoever
// had it would hide that end.
func TestOnlyTheOuterHoldsTheLifeline(t *testing.T) {
	t.Parallel()
	refusals.WithAndWithoutPidfds(t, refusals.WithoutPidfds, func(t *testing.T, before []string) {
		for _, group := range []string{"own", "job"} {
			t.Run(group+" group", func(t *testing.T) {
				t.Parallel()
				l := rig.LaunchBy(t, before, rig.Pair, "--foreground="+strconv.FormatBool(group == "job"), "--", "/bin/sh", "-c",
					`setsid sh -c 'echo ready; exec sleep 1000' & read go; exec sleep 1000`)
				l.Out.Want("ready")
				inner, main := l.Inner(), l.Main()
				var own []string
				rig.Until(t, "the outer one has let go of what it inherited", func() bool {
					own = sockets(l.Outer)
					return len(own) == 1 // of the line
				})
				for _, pid := range append(procfs.ChildrenOf(t, main), main, inner) {
					for _, end := range sockets(pid) {
						if slices.Contains(own, end) || pid != inner {
							t.Errorf("%d of the tree has %s, which is an end of the outer one's %q or the inner one's", pid, end, own)
						}
					}
				}
				rig.MustKill(t, l.Launcher, syscall.SIGKILL)
				l.MustVanish()
			})
		}
	})
}

// sockets are those that a process has besides its standard streams.
func sockets(pid int) (found []string) {
	dir := fmt.Sprintf("/proc/%d/fd/", pid)
	entries, _ := os.ReadDir(dir)
	for _, entry := range entries {
		link, _ := os.Readlink(dir + entry.Name())
		if n, _ := strconv.Atoi(entry.Name()); n >= 3 && strings.HasPrefix(link, "socket:") {
			found = append(found, link)
		}
	}
	return found
}

func TestNestedFinis(t *testing.T) {
	t.Parallel()
	for victim, name := range []string{"launcher", "outermost", "second", "third", "innermost"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := rig.Launch(t, rig.Pair, "--grace=300ms", "--", rig.Fini, "--grace=300ms", "--", "/bin/sh", "-c", kills.Trees[1].Script)
			l.Out.Want("ready")
			pid := l.Launcher
			for range victim {
				pid = l.ChildOf(pid)
			}
			rig.MustKill(t, pid, syscall.SIGKILL)
			l.MustVanish()
		})
	}
	t.Run("status", func(t *testing.T) {
		status, stdout, stderr := rig.Ask(t, exec.Command(rig.Fini, "--", rig.Fini, "--", rig.Fini, "/bin/sh", "-c", "echo out; exit 42"))
		if status != 42 || stdout != "out\n" || stderr != "" {
			t.Errorf("status %d, %q, %q", status, stdout, stderr)
		}
	})
}
