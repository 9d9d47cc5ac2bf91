package storms

import (
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/e2e/rig/reports"
	"github.com/seed-126c5d8a/fini/internal/tests/need"
	"github.com/seed-126c5d8a/fini/internal/tests/procfs"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { rig.Main(m) }

// Signals that come faster than fini takes them stay pending: none is lost, nor between the two processes of a pair.
func TestStormOfSignals(t *testing.T) {
	t.Parallel()
	rig.InPlaces(t, rig.Pair, func(t *testing.T, p rig.Place) {
		const many, sig = 600, syscall.Signal(40)
		var queue unix.Rlimit
		err := unix.Getrlimit(unix.RLIMIT_SIGPENDING, &queue)
		need.That(t, err == nil && queue.Cur > 2*many, "a larger ulimit -i")
		path := reports.Path(t)
		l := rig.Start(t, p, append([]string{"--report=" + path, "--"}, rig.Mode("signals", "12")...)...)
		l.Out.Want("ready")
		l.Caught()
		worker := l.Worker()
		rig.MustKill(t, worker, syscall.SIGSTOP)
		for range many {
			l.Signal(sig)
		}
		rig.MustKill(t, worker, syscall.SIGCONT)
		rig.Until(t, "no signal is pending", func() bool { return !procfs.MaskHas(procfs.Status(l.PID(), "ShdPnd"), sig) })
		l.Signal(unix.SIGUSR2)
		l.MustEnd(7)
		got := 0
		for _, s := range reports.MustHave(t, path).Signals {
			if s.Signal == "SIGRTMIN+6" {
				got++
			}
		}
		if got != many {
			t.Errorf("%d signals have reached fini, want %d", got, many)
		}
	})
}

// Leftovers by the thousand, and as many that ignore SIGTERM: five thousand where FINI_FULL asks
// for them, for it takes longer to make them than to end them.
func TestStormOfLeftovers(t *testing.T) {
	t.Parallel()
	const grace = time.Second
	many := rig.QuickOrFull(500, 5000)
	rig.InEveryPlace(t, func(t *testing.T, p rig.Place) {
		for _, kind := range []struct{ name, first string }{{"end by SIGTERM", ""}, {"ignore SIGTERM", "ignore 15"}} {
			// One kind is quick in each place: to make so many takes its time.
			rig.Case(t, p.Alone != (kind.first != ""), kind.name, func(t *testing.T) {
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
					n, _ := strconv.Atoi(procfs.Status(worker, "Threads"))
					return n
				}
				before := max(threads(), 6) // on a busy machine the runtime may make one more than its five, now or later
				start := time.Now()
				rig.Write(t, l, "go\n")
				// It says so of each that it asks, of the first ones by name.
				l.Err.Want("fini: stopping leftover ")
				if during := threads(); during > before { // fewer if it has ended
					t.Errorf("%d threads while it stops them, %d before", during, before)
				}
				h.MustLeaveNothing(t, l, 4)
				if said := l.Err.Whole(); !strings.HasSuffix(said, fmt.Sprintf("fini: stopped %d leftovers in all\n", many)) {
					t.Errorf("ends with %q", said[max(0, len(said)-100):])
				}
				t.Logf("ended within %.1f s", time.Since(start).Seconds())
			})
		}
	})
}
