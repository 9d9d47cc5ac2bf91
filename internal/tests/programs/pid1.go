package programs

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// runPID1 mounts the /proc of a new PID namespace and executes args.
func runPID1(args []string) int {
	must(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
	must(unix.Mount("proc", "/proc", "proc", 0, ""))
	must(syscall.Exec(args[0], args, os.Environ()))
	return 1
}
