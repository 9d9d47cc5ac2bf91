package host

import (
	"golang.org/x/sys/unix"

	"github.com/seed-126c5d8a/fini/internal/files"
)

// hasTerminal reports whether this process has a controlling terminal, which sends signals, such as the SIGINT of
// Ctrl-C, to a process group of the session. See credentials(7).
func hasTerminal() bool {
	for fd := range 3 {
		if _, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP); err == nil {
			return true
		}
	}
	// The standard streams may be redirected.
	fd := openTerminal()
	_ = unix.Close(fd)
	return fd >= 0
}

// foreground returns a standard stream that is the controlling terminal, if this
// process's group is in its foreground; -1 otherwise. See tcgetpgrp(3).
func foreground() int {
	for fd := range 3 {
		if group, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP); err == nil && group == unix.Getpgrp() {
			return fd
		}
	}
	return -1
}

// takeForeground makes this process's group the foreground of the controlling terminal, if there is a terminal: from
// then on the SIGINT of Ctrl-C reaches this process. See tcsetpgrp(3).
func takeForeground() {
	tty := openTerminal()
	if tty < 0 {
		return
	}
	defer func() { _ = unix.Close(tty) }()
	// SIGTTOU suspends a group in the background for this call, unless the signal is blocked.
	_ = files.Quietly(func() error {
		return unix.IoctlSetPointerInt(tty, unix.TIOCSPGRP, unix.Getpgrp())
	})
}

// openTerminal opens the controlling terminal, without waiting for its line; -1 for none.
func openTerminal() int {
	fd, err := unix.Open("/dev/tty", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NOCTTY|unix.O_NONBLOCK, 0)
	if err != nil {
		return -1
	}
	return fd
}
