package runners

import (
	"slices"

	"github.com/seed-126c5d8a/fini/e2e/rig"
)

// Cleaner is a process that cleans up when it gets SIGTERM, for longer than --linger, with a new process for each
// step; "$?" is 143 for a step that got SIGTERM itself. It is in the group of the shell that runs this text.
const Cleaner = `
	trap : INT
	trap 'for i in 1 2 3 4; do sleep 0.3 && echo "delete $i ok" || echo "delete $i FAILED $?"; done; exit' TERM
	echo ready; while :; do sleep 0.05 || :; done`

// MustDelete asserts that a cleaner was spared, and that beside it only this was said.
func MustDelete(l *rig.Life, beside ...string) {
	l.T.Helper()
	want := append(beside, "delete 1 ok", "delete 2 ok", "delete 3 ok", "delete 4 ok")
	got := l.Out.Rest()
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		l.T.Errorf("said are %q, want %q; stderr: %s", got, want, l.Err.Text())
	}
}
