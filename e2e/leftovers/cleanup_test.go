package leftovers

import (
	"syscall"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/rig"
)

// The tests of this file are about requests to end: which signals count as one request, and how a leftover that had one
// cleans up.

// A leftover that had SIGTERM with the command's group is cleaning up (#41.1). One in a session of its own has had
// none, and is asked.
func TestCleanUpIsSpared(t *testing.T) {
	t.Parallel()
	const script = `
		dir=$(mktemp -d); mkfifo $dir/ready
		setsid sh -c 'trap "echo asked; exit" TERM; echo >$0; while :; do sleep 0.05; done' $dir/ready &
		read line <$dir/ready; rm -r $dir
		(sleep 0.05; ` + rig.Cleaner + `) & # older than a tick when it is ready: see UntilOlder
		wait`
	flags := []string{"--grace=5m", "--linger=100ms", "--", "/bin/sh", "-c", script}
	t.Run("--timeout", func(t *testing.T) {
		t.Parallel()
		rig.InPlaces(t, func(t *testing.T, p rig.Place) {
			l := rig.OutOfTime(t, func(t testing.TB, timeout string) *rig.Life {
				return rig.Start(t, p, append([]string{timeout}, flags...)...)
			})
			l.MustDelete("asked")
			l.MustEnd(124)
		})
	})
	t.Run("TERM", func(t *testing.T) {
		t.Parallel()
		rig.InPlaces(t, func(t *testing.T, p rig.Place) {
			l := rig.Start(t, p, flags...)
			l.Out.Want("ready")
			l.Signal(syscall.SIGTERM)
			l.MustDelete("asked")
			l.MustEnd(128 + int(syscall.SIGTERM))
		})
	})
}

// An allowed process that is a member of the command's group gets each signal that the group gets. It gets no other
// signal, and it stays if it survives those (#36.2).
func TestAllowOrphanInTheCommandsGroup(t *testing.T) {
	t.Parallel()
	keepme := rig.Linked(t, "keepme") + " @signals & "
	for _, p := range rig.AloneOrPair(t) {
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
				if tt.says == "heeds" {
					l.MustStay(pids)
					return
				}
				l.MustHaveStatus(128 + int(syscall.SIGKILL))
				// fini does not wait for an allowed process, and SIGKILL ends it when it is given a processor.
				rig.Until(t, "the end of the allowed process", func() bool { return rig.HungUp(l.Witness) })
			})
		}
	}
}
