// Package surroundings sets up what tests rely on, whoever has started them and how.
package surroundings

import (
	"cmp"
	"math"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"github.com/seed-126c5d8a/fini/internal/tests/procfs"
	"golang.org/x/sys/unix"
)

// Own gives this process, and whatever it starts, the umask, signal dispositions and environment that a shell would
// give it.
func Own() {
	for _, entry := range os.Environ() {
		if name, _, _ := strings.Cut(entry, "="); Misleads(name) {
			_ = os.Unsetenv(name)
		}
	}
	_ = os.Setenv("PATH", searchable(os.Getenv("PATH")))
	_ = syscall.Umask(0o022) // other users run what the tests write, and this program
	if self, err := os.Executable(); err == nil {
		_ = os.Chmod(self, 0o755)
	}
	// Whoever started this process may have left descriptors open. With huge pages, a heap is larger than its contents.
	_ = unix.CloseRange(3, math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC)
	_ = unix.Prctl(unix.PR_SET_THP_DISABLE, 1, 0, 0, 0)
	leaveTerminal()
	unblockSignals()
	// With these variables, fini would take a slower way to parse its command line.
	for name := range asked {
		asked[name] = os.Getenv(name)
		_ = os.Unsetenv(name)
	}
	ignored := procfs.Status(os.Getpid(), "SigIgn")
	for sig := syscall.Signal(1); sig <= 64; sig++ {
		// A signal that is caught here has no effect here but its default action in children. With nohup, SIGHUP must
		// not end anything.
		if procfs.MaskHas(ignored, sig) {
			signal.Notify(make(chan os.Signal, 1), sig)
		}
	}
}

// searchable returns PATH without directories that this user may not search. With such a directory, execvp(3) fails
// with EACCES for a program that is in none of the others.
func searchable(path string) string {
	return strings.Join(slices.DeleteFunc(strings.Split(path, ":"), func(dir string) bool {
		return unix.Access(dir, unix.X_OK) == unix.EACCES
	}), ":")
}

// asked contains the values of the variables that are for the tests.
var asked = map[string]string{
	"FINI_BUILT": "", "FINI_DIST": "", "FINI_FULL": "", "FINI_MUST_RUN": "", "FINI_SEED": "", "FINI_SURROUNDED": "",
}

// Asked returns the value of a variable for the tests.
func Asked(name string) string { return cmp.Or(asked[name], os.Getenv(name)) }

// Misleads reports whether a variable would affect fini, or a program that the tests run.
func Misleads(name string) bool {
	if _, ok := asked[name]; ok {
		return false
	}
	switch name {
	case "MAKEFLAGS", "MAKELEVEL", "MFLAGS", // of the make that runs the tests, and not of those in them
		"BASH_ENV", "ENV", "CDPATH", "LANG", "LANGUAGE", "LC_ALL", "LC_MESSAGES": // shells would say other things
		return true
	}
	return strings.HasPrefix(name, "FINI_") || strings.HasPrefix(name, "PYTHON") // an unbuffered Python writes lines in parts
}

// leaveTerminal gives up the controlling terminal, because a command at a terminal is treated differently. This process
// stays in its job, so Ctrl-C still works.
func leaveTerminal() {
	tty, err := unix.Open("/dev/tty", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NOCTTY, 0)
	if err != nil {
		return
	}
	defer func() { _ = unix.Close(tty) }()
	if leader, _ := unix.Getsid(0); leader != os.Getpid() { // a leader would take the terminal from all others
		_ = unix.IoctlSetInt(tty, unix.TIOCNOTTY, 0)
	}
}

// unblockSignals executes this program again if a signal is blocked, because each thread has inherited the signal mask
// from the first one.
func unblockSignals() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var none, blocked unix.Sigset_t
	if err := unix.PthreadSigmask(unix.SIG_SETMASK, &none, &blocked); err != nil || blocked == none {
		return
	}
	_ = syscall.Exec("/proc/self/exe", os.Args, os.Environ())
}
