package leftovers

import (
	"fmt"
	"strings"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/rig"
)

func TestLeftoverIsStopped(t *testing.T) {
	t.Parallel()
	rig.InPlaces(t, rig.Pair, func(t *testing.T, p rig.Place) {
		t.Parallel()
		l := rig.Start(t, p, "--linger=0", "--", "/bin/sh", "-c", `
			setsid sh -c 'echo leftover $$; exec sleep 1000' &
			read line; exit $line`)
		pid := l.Out.WantPID("leftover ") // a pid as fini sees it, which matters if it is PID 1
		rig.Write(t, l, "3\n")            // only now does the command exit
		l.MustEnd(3)                      // with this status, and with no process left
		l.Err.Want(fmt.Sprintf("fini: stopping leftover %d (", pid))
	})
}

// The page of package rig shows the test above.
func TestPageOfTheRig(t *testing.T) {
	t.Parallel()
	_, test, _ := strings.Cut(rig.ReadFile(t, "leftovers/example_test.go"), "\nfunc TestLeftoverIsStopped(")
	test, _, _ = strings.Cut(test, "\n}\n")
	if page := strings.ReplaceAll(rig.ReadFile(t, "rig/doc.go"), "\n//\t", "\n"); !strings.Contains(page, test+"\n}\n") {
		t.Errorf("e2e/rig/doc.go has not this test:\nfunc TestLeftoverIsStopped(%s\n}", test)
	}
}
