// Package signals names, catches and sends signals.
//
// Facts it rests on:
//
//   - The Go runtime sends itself SIGURG to preempt goroutines, so SIGURG is
//     neither caught nor forwarded. It keeps SIGPROF and the signals 32 to 34
//     for itself.
//   - A signal that this process ignored when it was started, as nohup has it,
//     stays ignored here and in the command as long as it is never caught.
//   - kill(2) on a process group is atomic against fork: no member escapes it.
//
// It knows nothing of who ended: the caller sees to it that a pid or group it
// sends to has not been reaped.
package signals

import (
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The signals that ask a command to end, or that its user is likely to send in
// its first moments. They are caught before the command starts; each costs two
// thread switches, so the rest waits until it runs.
var early = []syscall.Signal{
	unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2,
}

// Catcher receives the signals sent to this process.
type Catcher struct {
	C <-chan os.Signal // each is a syscall.Signal

	c   chan os.Signal
	all chan struct{} // closed when All is done
}

// Catch starts to receive the signals that matter at once. Call All when the command has
// been started. ignored are those that were ignored when this process started: they stay
// ignored, here and in the command, except for SIGCHLD, without which nothing is reaped.
func Catch(ignored []syscall.Signal) *Catcher {
	KeepIgnored(ignored)
	// signal.Notify drops what finds the channel full. The runtime merges equal
	// pending signals, so this many are never under way.
	c := make(chan os.Signal, 256)
	caught := &Catcher{C: c, c: c, all: make(chan struct{})}
	caught.notify(early)
	return caught
}

// KeepIgnored ignores signals where the runtime has put a handler in the place of SIG_IGN.
func KeepIgnored(ignored []syscall.Signal) {
	for _, sig := range ignored {
		if sig != unix.SIGCHLD && !Ignored(sig) {
			signal.Ignore(sig)
		}
	}
}

// All receives every other signal that a Go program can catch.
func (c *Catcher) All() {
	var rest []syscall.Signal
	for sig := syscall.Signal(1); sig <= rtMax; sig++ {
		if Catchable(sig) {
			rest = append(rest, sig)
		}
	}
	c.notify(rest)
	// The runtime can't catch these, and their default is to end the process. The command
	// has been started, so it does not inherit that they are ignored.
	for _, sig := range []syscall.Signal{32, 33, 34} {
		setAction(sig, &sigaction{sigIgn}, nil)
	}
	close(c.all)
}

// Stop stops this process as sig does by default, and returns when it has been continued;
// at once where it can't be stopped, because it is PID 1 or no shell is there to continue
// its group (an orphaned process group, see setpgid(2)).
func (c *Catcher) Stop(sig syscall.Signal) {
	<-c.all // All changes dispositions, and a SIGCONT must not be missed
	// Sent to this very thread, the signal takes effect before the call returns.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var dfl, caught sigaction // zero is SIG_DFL
	setAction(sig, &dfl, &caught)
	_ = unix.Tgkill(unix.Getpid(), unix.Gettid(), sig)
	setAction(sig, &caught, nil)
}

// notify catches those of the signals that are not ignored. For one that is
// caught already nothing changes.
func (c *Catcher) notify(sigs []syscall.Signal) {
	for _, sig := range sigs {
		if !Ignored(sig) {
			signal.Notify(c.c, sig)
		}
	}
}

// Catchable tells whether a Go program can receive sig from others and pass it on.
// SIGCHLD is left out: it speaks of fini's own children.
func Catchable(sig syscall.Signal) bool {
	switch sig {
	case unix.SIGKILL, unix.SIGSTOP, unix.SIGCHLD, unix.SIGURG, unix.SIGPROF:
		return false
	}
	return sig >= 1 && sig < 32 || sig > rtMin && sig <= rtMax
}

// Ignored tells whether the disposition of sig is SIG_IGN, as far as the runtime has let
// it stand: HUP, INT, TSTP, TTIN, TTOU and CONT. See sigaction(2).
func Ignored(sig syscall.Signal) bool {
	var now sigaction
	setAction(sig, nil, &now)
	return now[0] == sigIgn
}

const sigIgn = 1 // SIG_IGN

// sigaction is the kernel's struct, which begins with the handler on every architecture
// that fini is built for.
type sigaction [8]uintptr

// setAction is rt_sigaction(2): set and old may be nil.
func setAction(sig syscall.Signal, set, old *sigaction) {
	_, _, _ = syscall.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(sig),
		uintptr(unsafe.Pointer(set)), uintptr(unsafe.Pointer(old)), 8, 0, 0)
}

// ToGroup sends sig to the process group that leader leads, and to leader itself
// where it has moved to another group. It is not an error if they have ended. See
// kill(2).
func ToGroup(leader int, sig syscall.Signal) error {
	group := unix.Kill(-leader, sig)
	if pgid, err := unix.Getpgid(leader); group == unix.ESRCH || err == nil && pgid != leader {
		return To(leader, sig)
	}
	return sent(group, leader, sig)
}

// To sends sig to one process. It is not an error if it has ended.
func To(pid int, sig syscall.Signal) error {
	return sent(unix.Kill(pid, sig), pid, sig)
}

func sent(err error, pid int, sig syscall.Signal) error {
	if err == nil || err == unix.ESRCH {
		return nil
	}
	return fmt.Errorf("cannot send %s to %d: %w", Name(sig), pid, err)
}
