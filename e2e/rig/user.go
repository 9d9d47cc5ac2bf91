package rig

import (
	"fmt"
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

// NeedIsolation skips a test where a user can't have a PID namespace.
func NeedIsolation(t *testing.T, u Account) {
	t.Helper()
	out, err := u.Command("--isolate", "true").CombinedOutput()
	need.That(t, err == nil, fmt.Sprintf("--isolate as %s (%s)", u.Name, out))
}

// EachUser runs a test as each user who can be isolated. In make test it is one of them, whom the test's name chooses.
func EachUser(t *testing.T, test func(t *testing.T, u Account)) {
	users := Users(t)
	if !All() {
		users = users[turn(t.Name(), len(users)):][:1]
	}
	for _, u := range users {
		t.Run(u.Name, func(t *testing.T) {
			NeedIsolation(t, u)
			test(t, u)
		})
	}
}
