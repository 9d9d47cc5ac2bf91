package signals

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/e2e/rig/pty"
)

// A stop of the inner fini may be told to the outer one after the signal that came after it.
func TestStoppedAndAskedAtOnce(t *testing.T) {
	t.Parallel()
	for name, flags := range map[string][]string{"plain": nil, "report": {"--report=" + t.TempDir() + "/report"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for range rig.QuickOrFull(3, 50) {
				l := rig.Start(t, rig.Pair, slices.Concat(flags, []string{"--"}, rig.Mode("signals", "15"))...)
				l.Out.Want("ready")
				l.Caught()
				inner := l.Worker()
				rig.MustKill(t, inner, syscall.SIGSTOP)
				rig.MustKill(t, l.PID(), syscall.SIGTERM)
				l.Out.Want("signal 15")
				l.MustEnd(7)
			}
		})
	}
}

// Of one signal to several one copy comes.

// A process of the tree that signals its whole job has reached the command by that.
func TestTrapKillZero(t *testing.T) {
	t.Parallel()
	recorder := strings.Join(rig.Mode("signals", "12"), " ")
	for _, p := range rig.AloneOrPair(t, rig.Alone) {
		t.Run(p.Name, func(t *testing.T) {
			t.Parallel()
			l, screen, keys := pty.Start(t, p.Command("-q", "--linger=0", "--", "/bin/sh", "-c",
				`(trap "kill 0" EXIT; read line </dev/tty) & exec `+recorder))
			screen.Want("ready")
			l.Caught()
			_, _ = io.WriteString(keys, "go\n")
			screen.Want("signal 15")
			l.Signal(syscall.SIGUSR2) // after a copy of SIGTERM, if there were one
			if line, _ := screen.Next(); line != "signal 12" {
				t.Errorf("the command says %q after the first SIGTERM", line)
			}
			l.MustEnd(7)
		})
	}
}

// pkill -f and pidof(8) find both processes of a pair, in either order.
func TestSameSignalToBoth(t *testing.T) {
	t.Parallel()
	test := func(t *testing.T, l *rig.Life, out *rig.Lines) {
		t.Helper()
		out.Want("ready")
		l.Caught()
		outer, inner := l.PID(), l.Worker()
		// The same one once more within a second might be taken for a copy. Real-time signals are
		// left out: of two that are caught at once only the last one's sender is known.
		for i, sig := range []syscall.Signal{1, 2, 3, 10, 13, 14, 15, 18, 26, 28} {
			order := []int{outer, inner}
			if i%2 == 1 {
				order = []int{inner, outer}
			}
			for _, pid := range order {
				rig.MustKill(t, pid, sig)
			}
			rig.MustKill(t, outer, 64) // comes after whatever was sent before it
			// The command may be told of the two by two of its threads, in any order. A copy would come third.
			first, _ := out.Next()
			second, _ := out.Next()
			if want := fmt.Sprint("signal ", int(sig)); (first != want || second != "signal 64") && (first != "signal 64" || second != want) {
				t.Fatalf("%d to %d: the command says %q and %q", sig, order, first, second)
			}
		}
		rig.MustKill(t, outer, syscall.SIGUSR2)
		out.Want("signal 12")
		l.MustEnd(7)
	}
	command := append([]string{"-q", "--linger=0", "--"}, rig.Mode("signals", "12")...)
	t.Run("without a terminal", func(t *testing.T) {
		t.Parallel()
		l := rig.Start(t, rig.Pair, command...)
		test(t, l, l.Out)
	})
	t.Run("in the job", func(t *testing.T) {
		t.Parallel()
		l, screen, _ := pty.Start(t, rig.Pair.Command(command...))
		test(t, l, screen)
	})
}
