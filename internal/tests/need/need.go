// Package need skips tests that lack something, and ensures that somebody notices.
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

// That skips a test if ok is false. If FINI_MUST_RUN=1, it fails the test instead.
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

// Root skips a test that needs root with all its usual capabilities, and says what for. Root in a container may not be
// allowed to mount, or to read everything in /proc about processes of other users.
func Root(t testing.TB, forWhat ...string) {
	t.Helper()
	That(t, IsRoot(), strings.Join(append([]string{"root with CAP_SYS_ADMIN and CAP_SYS_PTRACE"}, forWhat...), ", "))
}

// IsRoot reports whether this process is root with these capabilities. See capabilities(7).
func IsRoot() bool {
	const all = 1<<unix.CAP_SYS_ADMIN | 1<<unix.CAP_SYS_PTRACE
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var has [2]unix.CapUserData
	return os.Geteuid() == 0 && unix.Capget(&header, &has[0]) == nil && has[0].Effective&all == all
}

// Kernel skips a test that needs a property of the kernel. It never fails a test, because no package can be installed
// to provide that.
func Kernel(t testing.TB, ok bool, what string) {
	t.Helper()
	if !ok {
		skip(t, "a kernel with "+what)
	}
}

// Program returns the path of the last of these programs, and skips the test if one is missing.
func Program(t testing.TB, names ...string) (path string) {
	t.Helper()
	for _, name := range names {
		var err error
		path, err = exec.LookPath(name)
		That(t, err == nil, name)
	}
	return path
}

// Module returns the path of a file in an npm package, for tests whose working directory is e2e.
func Module(t testing.TB, name string) string {
	t.Helper()
	path, err := filepath.Abs("npm/node_modules/" + name)
	if err == nil {
		_, err = os.Stat(path)
	}
	That(t, err == nil, "e2e/npm/node_modules/"+name)
	return path
}

// skip writes a line that tools/ran counts, because go test hides skips by default.
func skip(t testing.TB, what string) {
	t.Helper()
	line, _, _ := strings.Cut(what, "\n")
	t.Skip("SKIPPED, for this is missing: " + line)
}
