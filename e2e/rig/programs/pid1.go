package programs

import (
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// runPID1 gives a new PID namespace its /proc and becomes args.
func runPID1(args []string) int {
	err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
	if err == nil {
		err = unix.Mount("proc", "/proc", "proc", 0, "")
	}
	if err == nil {
		err = syscall.Exec(args[0], args, os.Environ())
	}
	fmt.Fprintln(os.Stderr, "@pid1:", err)
	return 98
}
