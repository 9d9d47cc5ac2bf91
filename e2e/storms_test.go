package e2e

import (
	"fmt"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// size is what a fini takes that must not grow.
type size struct {
	threads string
	fds     int
}

func sizeOf(t testing.TB, pid int) size {
	t.Helper()
	return size{procStatus(pid, "Threads"), countFDs(t, pid)}
}

// sizes are those of fini, or of both of the pair.
func (l *life) sizes() [2]size {
	l.t.Helper()
	return [2]size{sizeOf(l.t, l.pid()), sizeOf(l.t, l.worker())}
}

// Orphans by the thousand: each is a grandchild of the command whose parent has ended. 100,000 take a
// minute on a slow machine, so that there are fewer where FINI_FULL does not ask for them.
func TestStormOfOrphans(t *testing.T) {
	t.Parallel()
	many := quickOrFull(2_000, 100_000)
	// The second half of them begins with a line on stdin.
	program := fmt.Sprintf(`first: fork parent
		wait
		loop %[1]d first
		say half
		read
		second: fork parent
		wait
		loop %[1]d second
		say made
		read
		exit 4
		parent: fork orphan
		exit 0
		orphan: exit 0`, many/2-1)
	inPlaces(t, func(t *testing.T, p place) {
		h, l := startInCgroup(t, p, append([]string{"--"}, mode("script", program)...)...)
		l.caught()
		l.next(t, "half", time.Duration(many)*10*time.Millisecond)
		before := l.sizes()
		start := time.Now()
		write(t, l, "a")
		l.next(t, "made", time.Duration(many)*10*time.Millisecond)
		worker := l.worker()
		until(t, "all orphans reaped", func() bool { return len(childrenOf(t, worker)) == 1 })
		t.Logf("%d orphans in %.1f s", many/2, time.Since(start).Seconds())
		if after := l.sizes(); after != before {
			t.Errorf("threads and descriptors: %v, before the second half %v", after, before)
		}
		write(t, l, "b")
		h.mustLeaveNothing(t, l, 4)
		if said := l.Err.whole(); said != "" {
			t.Errorf("stderr: %q", said)
		}
	})
}

// next waits longer than the patience for a line.
func (l *life) next(t testing.TB, want string, long time.Duration) {
	t.Helper()
	select {
	case line := <-l.Out.c:
		if line != want {
			t.Fatalf("%q instead of %q", line, want)
		}
	case <-time.After(patience + long):
		t.Fatalf("no line %q", want)
	}
}

// Thousands of signals in a row from two senders. The kernel makes one of those that are pending at the
// same time, so how many arrive is open; that the last ones do, after all the others, is not.
func TestStormOfSignals(t *testing.T) {
	t.Parallel()
	const senders = 2
	each := quickOrFull(1000, 5000)
	inPlaces(t, func(t *testing.T, p place) {
		t.Parallel()
		h, l := startInCgroup(t, p, append([]string{"--"}, mode("signals", "12")...)...)
		l.Out.want("ready")
		l.caught()
		l.signal(unix.SIGUSR1)
		l.Out.want("signal 10") // so fini is done with what it does at a start
		before := l.sizes()
		some := []syscall.Signal{unix.SIGUSR1, unix.SIGHUP, unix.SIGINT, unix.SIGWINCH, unix.SIGCONT, 40, 41, 64}
		var all sync.WaitGroup
		for range senders {
			all.Go(func() {
				for i := range each {
					_ = l.cmd.Process.Signal(some[i%len(some)])
				}
			})
		}
		all.Wait()
		l.signal(unix.SIGTERM)
		l.Out.want("signal 15")
		if after := l.sizes(); after != before {
			t.Errorf("threads and descriptors: %v, before %v", after, before)
		}
		l.signal(unix.SIGUSR2)
		h.mustLeaveNothing(t, l, 7)
		if said := l.Err.whole(); said != "" {
			t.Errorf("stderr: %q", said)
		}
	})
}

// Signals come without a pause while leftovers are being stopped.
func TestStormOfSignalsDuringTheStop(t *testing.T) {
	t.Parallel()
	inPlaces(t, func(t *testing.T, p place) {
		t.Parallel()
		h, l := startInCgroup(t, p, append([]string{"-q", "--linger=50ms", "--grace=300ms", "--"},
			mode("script", `lay: fork x
				loop 9 lay
				read
				exit 4
				x: setsid
				ignore 15
				say ready
				pause`)...)...)
		for range 10 {
			l.Out.want("ready")
		}
		l.caught()
		ended, sent := make(chan struct{}), make(chan int)
		go func() {
			n := 0
			for ; ; n++ {
				select {
				case <-ended:
					sent <- n
					return
				default:
					_ = l.cmd.Process.Signal([]syscall.Signal{unix.SIGUSR1, unix.SIGWINCH, unix.SIGCONT}[n%3])
				}
			}
		}()
		// These three don't end the command but where it has no handler, so it is asked to first.
		write(t, l, "go\n")
		status := l.status()
		close(ended)
		t.Logf("%d signals", <-sent)
		if status != 4 && status != 128+int(unix.SIGUSR1) {
			t.Errorf("status %d", status)
		}
		h.mustLeaveNothing(t, l, status)
	})
}

var termKinds = []struct{ name, first string }{{"end by SIGTERM", ""}, {"ignore SIGTERM", "ignore 15"}}

// Leftovers by the thousand, and as many that ignore SIGTERM: five thousand where FINI_FULL asks
// for them, for it takes longer to make them than to end them.
func TestStormOfLeftovers(t *testing.T) {
	t.Parallel()
	const grace = time.Second
	many := quickOrFull(500, 5000)
	inPlaces(t, func(t *testing.T, p place) {
		for _, kind := range termKinds {
			if !full() && p.alone == (kind.first != "") {
				continue // one kind in each place: to make so many takes its time
			}
			t.Run(kind.name, func(t *testing.T) {
				h, l := startInCgroup(t, p, append([]string{"--linger=0", "--grace=" + grace.String(), "--"}, mode("script", fmt.Sprintf(`%s
					lay: fork x
					loop %d lay
					say laid
					read
					exit 4
					x: setsid
					pause`, kind.first, many-1))...)...)
				l.Out.want("laid")
				l.caught()
				if n := len(h.alive()); n < many {
					t.Errorf("%d are there", n)
				}
				worker := l.worker()
				before := sizeOf(t, worker)
				start := time.Now()
				write(t, l, "go\n")
				// It says so of each that it asks, of the first ones by name.
				l.Err.want("fini: stopping leftover ")
				if during := sizeOf(t, worker); during.threads != "" && during.threads != before.threads {
					t.Errorf("%s threads while it stops them, %s before", during.threads, before.threads)
				}
				h.mustLeaveNothing(t, l, 4)
				t.Logf("ended within %.1f s", time.Since(start).Seconds())
			})
		}
	})
}

// A deep tree: each process is the child of the one before, and leads a session of its own.
func TestDeepTree(t *testing.T) {
	t.Parallel()
	const grace = 500 * time.Millisecond
	deep := quickOrFull(200, 1000)
	inPlaces(t, func(t *testing.T, p place) {
		if !full() && p != pair {
			return // it takes its time to grow
		}
		for _, kind := range []struct{ name, first string }{{"end by SIGTERM", ""}, {"ignore SIGTERM", `trap "" TERM`}} {
			t.Run(kind.name, func(t *testing.T) {
				// Each is a program of its own: memory that a thousand generations share makes a fork very slow.
				down := `if [ $1 = 0 ]; then echo deep; exec sleep 1000; fi
					setsid /bin/sh -c "$0" "$0" $(($1 - 1)) & while :; do wait; done`
				h, l := startInCgroup(t, p, "--linger=0", "--grace="+grace.String(), "--", "/bin/sh", "-c", kind.first+`
					/bin/sh -c "$0" "$0" "$1" &
					read go; exit 4`, down, fmt.Sprint(deep))
				l.Out.want("deep")
				if n := len(h.alive()); n < deep {
					t.Errorf("%d are there", n)
				}
				start := time.Now()
				write(t, l, "go\n")
				h.mustLeaveNothing(t, l, 4)
				t.Logf("ended within %.1f s", time.Since(start).Seconds())
			})
		}
	})
}
