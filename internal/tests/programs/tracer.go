package programs

import (
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// runTracer traces its parent process, or a given one, writes "tracing", and never waits for it. With another argument,
// it continues that process whenever a signal stops it, but does not wait for its end. Only SIGKILL ends runTracer.
func runTracer(args []string) int {
	signal.Ignore(syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT)
	runtime.LockOSThread() // it is a thread that traces
	pid := os.Getppid()
	if len(args) > 0 {
		pid, _ = strconv.Atoi(args[0])
	}
	if err := unix.PtraceSeize(pid); err != nil {
		fmt.Println("cannot trace:", err)
		return 1
	}
	fmt.Println("tracing")
	for len(args) > 1 {
		var info struct { // siginfo_t of a child, see sigaction(2)
			_                 [3]int32
			_                 [0]uintptr
			pid, uid, stopped int32
			_                 [100]byte
		}
		if err := unix.Waitid(unix.P_PID, pid, (*unix.Siginfo)(unsafe.Pointer(&info)), unix.WSTOPPED|unix.WALL, nil); err != nil {
			break
		}
		_ = unix.PtraceCont(pid, int(info.stopped&0xff))
	}
	return forever()
}
