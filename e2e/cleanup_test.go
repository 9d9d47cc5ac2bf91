package e2e

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seed-126c5d8a/fini/e2e/need"
)

// The tests of this file are about requests to end: which signals count as one request, and how a leftover that had one
// cleans up.

// cleaner is a process that cleans up when it gets SIGTERM, for longer than --linger, with a new process for each
// step; "$?" is 143 for a step that got SIGTERM itself. It is in the group of the shell that runs this text.
const cleaner = `
	trap : INT
	trap 'for i in 1 2 3 4; do sleep 0.3 && echo "delete $i ok" || echo "delete $i FAILED $?"; done; exit' TERM
	echo ready; while :; do sleep 0.05 || :; done`

// mustDelete asserts that a cleaner was spared, and that beside it only this was said.
func (l *life) mustDelete(beside ...string) {
	l.t.Helper()
	want := append(beside, "delete 1 ok", "delete 2 ok", "delete 3 ok", "delete 4 ok")
	got := l.Out.rest()
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		l.t.Errorf("said are %q, want %q; stderr: %s", got, want, l.Err.text())
	}
}

// A leftover that had SIGTERM with the command's group is cleaning up (#41.1). One in a session of its own has had
// none, and is asked.
func TestCleanUpIsSpared(t *testing.T) {
	t.Parallel()
	const script = `
		dir=$(mktemp -d); mkfifo $dir/ready
		setsid sh -c 'trap "echo asked; exit" TERM; echo >$0; while :; do sleep 0.05; done' $dir/ready &
		read line <$dir/ready; rm -r $dir
		(` + cleaner + `) &
		wait`
	for _, p := range places {
		t.Run(p.name+"/--timeout", func(t *testing.T) {
			t.Parallel()
			if p.pid1 {
				needPidNamespace(t)
			}
			l := outOfTime(t, func(t testing.TB, timeout string) *life {
				return start(t, p, timeout, "--grace=5m", "--linger=100ms", "--", "/bin/sh", "-c", script)
			})
			l.mustDelete("asked")
			l.mustEnd(124)
		})
		t.Run(p.name+"/TERM", func(t *testing.T) {
			t.Parallel()
			if p.pid1 {
				needPidNamespace(t)
			}
			l := start(t, p, "--grace=5m", "--linger=100ms", "--", "/bin/sh", "-c", script)
			l.Out.want("ready")
			untilOlder(t)
			l.signal(syscall.SIGTERM)
			l.mustDelete("asked")
			l.mustEnd(128 + int(syscall.SIGTERM))
		})
	}
}

// In front of GitHub's shell, fini is the only process that the runner signals. A process that is started after the
// runner's SIGTERM is left to clean up, even if SIGKILL for fini comes meanwhile.
func TestGitHubCleansUp(t *testing.T) {
	need.Program(t, "bash")
	t.Parallel()
	for name, after := range map[string]string{"in the foreground": "\n", "in the background": " &\nwait\n"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := scriptFile(t, "("+cleaner+")"+after+"echo the step goes on\n")
			s := startStep(t, nil, finiPath, "--grace=2m", "--", "bash", "--noprofile", "--norc", "-eo", "pipefail", file)
			_ = s.Stdin.Close()
			s.Out.want("ready")
			untilOlder(t)
			s.githubCancel()
			s.mustDelete()
			s.mustBeGone()
		})
	}
}

// A SIGTERM that the command got for something else does not replace the stop: only one within the second before it
// does, whatever --grace is (#36.5).
func TestTermFromLongAgoReplacesNone(t *testing.T) {
	t.Parallel()
	for _, p := range []place{pair, alone} {
		other := exec.Command("sleep", "1000")
		if err := other.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = other.Process.Kill(); _ = other.Wait() })
		l := start(t, p, "--grace=4s", fmt.Sprintf("--bind=%d", other.Process.Pid), "--", "/bin/sh", "-c",
			`trap 'n=$((n+1)); echo TERM $n; [ $n = 1 ] || exit 7' TERM; echo ready; while :; do sleep 0.01; done`)
		l.Out.want("ready")
		l.signal(syscall.SIGTERM)
		l.Out.want("TERM 1")
		got := time.Now()
		until(t, "that was more than a second ago", func() bool { return time.Since(got) > 1100*time.Millisecond })
		_ = other.Process.Kill()
		l.Out.want("TERM 2")
		l.mustEnd(7)
	}
}

// A SIGINT that the command had long ago does not make the next one, which is the first for its leftovers, the second
// (#36.6).
func TestSecondInterruptOfTheLeftovers(t *testing.T) {
	t.Parallel()
	for _, p := range []place{alone, pid1} { // of a pair, the outer one relays a signal at some later time
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			if p.pid1 {
				needPidNamespace(t)
			}
			g := newGate(t)
			l := start(t, p, "-w", "--linger=0", "--grace=1h", "--", "/bin/sh", "-c", `
				trap 'echo INT' INT
				setsid sh -c 'trap "" TERM; echo there; read line <'`+g.name+` &
				setsid sh -c 'trap "" TERM; echo there; exec sleep 1000' &
				until read line; do :; done`)
			l.Out.want("there")
			l.Out.want("there")
			l.signal(syscall.SIGINT)
			l.Out.want("INT")
			write(t, l, "go\n")
			l.Err.want("fini: stopping leftover")
			l.Err.want("fini: stopping leftover")
			l.signal(syscall.SIGINT)
			g.open(t) // fini takes in signals before it reaps
			if line, _ := l.Err.next(); !strings.HasPrefix(line, "fini: reaped zombie") {
				t.Errorf("after the first SIGINT: %q", line)
			}
			l.signal(syscall.SIGINT)
			l.Err.want("fini: killing the leftovers: a second SIGINT")
			l.mustEnd(0)
		})
	}
}

// An allowed process that is a member of the command's group gets each signal that the group gets. It gets no other
// signal, and it stays if it survives those (#36.2).
func TestAllowOrphanInTheCommandsGroup(t *testing.T) {
	t.Parallel()
	keepme := linked(t, "keepme") + " @signals & "
	for _, p := range []place{pair, alone} {
		start := func(t testing.TB, script string) (*life, []int) {
			l := start(t, p, "--linger=0", "--grace=100ms", "-k", "100ms", "--allow-orphan=keepme", "--", "/bin/sh", "-c", keepme+script)
			pids := []int{l.Out.wantPid("ready ")}
			killAtCleanup(t, pids)
			return l, pids
		}
		t.Run("a command that ends by SIGTERM/"+p.name, func(t *testing.T) {
			t.Parallel()
			l, pids := start(t, "exec sleep 1000")
			l.signal(syscall.SIGTERM)
			l.Out.want("signal 15")
			l.mustStay(pids)
		})
		t.Run("a command that is killed/"+p.name, func(t *testing.T) {
			t.Parallel()
			l, _ := start(t, `read line; trap "" TERM; echo deaf; sleep 1000; sleep 1000`)
			write(t, l, "go\n")
			l.Out.want("deaf")
			l.signal(syscall.SIGTERM)
			l.Out.want("signal 15")
			l.mustEnd(128 + int(syscall.SIGKILL))
		})
	}
}
