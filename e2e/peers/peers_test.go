package peers

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/internal/tests/need"
	"github.com/seed-126c5d8a/fini/internal/tests/procfs"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { rig.MainOfOthers(m) }

// What the test suites of tini and dumb-init assert of them holds for fini, or the difference and its
// reason are said here; what a test of fini's own says too is left to that.

func sh(script string) []string { return []string{"--", "/bin/sh", "-c", script} }

func with(flags string, command []string) []string {
	return append(strings.Fields(flags), command...)
}

func TestAsTini(t *testing.T) {
	t.Parallel()
	rig.InPlaces(t, rig.Alone, func(t *testing.T, p rig.Place) {
		t.Run("tini: -e makes its status 0 and leaves others", func(t *testing.T) {
			for code, want := range map[int]int{143: 0, 255: 0, 0: 0, 1: 1} {
				cmd := p.Command(with("-e 143 -e 255", sh(fmt.Sprint("exit ", code)))...)
				if got, _, stderr := rig.Ask(t, cmd); got != want || stderr != "" {
					t.Errorf("exit %d: status %d, want %d; stderr %q", code, got, want, stderr)
				}
			}
		})
		t.Run("tini: -w says what is reaped", func(t *testing.T) {
			l := rig.Start(t, p, with("-w", sh("(:&); read line; exit 0"))...)
			if line := l.Err.Want("fini: reaped zombie "); !strings.HasSuffix(line, "(sh), which exited with status 0") {
				t.Errorf("says of an orphan: %q", line)
			}
			_ = l.Stdin.Close()
			l.MustEnd(0)
		})
	})
	for _, p := range rig.AloneOrPair(t, rig.Pair) {
		t.Run("tini: -p KILL at the launcher's death/"+p.Name, func(t *testing.T) {
			l := rig.Launch(t, p, with("-p KILL", sh(`trap "" TERM INT HUP; echo ready; while :; do sleep 0.01; done`))...)
			l.Out.Want("ready")
			rig.MustKill(t, l.Launcher, syscall.SIGKILL)
			l.MustVanish()
		})
	}
}

// What stops dumb-init's child stops dumb-init too. fini, without a terminal, forwards it and
// stays awake, to stop the command when its parent dies; the command stops and goes on the same.
func TestAsDumbInitStops(t *testing.T) {
	t.Parallel()
	for _, p := range rig.AloneOrPair(t, rig.Alone) {
		for _, sig := range []syscall.Signal{syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGTTOU} {
			t.Run("dumb-init: "+unix.SignalName(sig)+" stops the child and CONT continues it/"+p.Name, func(t *testing.T) {
				t.Parallel()
				cmd := p.Command(sh("echo ready; exec cat")...)
				// The kernel stops nobody by these in an orphaned group, which that of a session's leader is. In
				// the other one it could stop fini.
				cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: sig == syscall.SIGTTIN, Setpgid: sig != syscall.SIGTTIN}
				l := rig.StartCmd(t, cmd)
				l.Out.Want("ready")
				l.Caught()
				finis := []int{l.PID(), l.Worker()}
				command := procfs.ChildrenOf(t, l.Worker())[0]
				// Twice: what was continued can be stopped again.
				for round := range 2 {
					l.Signal(sig)
					rig.Until(t, "the command is stopped", func() bool {
						return strings.HasPrefix(procfs.Status(command, "State"), "T")
					})
					if procfs.CountStopped(finis) > 0 {
						t.Error("fini is stopped too")
					}
					word := fmt.Sprint("word ", round)
					rig.Write(t, l, word+"\n")
					l.Signal(syscall.SIGCONT) // fini takes it, so it is not stopped
					if line, _ := l.Out.Next(); line != word {
						t.Errorf("got %q, want %q", line, word)
					}
				}
				_ = l.Stdin.Close()
				l.MustEnd(0)
			})
		}
	}
}

// wrapsInNode is a program of Node that runs its arguments by the package foreground-child, which is what
// npm's own tools wrap commands in: it passes signals on, and ends as its child did.
const wrapsInNode = `
const { foregroundChild } = require("./npm/node_modules/foreground-child");
foregroundChild(process.argv[1], process.argv.slice(2));
require("fs").writeSync(2, "forwards\n");
`

// Below another wrapper a command is asked once, and its status and its signal arrive, as without fini.
func TestForegroundChild(t *testing.T) {
	t.Parallel()
	node := need.Program(t, "node")
	need.Module(t, "foreground-child")
	// Until it is sleep, the shell's child has the shell's handlers: it would lose the signal and go on, and without
	// fini it would hold the output for ever.
	const traps = `for s in HUP INT TERM USR2; do trap "kill \$!; echo $s; exit 3" $s; done
		sleep 1000 & until grep -qx sleep /proc/$!/comm; do sleep 0.01; done; echo ready; wait`
	for _, wrapper := range [][]string{nil, {rig.Fini, "--"}, {rig.Fini, "--no-shield", "-c", "--"}} {
		run := func(t *testing.T, script string) *rig.Life {
			argv := slices.Concat([]string{"-e", wrapsInNode}, wrapper, []string{"/bin/sh", "-c", script})
			cmd := exec.Command(node, argv...)
			cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
			return rig.StartCmd(t, cmd)
		}
		name := "without"
		if wrapper != nil {
			name = strings.Join(wrapper[1:], " ")
		}
		rig.Case(t, !slices.Contains(wrapper, "--no-shield"), name, func(t *testing.T) {
			t.Parallel()
			for _, status := range []int{0, 3, 255} {
				run(t, fmt.Sprintf("exit %d", status)).MustHaveStatus(status)
			}
			for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT, syscall.SIGUSR2} {
				l := run(t, traps)
				l.Out.Want("ready")
				l.Err.Want("forwards")
				l.Signal(sig)
				if said, want := l.Out.Whole(), "ready\n"+strings.TrimPrefix(unix.SignalName(sig), "SIG")+"\n"; said != want {
					t.Errorf("%v: %q, want %q", sig, said, want)
				}
				if wrapper == nil && l.Status() == 128+int(syscall.SIGPIPE) {
					continue // the package passes SIGPIPE on as well, which Node itself receives now and then
				}
				l.MustHaveStatus(3)
			}
			run(t, "kill -TERM $$").MustHaveStatus(128 + 15)
		})
	}
}
