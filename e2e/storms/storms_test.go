package storms

import (
	"fmt"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/seed-126c5d8a/fini/e2e/rig"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { rig.Main(m) }

// Orphans by the thousand: each is a grandchild of the command whose parent has ended. 100,000 take a
// minute on a slow machine, so that there are fewer where FINI_FULL does not ask for them.
func TestStormOfOrphans(t *testing.T) {
	t.Parallel()
	many := rig.QuickOrFull(2_000, 100_000)
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
	rig.InPlaces(t, func(t *testing.T, p rig.Place) {
		h, l := rig.StartInCgroup(t, p, append([]string{"--"}, rig.Mode("script", program)...)...)
		l.Caught()
		l.Next(t, "half", time.Duration(many)*10*time.Millisecond)
		before := l.Sizes()
		start := time.Now()
		rig.Write(t, l, "a")
		l.Next(t, "made", time.Duration(many)*10*time.Millisecond)
		worker := l.Worker()
		rig.Until(t, "all orphans reaped", func() bool { return len(rig.ChildrenOf(t, worker)) == 1 })
		t.Logf("%d orphans in %.1f s", many/2, time.Since(start).Seconds())
		if after := l.Sizes(); after != before {
			t.Errorf("threads and descriptors: %v, before the second half %v", after, before)
		}
		rig.Write(t, l, "b")
		h.MustLeaveNothing(t, l, 4)
		if said := l.Err.Whole(); said != "" {
			t.Errorf("stderr: %q", said)
		}
	})
}

// Thousands of signals in a row from two senders. The kernel makes one of those that are pending at the
// same time, so how many arrive is open; that the last ones do, after all the others, is not.
func TestStormOfSignals(t *testing.T) {
	t.Parallel()
	const senders = 2
	each := rig.QuickOrFull(1000, 5000)
	rig.InPlaces(t, func(t *testing.T, p rig.Place) {
		t.Parallel()
		h, l := rig.StartInCgroup(t, p, append([]string{"--"}, rig.Mode("signals", "12")...)...)
		l.Out.Want("ready")
		l.Caught()
		l.Signal(unix.SIGUSR1)
		l.Out.Want("signal 10") // so fini is done with what it does at a start
		before := l.Sizes()
		some := []syscall.Signal{unix.SIGUSR1, unix.SIGHUP, unix.SIGINT, unix.SIGWINCH, unix.SIGCONT, 40, 41, 64}
		var all sync.WaitGroup
		for range senders {
			all.Go(func() {
				for i := range each {
					_ = l.Cmd.Process.Signal(some[i%len(some)])
				}
			})
		}
		all.Wait()
		l.Signal(unix.SIGTERM)
		l.Out.Want("signal 15")
		if after := l.Sizes(); after != before {
			t.Errorf("threads and descriptors: %v, before %v", after, before)
		}
		l.Signal(unix.SIGUSR2)
		h.MustLeaveNothing(t, l, 7)
		if said := l.Err.Whole(); said != "" {
			t.Errorf("stderr: %q", said)
		}
	})
}

// Signals that come faster than the inner fini takes them stay pending: none is lost between the two processes.
func TestStormFillsTheLine(t *testing.T) {
	t.Parallel()
	rig.InPlaces(t, func(t *testing.T, p rig.Place) {
		if p.Alone || p.PID1 {
			return // there is no line
		}
		const many, sig = 600, syscall.Signal(40)
		path := rig.ReportPath(t)
		l := rig.Start(t, p, append([]string{"--report=" + path, "--"}, rig.Mode("signals", "12")...)...)
		l.Out.Want("ready")
		l.Caught()
		inner := l.Worker()
		rig.MustKill(t, inner, syscall.SIGSTOP)
		for range many {
			l.Signal(sig)
		}
		rig.MustKill(t, inner, syscall.SIGCONT)
		rig.Until(t, "no signal is pending", func() bool { return !rig.MaskHas(rig.ProcStatus(l.PID(), "ShdPnd"), sig) })
		l.Signal(unix.SIGUSR2)
		l.MustEnd(7)
		if got := len(rig.MustHaveReport(t, path).Signals); got != many+1 {
			t.Errorf("%d signals have reached the inner fini, want %d", got, many+1)
		}
	})
}

var termKinds = []struct{ name, first string }{{"end by SIGTERM", ""}, {"ignore SIGTERM", "ignore 15"}}

// Leftovers by the thousand, and as many that ignore SIGTERM: five thousand where FINI_FULL asks
// for them, for it takes longer to make them than to end them.
func TestStormOfLeftovers(t *testing.T) {
	t.Parallel()
	const grace = time.Second
	many := rig.QuickOrFull(500, 5000)
	rig.InEveryPlace(t, func(t *testing.T, p rig.Place) {
		for _, kind := range termKinds {
			if !rig.Full() && p.Alone == (kind.first != "") {
				continue // one kind in each place: to make so many takes its time
			}
			t.Run(kind.name, func(t *testing.T) {
				h, l := rig.StartInCgroup(t, p, append([]string{"--linger=0", "--grace=" + grace.String(), "--"}, rig.Mode("script", fmt.Sprintf(`%s
					lay: fork x
					loop %d lay
					say laid
					read
					exit 4
					x: setsid
					pause`, kind.first, many-1))...)...)
				l.Out.Want("laid")
				l.Caught()
				if n := len(h.Alive()); n < many {
					t.Errorf("%d are there", n)
				}
				worker := l.Worker()
				threads := func() int {
					n, _ := strconv.Atoi(rig.ProcStatus(worker, "Threads"))
					return n
				}
				before := threads()
				start := time.Now()
				rig.Write(t, l, "go\n")
				// It says so of each that it asks, of the first ones by name.
				l.Err.Want("fini: stopping leftover ")
				if during := threads(); during > before { // fewer if it has ended
					t.Errorf("%d threads while it stops them, %d before", during, before)
				}
				h.MustLeaveNothing(t, l, 4)
				t.Logf("ended within %.1f s", time.Since(start).Seconds())
			})
		}
	})
}
