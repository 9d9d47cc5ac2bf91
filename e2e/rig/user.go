package rig

import (
	"os"
	"os/exec"
	"slices"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/need"
)

// An account is one as which a test runs fini.
type Account struct {
	Name string
	As   []string // what to put in front of a command
}

// Users are root and somebody else, or whoever runs the tests.
func Users(t *testing.T) []Account {
	t.Helper()
	if os.Geteuid() != 0 {
		return []Account{{"user", nil}}
	}
	return []Account{
		{"root", nil},
		{"user", []string{need.Program(t, "setpriv"), "--reuid=12345", "--regid=12345", "--groups=12345,12346"}},
	}
}

func (u Account) Command(args ...string) *exec.Cmd {
	words := slices.Concat(u.As, []string{Fini}, args)
	return exec.Command(words[0], words[1:]...)
}
