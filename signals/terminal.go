package signals

import (
	"golang.org/x/sys/unix"
)

// HasTerminal reports whether this process has a controlling terminal, which sends signals, such as the SIGINT of
// Ctrl-C, to a process group of the session. See credentials(7).
func HasTerminal() bool {
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

// Foreground returns a standard stream that is the controlling terminal, if this
// process's group is in its foreground; -1 otherwise. See tcgetpgrp(3).
func Foreground() int {
	for fd := range 3 {
		if group, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP); err == nil && group == unix.Getpgrp() {
			return fd
		}
	}
	return -1
}

// TakeForeground makes this process's group the foreground of the controlling terminal, if there is a terminal: from
// then on the SIGINT of Ctrl-C reaches this process. See tcsetpgrp(3).
func TakeForeground() {
	tty := openTerminal()
	if tty < 0 {
		return
	}
	defer func() { _ = unix.Close(tty) }()
	// SIGTTOU suspends a group in the background for this call, unless the signal is blocked.
	_ = Quietly(func() error {
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
