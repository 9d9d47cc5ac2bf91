package rig

import (
	"os"
	"slices"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/need"
)

// ExecutedBy is a command line that becomes fini in a place, by way of programs that are not
// written in Go.
func (p Place) ExecutedBy(t testing.TB, before []string, args ...string) []string {
	t.Helper()
	fini := append([]string{Fini}, p.Flags()...)
	var argv []string
	if p.PID1 {
		argv = []string{need.Program(t, "unshare"), "--pid", "--fork", "--mount-proc"}
		if os.Geteuid() != 0 {
			argv = append(argv, "--user", "--map-root-user")
		}
	}
	return slices.Concat(argv, before, fini, args)
}
