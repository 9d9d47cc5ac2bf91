package programs

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// runPID1 gives a new PID namespace its /proc and becomes args.
func runPID1(args []string) int {
	must(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
	must(unix.Mount("proc", "/proc", "proc", 0, ""))
	must(syscall.Exec(args[0], args, os.Environ()))
	return 1
}
