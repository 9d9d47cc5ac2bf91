package leftovers

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/e2e/rig/runners"
	"github.com/seed-126c5d8a/fini/internal/tests/need"
	"github.com/seed-126c5d8a/fini/internal/tests/procfs"
)

// The tests of this file are about requests to end: which signals count as one request, and how a leftover that had one
// cleans up.

// A leftover that had SIGTERM with the command's group is cleaning up, and is not asked a second time. One in a session of its own
// has had none, and is asked. Either gets the time that it needs: PID 1 must not end before.
func TestCleanUpIsSpared(t *testing.T) {
	t.Parallel()
	const script = `
		dir=$(mktemp -d); mkfifo $dir/ready
		setsid sh -c 'trap "sleep 1; echo asked; exit" TERM; echo >$0; while :; do sleep 0.05; done' $dir/ready &
		read line <$dir/ready; rm -r $dir
		(sleep 0.05; ` + runners.Cleaner + `) & # older than a tick when it is ready: see UntilOlder
		wait`
	for name, status := range map[string]int{"--timeout": 124, "TERM": 128 + 15} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rig.InPlaces(t, rig.Alone, func(t *testing.T, p rig.Place) {
				start := func(t testing.TB, timeout string) *rig.Life {
					return rig.Start(t, p, timeout, "--grace=5m", "--orphans-grace=5m", "--linger=100ms", "--", "/bin/sh", "-c", script)
				}
				var l *rig.Life
				if name == "TERM" {
					l = start(t, "--timeout=1h")
					l.Out.Want("ready")
					l.Signal(syscall.SIGTERM)
				} else {
					l = rig.OutOfTime(t, start)
				}
				runners.MustDelete(l, "asked")
				l.MustEnd(status)
			})
		})
	}
}

// What was asked with the command keeps --grace from then, although the command has exited at once: a Terraform has its
// two minutes. --orphans-grace is only for those that fini asks after the command's exit.
func TestAskedWithTheCommand(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, flag, cleanUp string }{
		{"quick", "--orphans-grace=0", "1"},
		{"longer than --orphans-grace", "-q", "8"},
	} {
		rig.Case(t, tt.name == "quick", tt.name, func(t *testing.T) {
			t.Parallel()
			rig.InPlaces(t, rig.Pair, func(t *testing.T, p rig.Place) {
				t.Parallel()
				l := rig.OutOfTime(t, func(t testing.TB, timeout string) *rig.Life {
					return rig.Start(t, p, timeout, tt.flag, "--grace=1h", "--linger=100ms", "--", "/bin/sh", "-c",
						`(sleep 0.05; trap 'sleep `+tt.cleanUp+` && echo cleaned; exit' TERM; echo ready; while :; do sleep 0.05 || :; done) & wait`)
				})
				l.Out.Want("cleaned")
				l.MustEnd(124)
			})
		})
	}
}

// A leftover that fini asks after the command's exit has --orphans-grace, which is 5 s under a --grace that is longer.
func TestOrphansGrace(t *testing.T) {
	t.Parallel()
	for flag, want := range map[string]time.Duration{"--orphans-grace=300ms": 300 * time.Millisecond, "-v": 5 * time.Second} {
		rig.Case(t, want < time.Second, flag, func(t *testing.T) {
			t.Parallel()
			rig.InPlaces(t, rig.Pair, func(t *testing.T, p rig.Place) {
				t.Parallel()
				l := rig.Start(t, p, flag, "--grace=1h", "--linger=0", "--", "/bin/sh", "-c",
					`setsid sh -c 'trap "" TERM; echo deaf; while :; do sleep 1000; done' & read end; exit 4`)
				l.Out.Want("deaf")
				asked := time.Now()
				rig.Write(t, l, "go\n")
				l.MustEnd(4)
				if took := time.Since(asked); took < want {
					t.Errorf("it had %v, want %v", took, want)
				}
			})
		})
	}
}

// An allowed process that is a member of the command's group gets each signal that the group gets. It gets no other
// signal, and it stays if it survives those.
func TestAllowOrphanInTheCommandsGroup(t *testing.T) {
	t.Parallel()
	keepme := rig.Linked(t, "keepme") + " @signals & "
	for _, p := range rig.AloneOrPair(t, rig.Pair) {
		for name, tt := range map[string]struct{ killAfter, script, says string }{
			"a command that ends by SIGTERM": {"1h", "echo heeds; exec sleep 1000", "heeds"},
			"a command that is killed":       {"5s", `trap "" TERM; echo deaf; sleep 1000; sleep 1000`, "deaf"},
		} {
			t.Run(name+"/"+p.Name, func(t *testing.T) {
				t.Parallel()
				l := rig.Start(t, p, "--linger=0", "--grace=100ms", "-k", tt.killAfter, "--allow-orphan=keepme", "--", "/bin/sh", "-c",
					keepme+`read line; `+tt.script)
				pids := []int{l.Out.WantPID("ready ")}
				killAtCleanup(t, pids)
				rig.Write(t, l, "go\n")
				l.Out.Want(tt.says)
				l.Signal(syscall.SIGTERM)
				l.Out.Want("signal 15")
				if tt.says == "deaf" {
					l.MustHaveStatus(128 + int(syscall.SIGKILL))
				}
				mustStayAlone(l, pids)
			})
		}
	}
}

// A cleaner in the command's group outlives the command, which SIGKILL ends, and has --linger to clean up: Python's resource
// tracker removes shared memory once the interpreter is gone.
func TestCleanerOutlivesTheCommand(t *testing.T) {
	t.Parallel()
	python := need.Program(t, "python3")
	const script = `
import signal, time
from multiprocessing import shared_memory
signal.signal(signal.SIGTERM, lambda *_: None)
memory = shared_memory.SharedMemory(create=True, size=4096)
print(memory.name, flush=True)
while True: time.sleep(1000)`
	rig.InPlaces(t, rig.Alone, func(t *testing.T, p rig.Place) {
		for _, policy := range []string{"stop", "leave"} {
			l := rig.Start(t, p, "-k", "100ms", "--linger=5m", "--orphans="+policy, "--", python, "-c", script)
			name, _ := l.Out.Next()
			path := filepath.Join("/dev/shm", name)
			if _, err := os.Stat(path); err != nil {
				t.Fatal(err)
			}
			l.Signal(syscall.SIGTERM)
			l.MustEnd(128 + int(syscall.SIGKILL))
			if _, err := os.Stat(path); err == nil {
				_ = os.Remove(path)
				t.Errorf("--orphans=%s: the tracker was killed before it had removed %s", policy, path)
			}
		}
	})
}

// The rest of a stubborn group was asked with the command, so it has --linger and then SIGKILL, under every policy. Whoever
// has left the group is left to the policy.
func TestStubbornGroupEnds(t *testing.T) {
	t.Parallel()
	const script = `trap "" TERM
		stay() { sleep 1000; sleep 1000; }
		stay & echo $!
		stay >/dev/null 2>&1 & echo $!
		setsid sleep 1000 >/dev/null 2>&1 & echo $!
		stay`
	for _, p := range rig.AloneOrPair(t, rig.Pair) {
		for policy, escapeeStays := range map[string]bool{"stop": false, "pipes": true, "wait": false, "leave": true} {
			t.Run(policy+"/"+p.Name, func(t *testing.T) {
				t.Parallel()
				const after, linger = 300 * time.Millisecond, 500 * time.Millisecond
				l := rig.Start(t, p, "-k", after.String(), "--linger="+linger.String(), "--grace=100ms", "--orphans="+policy, "--", "/bin/sh", "-c", script)
				members := []int{l.Out.WantPID(""), l.Out.WantPID("")}
				escapee := l.Out.WantPID("")
				killAtCleanup(t, []int{escapee})
				rig.Until(t, "the escapee has left the group", func() bool {
					return procfs.GroupOf(escapee) == escapee && procfs.Status(escapee, "Name") == "sleep"
				})
				asked := time.Now()
				l.Signal(syscall.SIGTERM)
				l.MustHaveStatus(128 + int(syscall.SIGKILL))
				if took := time.Since(asked); took < after+linger {
					t.Errorf("the group was there for %v, want %v", took, after+linger)
				}
				for _, pid := range members {
					if !procfs.StatOf(pid).Gone() {
						t.Errorf("%d of the group is alive", pid)
						rig.MustKill(t, pid, syscall.SIGKILL)
					}
				}
				if gone := procfs.StatOf(escapee).Gone(); gone == escapeeStays {
					t.Errorf("the escapee is gone: %t", gone)
				}
			})
		}
	}
}
