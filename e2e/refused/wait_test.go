package refused

import (
	"fmt"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/seed-126c5d8a/fini/e2e/need"
	"github.com/seed-126c5d8a/fini/e2e/rig"
	"golang.org/x/sys/unix"
)

const cannotWait = "fini: cannot wait for children: operation not permitted"

// failing is a fini for which calls fail when they are made the nth time, or from that time on.
func failing(t *testing.T, calls, when string, flags ...string) *exec.Cmd {
	t.Helper()
	inject := []string{need.Program(t, "strace"), "-o", "/dev/null", "-e", "trace=" + calls, "-e", "inject=" + calls + ":error=EPERM:when=" + when}
	return rig.Alone.Executed(inject, append(flags, "--linger=0", "--grace=50ms", "--", "/bin/sh", "-c",
		`for n in 1 2 3 4 5 6 7 8 9 10; do (:&); (:&); sleep 0.01; done; setsid sh -c 'trap "" TERM; echo ready; exec sleep 1000' & read line; exit 3`)...)
}

// Only ECHILD says that no child is left. Whichever call of wait4(2) fails for once, fini goes on to the end.
func TestWaitFailsOnce(t *testing.T) {
	t.Parallel()
	for n := 1; n <= 6; n++ {
		for _, call := range []string{"wait4", "waitid"} {
			t.Run(fmt.Sprintf("%s %d", call, n), func(t *testing.T) {
				t.Parallel()
				goOn(t, failing(t, call, fmt.Sprint(n), "-q")).MustEnd(3)
			})
		}
	}
}

// If both calls are refused from some moment on, fini says so once, kills what is there, and gives up within its bounds.
// strace(1) sees one thread, and it is a matter of chance on which one the runtime has fini wait.
func TestWaitFailsForGood(t *testing.T) {
	t.Parallel()
	rig.Long(t)
	said := ""
	for range rig.Rounds(t, 1, "a call is refused", func() bool { return strings.Contains(said, cannotWait) }) {
		l := goOn(t, failing(t, "wait4,waitid", "2+"))
		l.MustEnd(l.Status())
		said = l.Err.Whole()
	}
	rig.WantOnce(t, said, cannotWait)
}

// Without any call that waits for children there is no command.
func TestNoWait(t *testing.T) {
	t.Parallel()
	rig.InPlaces(t, rig.Pair, func(t *testing.T, p rig.Place) {
		l := rig.StartCmd(t, under("wait4,waitid:EPERM", p, "--", "/bin/echo", "started"))
		l.MustEnd(125)
		rig.MustRecord(t, "the command says", l.Out.Rest())
		rig.WantOnce(t, l.Err.Whole(), cannotWait)
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
			time.Sleep(late)
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
