package terminal

import (
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/need"
	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/e2e/rig/pty"
)

// A SIGTERM that a process of the command sends to its own group has reached the command, so fini does not forward it:
// even though the sender has exited at once, and may have been reaped by the time that fini has a processor. With realtime
// priority fini does not have to wait for one, however busy the machine is.
func TestOwnSignalComesOnce(t *testing.T) {
	rig.Serial(t, "realtime processes leave no processor to others")
	chrt := need.Program(t, "chrt")
	out, err := exec.Command(chrt, "-r", "1", "true").CombinedOutput()
	need.That(t, err == nil, "the right to have realtime priority: "+string(out))
	for _, p := range []rig.Place{rig.Pair, rig.Alone} {
		t.Run(p.Name, func(t *testing.T) {
			rounds, twice := rig.QuickOrFull(90, 300), 0
			for range rounds {
				// What comes twice comes within a millisecond, and has a tenth of a second to do so.
				argv := append([]string{"-r", "1"}, p.Command("--", "bash", "-c", `trap "echo got" TERM; (kill 0); sleep .1`).Args...)
				l, screen, _ := pty.Start(t, exec.Command(chrt, argv...))
				l.MustEnd(0)
				switch n := strings.Count(strings.Join(screen.Rest(), "\n"), "got"); n {
				case 1:
				case 2:
					twice++
				default:
					t.Errorf("the command got its own signal %d times", n)
				}
			}
			t.Logf("%d of %d came twice", twice, rounds)
			most := rounds * 3 / 100
			if rounds < 300 {
				most = rounds / 6 // of few rounds; without the question it is nearly each
			}
			if twice > most {
				t.Errorf("%d of %d came twice, want at most %d", twice, rounds, most)
			}
		})
	}
}

// sendTerms starts fini at a terminal, with a command that counts each SIGTERM, and sends it so many from another session:
// by turns in the two ways of its arguments. It says how many the command has counted.
const sendTerms = `import os, pty, select, subprocess, sys
rounds, fini = int(sys.argv[1]), sys.argv[2:]
pid, screen = pty.fork()
if pid == 0:
    os.execv(fini[0], fini + ["--", "bash", "-c", "trap 'echo got' TERM; sleep 1000 & p=$!; echo ready; while :; do wait $p; done"])
text = b""
def until(word, n):
    global text
    while text.count(word) < n:
        if not select.select([screen], [], [], 60)[0]:
            print("lost after", text.count(b"got"))
            sys.exit(1)
        text += os.read(screen, 4096)
until(b"ready", 1)
for n in range(rounds):
    subprocess.check_call(["/bin/kill", str(pid)] if n % 2 else ["pkill", "-x", "fini"])
    until(b"got", n + 1)
print("counted", text.count(b"got"))
os.kill(pid, 9)
`

// A sender that fini can't ask any more is in doubt no process of the tree: no signal of another session's is lost.
func TestSignalOfAnotherSessionIsNotLost(t *testing.T) {
	t.Parallel()
	rig.NeedPidNamespace(t) // where pkill finds no other fini
	python := need.Program(t, "python3")
	need.Program(t, "pkill")
	for _, p := range []rig.Place{rig.Pair, rig.Alone} {
		t.Run(p.Name, func(t *testing.T) {
			t.Parallel()
			rounds := strconv.Itoa(rig.QuickOrFull(180, 300))
			cmd := exec.Command("/proc/self/exe", append([]string{"@pid1", python, "-I", "-S", "-c", sendTerms, rounds}, p.Command().Args...)...)
			rig.AsPID1(cmd)
			l := rig.StartCmd(t, cmd)
			if got, want := l.Out.Rest(), []string{"counted " + rounds}; !slices.Equal(got, want) {
				t.Errorf("the script says %q, want %q; stderr: %s", got, want, l.Err.Text())
			}
			_ = l.Status()
		})
	}
}
