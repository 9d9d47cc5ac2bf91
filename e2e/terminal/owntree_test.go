package terminal

import (
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/e2e/rig/pty"
	"github.com/seed-126c5d8a/fini/internal/tests/need"
)

// A SIGTERM that a process of the command sends to its own group has reached the command, so fini does not forward it:
// even though the sender has exited at once, and may have been reaped by the time that fini has a processor. With realtime
// priority, which the command does not have, fini does not have to wait for one, however busy the machine is.
func TestOwnSignalComesOnce(t *testing.T) {
	rig.Serial(t, "realtime processes leave no processor to others")
	chrt := need.Program(t, "chrt")
	out, err := exec.Command(chrt, "-r", "1", "true").CombinedOutput()
	need.That(t, err == nil, "the right to have realtime priority: "+string(out))
	for _, p := range []rig.Place{rig.Pair, rig.Alone} {
		t.Run(p.Name, func(t *testing.T) {
			rounds, twice := rig.QuickOrFull(90, 300), 0
			for range rounds {
				// Bash can't tell two copies that come at once, but fini says what it forwards, and has a tenth of a second to do so.
				argv := slices.Concat([]string{"-r", "1"}, p.Command("-v", "--", chrt, "-o", "0", "bash", "-c", `trap "sleep .1; exit 5" TERM; (kill 0); exit 6`).Args)
				l, screen, _ := pty.Start(t, exec.Command(chrt, argv...))
				l.MustEnd(5)
				if strings.Contains(screen.Whole(), "fini: sending SIGTERM to the command\n") {
					twice++
				}
			}
			t.Logf("%d of %d came twice", twice, rounds)
			most := rounds * 3 / 100
			if rounds < 300 {
				most = rounds / 6 // of few rounds; without the question it is each
			}
			if twice > most {
				t.Errorf("%d of %d came twice, want at most %d", twice, rounds, most)
			}
		})
	}
}

// A sender that fini can't ask any more is in doubt no process of the tree: no signal of another session's is lost, whether
// its sender lives on or has ended at once.
func TestSignalOfAnotherSessionIsNotLost(t *testing.T) {
	t.Parallel()
	for _, p := range []rig.Place{rig.Pair, rig.Alone} {
		t.Run(p.Name, func(t *testing.T) {
			t.Parallel()
			l, screen, _ := pty.Start(t, p.Command(append([]string{"-q", "--"}, rig.Mode("signals", "10")...)...)) // bash may lose a trap
			screen.Want("ready")
			rounds := rig.QuickOrFull(180, 300)
			for n := range rounds {
				if n%2 == 0 {
					rig.MustKill(t, l.PID(), syscall.SIGTERM)
				} else {
					rig.Run(t, "/bin/kill", strconv.Itoa(l.PID()))
				}
				screen.Want("signal 15")
			}
			rig.MustKill(t, l.PID(), syscall.SIGUSR1)
			l.MustEnd(7)
			if n := strings.Count(screen.Whole(), "signal 15\n"); n != rounds {
				t.Errorf("%d signals came, want %d", n, rounds)
			}
		})
	}
}
