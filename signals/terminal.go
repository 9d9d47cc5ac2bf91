package signals

import (
	"fmt"

	"golang.org/x/sys/unix"
)

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

// HandForeground gives the foreground of the controlling terminal to a group of the
// session, if this process's own group holds it, and tells whether it did.
func HandForeground(group int) (handed bool, err error) {
	err = withTerminal(func(tty, holder int) error {
		if holder != unix.Getpgrp() {
			return nil
		}
		handed = true
		return setForeground(tty, group)
	})
	return handed, err
}

// TakeForeground gives the foreground back to this process's group, if it is still with
// the group that it was handed to, or with one that has no process any more.
func TakeForeground(from int) error {
	return withTerminal(func(tty, holder int) error {
		if holder != from && unix.Kill(-holder, 0) != unix.ESRCH {
			return nil
		}
		return setForeground(tty, unix.Getpgrp())
	})
}

// withTerminal calls do with the controlling terminal and the group in its foreground. To
// have no such terminal is no error.
func withTerminal(do func(tty, holder int) error) error {
	tty, err := unix.Open("/dev/tty", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NOCTTY, 0)
	if err != nil {
		return nil
	}
	defer func() { _ = unix.Close(tty) }()
	holder, err := unix.IoctlGetInt(tty, unix.TIOCGPGRP)
	if err != nil {
		return fmt.Errorf("cannot ask for the terminal's foreground: %w", err)
	}
	return do(tty, holder)
}

// setForeground is tcsetpgrp(3). A group in the background is stopped by SIGTTOU for it,
// unless that is blocked.
func setForeground(tty, group int) error {
	return blocking(unix.SIGTTOU, func() error {
		if err := unix.IoctlSetPointerInt(tty, unix.TIOCSPGRP, group); err != nil {
			return fmt.Errorf("cannot set the terminal's foreground: %w", err)
		}
		return nil
	})
}
