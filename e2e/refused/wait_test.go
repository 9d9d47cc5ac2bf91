package refused

import (
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/internal/tests/need"
	"golang.org/x/sys/unix"
)

// There is no command without the calls that fini can't do without: it names the first that is refused.
func TestNeededCallIsRefused(t *testing.T) {
	t.Parallel()
	rig.InPlaces(t, rig.Pair, func(t *testing.T, p rig.Place) {
		for _, call := range []string{"wait4", "waitid", "epoll_create1", "epoll_ctl", "epoll_pwait"} {
			t.Run(call, func(t *testing.T) {
				t.Parallel()
				l := rig.StartCmd(t, under(call+":EPERM", p, "--", "/bin/echo", "started"))
				l.MustEnd(125)
				rig.MustRecord(t, "the command says", l.Out.Rest())
				rig.WantOnce(t, l.Err.Whole(), "fini: cannot do without "+call+"(2): operation not permitted")
			})
		}
	})
}

// A filter may refuse kill(2) and let pidfd_send_signal(2) pass. Then the command still gets its signals, and a leftover
// that ignores SIGTERM its SIGKILL, be it a child of fini's or not.
func TestKillIsRefused(t *testing.T) {
	t.Parallel()
	for _, p := range []rig.Place{rig.Pair, rig.Alone} { // PID 1 ends its namespace
		t.Run(p.Name, func(t *testing.T) {
			t.Parallel()
			l := goOn(t, under("kill:EPERM", p, "--linger=0", "--grace=50ms", "--", "/bin/sh", "-c",
				"trap 'exit 7' TERM; "+strings.Replace(leftover, "exit 3", "echo main; while :; do sleep .01; done", 1)))
			l.Out.Want("main")
			l.Signal(syscall.SIGTERM)
			l.MustEnd(7)
			var want []string
			if p == rig.Pair {
				want = []string{noPair}
			}
			rig.MustRecord(t, "fini says", complaints(l.Err.Whole()), want...)
		})
	}
}

// A supervisor that answers each wait4(2) late does not keep fini from its work: the runtime must not interrupt the call
// every 10 ms, because the call then begins anew. See seccomp_unotify(2).
func TestLateAnswers(t *testing.T) {
	t.Parallel()
	const late = 50 * time.Millisecond
	lives, listeners := make(chan *rig.Life), make(chan int, 1)
	go func() {
		runtime.LockOSThread() // the thread with the filter ends with this goroutine
		listener := listen(unix.SYS_WAIT4)
		listeners <- listener
		if listener >= 0 {
			lives <- rig.Start(t, rig.Pair, "-q", "--linger=0", "--", "/bin/sh", "-c", "setsid sleep 1000 & exit 7")
		}
	}()
	listener := <-listeners
	need.That(t, listener >= 0, "seccomp_unotify(2)")
	go func() {
		for {
			fds := []unix.PollFd{{Fd: int32(listener), Events: unix.POLLIN}}
			if _, err := unix.Poll(fds, -1); err == unix.EINTR {
				continue
			}
			if fds[0].Revents&unix.POLLIN == 0 { // all who might ask have ended
				_ = unix.Close(listener)
				return
			}
			var asked struct { // struct seccomp_notif
				id uint64
				_  [72]byte
			}
			_, _, _ = unix.Syscall(unix.SYS_IOCTL, uintptr(listener), 0xc0502100, uintptr(unsafe.Pointer(&asked)))
			time.Sleep(late)   // it is the test: this supervisor is late
			answer := struct { // struct seccomp_notif_resp
				id         uint64
				value      int64
				err, flags uint32
			}{id: asked.id, flags: 1} // SECCOMP_USER_NOTIF_FLAG_CONTINUE
			_, _, _ = unix.Syscall(unix.SYS_IOCTL, uintptr(listener), 0xc0182101, uintptr(unsafe.Pointer(&answer)))
		}
	}()
	(<-lives).MustEnd(7)
}

// listen gives this thread a filter that hands a system call to the descriptor that it returns, -1 if the kernel can't.
func listen(number uint32) int {
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 1, K: number},
		{Code: unix.BPF_RET, K: unix.SECCOMP_RET_USER_NOTIF},
		{Code: unix.BPF_RET, K: unix.SECCOMP_RET_ALLOW},
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != nil {
		return -1
	}
	fd, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_NEW_LISTENER, uintptr(unsafe.Pointer(&program)))
	if errno != 0 {
		return -1
	}
	return int(fd)
}
