package promises

import (
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/rig"
)

// Promise 2, Nothing left: when fini exits, no process of the tree is alive, even if it called setsid, forked twice or
// ignores SIGTERM.
func TestNothingIsLeft(t *testing.T) {
	t.Parallel()
	const script = `
		setsid sh -c 'trap "" TERM; echo in a session of its own, deaf to SIGTERM; sleep 1000; sleep 1000' &
		sh -c '(setsid sh -c "echo forked twice; exec sleep 1000" &)'
		(echo in the background; exec sleep 1000) &
		read line # until all of them are there
		exit 5`
	rig.InEveryPlace(t, func(t *testing.T, p rig.Place) {
		t.Parallel()
		l := rig.Start(t, p, "--grace=300ms", "--", "sh", "-c", script)
		for range 3 {
			l.Out.Next() // what they say, in any order
		}
		rig.Write(t, l, "all are there\n")
		// With the command's status. Each process of the tree has inherited a pipe, of which none is held open when fini is gone.
		l.MustEnd(5)
	})
}
