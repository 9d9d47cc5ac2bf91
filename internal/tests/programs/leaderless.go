package programs

import (
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"github.com/seed-126c5d8a/fini/internal/tests/procfs"
	"golang.org/x/sys/unix"
)

// runLeaderless writes "ready" when its first thread has ended. It is then a zombie with other threads. With an
// argument, it ignores SIGTERM.
func runLeaderless(args []string) int {
	if len(args) > 0 {
		signal.Ignore(syscall.SIGTERM)
	}
	go func() {
		for procfs.StatOf(os.Getpid()).State() != 'Z' {
			time.Sleep(time.Millisecond)
		}
		fmt.Println("ready")
		forever()
	}()
	for range 4 {
		go func() {
			runtime.LockOSThread()
			for {
				_ = unix.Pause()
			}
		}()
	}
	_, _, _ = syscall.RawSyscall(unix.SYS_EXIT, 0, 0, 0)
	return 0
}
