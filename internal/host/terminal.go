package host

import (
	"golang.org/x/sys/unix"

	"github.com/seed-126c5d8a/fini/internal/files"
)

// hasTerminal reports whether this process has a controlling terminal. Such a terminal sends signals to a process group
// of the session, such as SIGINT for Ctrl-C. See credentials(7).
func hasTerminal() bool {
	for fd := range 3 {
		if _, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP); err == nil {
			return true
		}
	}
	// All standard streams may be redirected, so try the terminal itself.
	fd := openTerminal()
	_ = unix.Close(fd)
	return fd >= 0
}

// foreground returns a standard stream that is connected to the controlling terminal if this process is in the
// terminal's foreground process group, and -1 otherwise. See tcgetpgrp(3).
func foreground() int {
	for fd := range 3 {
		if group, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP); err == nil && group == unix.Getpgrp() {
			return fd
		}
	}
	return -1
}

// takeForeground puts this process's group in the foreground of the controlling terminal, if there is one, so that
// Ctrl-C signals this process. See tcsetpgrp(3).
func takeForeground() {
	tty := openTerminal()
	if tty < 0 {
		return
	}
	defer func() { _ = unix.Close(tty) }()
	// Quietly blocks SIGTTOU, with which the kernel would otherwise suspend a background process for this.
	_ = files.Quietly(func() error {
		return unix.IoctlSetPointerInt(tty, unix.TIOCSPGRP, unix.Getpgrp())
	})
}

// openTerminal opens the controlling terminal without blocking. It returns -1 if there is none.
func openTerminal() int {
	fd, err := unix.Open("/dev/tty", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NOCTTY|unix.O_NONBLOCK, 0)
	if err != nil {
		return -1
	}
	return fd
}
