// Package need skips a test that lacks something, and sees to it that the skip is noticed.
package need

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/seed-126c5d8a/fini/internal/tests/surroundings"
)

// That skips a test if what it needs is missing. Under FINI_MUST_RUN=1 that is an error.
func That(t testing.TB, ok bool, what string) {
	t.Helper()
	if ok {
		return
	}
	if surroundings.Asked("FINI_MUST_RUN") == "1" {
		t.Fatalf("FINI_MUST_RUN=1, but this is missing: %s (make deps installs it)", what)
	}
	skip(t, what)
}

// Root skips a test that has to be root, and tells what for, unless it is root with the rights that it has on a machine:
// in a container it may neither mount anything nor read all that is below /proc/PID of another user's process.
func Root(t testing.TB, forWhat ...string) {
	t.Helper()
	That(t, IsRoot(), strings.Join(append([]string{"root with CAP_SYS_ADMIN and CAP_SYS_PTRACE"}, forWhat...), ", "))
}

// IsRoot reports whether this is root with these rights. See capabilities(7).
func IsRoot() bool {
	const all = 1<<unix.CAP_SYS_ADMIN | 1<<unix.CAP_SYS_PTRACE
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var has [2]unix.CapUserData
	return os.Geteuid() == 0 && unix.Capget(&header, &has[0]) == nil && has[0].Effective&all == all
}

// Kernel skips a test of what only some kernels have. No package can be installed for that, so it is
// never an error.
func Kernel(t testing.TB, ok bool, what string) {
	t.Helper()
	if !ok {
		skip(t, "a kernel with "+what)
	}
}

// Program returns the path of a program that is needed, the last one of several.
func Program(t testing.TB, names ...string) (path string) {
	t.Helper()
	for _, name := range names {
		var err error
		path, err = exec.LookPath(name)
		That(t, err == nil, name)
	}
	return path
}

// Module returns the path of a file of an npm package that is needed, for a test whose working directory is e2e.
func Module(t testing.TB, name string) string {
	t.Helper()
	path, err := filepath.Abs("npm/node_modules/" + name)
	if err == nil {
		_, err = os.Stat(path)
	}
	That(t, err == nil, "e2e/npm/node_modules/"+name)
	return path
}

// skip says why in a line that tools/ran counts, for go test shows no skip unless it is asked for everything.
func skip(t testing.TB, what string) {
	t.Helper()
	line, _, _ := strings.Cut(what, "\n")
	t.Skip("SKIPPED, for this is missing: " + line)
}
