// Package surroundings makes so what tests take for granted, whoever started them and how.
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

// Own gives this process the umask, the signals and the environment that a shell would, for all that
// it starts.
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
	// Who started this may have left descriptors open. And with huge pages a heap is larger than what is in it.
	_ = unix.CloseRange(3, math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC)
	_ = unix.Prctl(unix.PR_SET_THP_DISABLE, 1, 0, 0, 0)
	leaveTerminal()
	unblockSignals()
	// A fini that inherited them would take its slower way through the command line.
	for name := range asked {
		asked[name] = os.Getenv(name)
		_ = os.Unsetenv(name)
	}
	ignored := procfs.Status(os.Getpid(), "SigIgn")
	for sig := syscall.Signal(1); sig <= 64; sig++ {
		// What is caught here is at its default in what is started, and still ends nothing here:
		// under nohup SIGHUP is to be survived.
		if procfs.MaskHas(ignored, sig) {
			signal.Notify(make(chan os.Signal, 1), sig)
		}
	}
}

// searchable is PATH without the directories that this user may not search, as root's have some: for
// what is in none of the others execvp(3) fails by EACCES.
func searchable(path string) string {
	return strings.Join(slices.DeleteFunc(strings.Split(path, ":"), func(dir string) bool {
		return unix.Access(dir, unix.X_OK) == unix.EACCES
	}), ":")
}

// asked is what the variables for the tests ask of them.
var asked = map[string]string{
	"FINI_BUILT": "", "FINI_DIST": "", "FINI_FULL": "", "FINI_MUST_RUN": "", "FINI_SEED": "", "FINI_SURROUNDED": "",
}

// Asked returns what a variable asks of the tests.
func Asked(name string) string { return cmp.Or(asked[name], os.Getenv(name)) }

// Misleads reports whether a variable is for fini or for what the tests run, and not for the tests.
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

// leaveTerminal makes this process one without a controlling terminal, as a command at one is
// treated otherwise. It stays in its job, to which Ctrl-C goes.
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

// unblockSignals starts this program once more if a signal is blocked: each thread has a mask of
// its own, which it got from the first one.
func unblockSignals() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var none, blocked unix.Sigset_t
	if err := unix.PthreadSigmask(unix.SIG_SETMASK, &none, &blocked); err != nil || blocked == none {
		return
	}
	_ = syscall.Exec("/proc/self/exe", os.Args, os.Environ())
}
