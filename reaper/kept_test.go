package reaper

import (
	"fmt"
	"runtime"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A standard stream that was closed when fini started is closed in the child too, and only that one.
func TestSpawnKeepsClosedStreams(t *testing.T) {
	const script = `n=0; for fd in 0 1 2; do n=$((n * 2)); test -e /proc/$$/fd/$fd && n=$((n + 1)); done; exit $n`
	for closed, want := range map[[3]bool]int{
		{}:                   0b111,
		{true}:               0b011,
		{false, true}:        0b101,
		{false, false, true}: 0b110,
		{true, true, true}:   0b000,
	} {
		child, err := Spawn(Command{Args: []string{"/bin/sh", "-c", script}, Closed: closed, Terminal: -1})
		check(t, err)
		if got := wait4(t, child); got != want {
			t.Errorf("of the streams %v were closed: the child has %03b, want %03b", closed, got, want)
		}
	}
}

// The child starts with the signals blocked that were blocked when fini started, whatever this thread blocks; and this
// thread blocks the same signals as before.
func TestSpawnKeepsBlockedSignals(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	mask := func(how int, set *unix.Sigset_t) (before uint64) {
		var old unix.Sigset_t
		check(t, unix.PthreadSigmask(how, set, &old))
		return *(*uint64)(unsafe.Pointer(&old))
	}
	var own unix.Sigset_t
	*(*uint64)(unsafe.Pointer(&own)) = 1 << (unix.SIGUSR1 - 1)
	defer func(before uint64) {
		*(*uint64)(unsafe.Pointer(&own)) = before
		mask(unix.SIG_SETMASK, &own)
	}(mask(unix.SIG_SETMASK, &own))

	const usr1, others = 1 << (unix.SIGUSR1 - 1), 1<<(unix.SIGTERM-1) | 1<<(40-1)
	for _, c := range []struct {
		blocked *uint64
		want    uint64
	}{{nil, usr1}, {new(uint64), 0}, {&[]uint64{others}[0], others}} {
		script := fmt.Sprintf(`while read -r key value; do test "$key $value" = "SigBlk: %016x" && exit 42; done </proc/$$/status`, c.want)
		child, err := Spawn(Command{Args: []string{"/bin/sh", "-c", script}, Blocked: c.blocked, Terminal: -1})
		check(t, err)
		if status := wait4(t, child); status != 42 {
			t.Errorf("the child does not block %#x", c.want)
		}
		if now := mask(unix.SIG_BLOCK, nil); now != usr1 {
			t.Errorf("after the start of a child that blocks %#x this thread blocks %#x, want %#x", c.want, now, usr1)
		}
	}
}

// A child may be reaped by the kernel between the look at it and its reaping: see CLONE_AUTOREAP. That does not say that no
// child is left.
func TestReapWhatIsGone(t *testing.T) {
	alone(t, func(t *testing.T) {
		until, end := inheritedEnd(t)
		stays, goes := spawnSelf(t, "@stay", until), spawnSelf(t, "@orphans", "0", until)
		takes := func(pid int) string {
			_, err := unix.Wait4(pid, nil, 0, nil)
			check(t, err)
			return ""
		}
		hasEnded(t)
		if exits, none, err := Reap(takes); len(exits) != 0 || none || err != nil {
			t.Errorf("%d is reaped already and %d stays, and Reap says %v, %t, %v", goes.Pid, stays.Pid, exits, none, err)
		}
		_ = end.Close()
		hasEnded(t)
		if exits, none, err := Reap(nil); len(exits) != 1 || !none || err != nil {
			t.Errorf("%d has ended, and Reap says %v, %t, %v", stays.Pid, exits, none, err)
		}
	})
}
