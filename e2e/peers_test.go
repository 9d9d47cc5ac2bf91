package e2e

import (
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/need"
	"golang.org/x/sys/unix"
)

// What the test suites of tini and dumb-init assert of them holds for fini, or the difference and its
// reason are said here; what a test of fini's own says too is left to that.

func sh(script string) []string { return []string{"--", "/bin/sh", "-c", script} }

func with(flags string, command []string) []string {
	return append(strings.Fields(flags), command...)
}

func TestAsTini(t *testing.T) {
	t.Parallel()
	inPlaces(t, func(t *testing.T, p place) {
		t.Run("tini: -e makes its status 0 and leaves others", func(t *testing.T) {
			for _, code := range []int{0, 1, 41, 42, 127, 143, 255} {
				for _, remapped := range []int{code, 43} {
					want := code
					if remapped == code {
						want = 0
					}
					cmd := p.command(with(fmt.Sprint("-e ", remapped), sh(fmt.Sprint("exit ", code)))...)
					if got, _, stderr := ask(t, cmd); got != want || stderr != "" {
						t.Errorf("-e %d, exit %d: status %d, want %d; stderr %q", remapped, code, got, want, stderr)
					}
				}
			}
		})
		t.Run("tini: -w says what is reaped", func(t *testing.T) {
			l := start(t, p, with("-w --", mode("orphans", "1"))...)
			if line := l.Err.want("fini: reaped zombie "); !strings.HasSuffix(line, "(sh), which ended with status 0") {
				t.Errorf("says of an orphan: %q", line)
			}
			_ = l.Stdin.Close()
			l.mustEnd(0)
		})
		t.Run("tini: -v, -vv, -vvv, -s, -g and no --", func(t *testing.T) {
			for _, flags := range []string{"-v", "-vv", "-vvv", "-v -v -v", "-s", "-g", "-s -g", "-sg", "-sgvw", "-p TERM"} {
				if p.pid1 && flags == "-p TERM" {
					continue // its launcher is outside the namespace
				}
				got, stdout, _ := ask(t, p.command(with(flags, []string{"/bin/sh", "-c", "echo out; exit 6"})...))
				if got != 6 || stdout != "out\n" {
					t.Errorf("%s: status %d and %q", flags, got, stdout)
				}
			}
		})
	})
	for _, p := range []place{pair, alone} {
		t.Run("tini: -p KILL at the launcher's death/"+p.name, func(t *testing.T) {
			l := launch(t, p, with("-p KILL", sh(`trap "" TERM INT HUP; echo ready; while :; do sleep 0.01; done`))...)
			l.Out.want("ready")
			if err := syscall.Kill(l.launcher, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			l.mustVanish(0)
		})
	}
}

// oddly becomes a command with every signal ignored or blocked.
const oddly = `
import os, signal, sys
every = [n for n in range(1, 65) if n not in (9, 19, 32, 33)]
if sys.argv[1] == "blocked":
    signal.pthread_sigmask(signal.SIG_BLOCK, every)
for n in every:
    signal.signal(n, signal.SIG_IGN if sys.argv[1] == "ignored" else signal.SIG_DFL)
os.execv(sys.argv[2], sys.argv[2:])`

// What is ignored and what is blocked is handed on, save what a Go program can't ignore
// without harm: the faults, STKFLT, CHLD, PROF and SYS.
func TestAsTiniOddSignals(t *testing.T) {
	t.Parallel()
	python := need.Program(t, "python3")
	set := func(signals ...int) (mask uint64) {
		for _, n := range signals {
			mask |= 1 << (n - 1)
		}
		return mask
	}
	notIgnored := set(4, 5, 7, 8, 11, 16, 17, 27, 31)
	for _, how := range []string{"as usual", "ignored", "blocked"} {
		masks := func(t *testing.T, args []string) map[string]uint64 {
			t.Helper()
			cmd := exec.Command(python, append([]string{"-c", oddly, how}, append(args, "/bin/cat", "/proc/self/status")...)...)
			_, stdout, stderr := ask(t, cmd)
			found := map[string]uint64{}
			for line := range strings.Lines(stdout) {
				name, value, _ := strings.Cut(strings.TrimSpace(line), ":\t")
				if mask, err := strconv.ParseUint(value, 16, 64); err == nil && strings.HasPrefix(name, "Sig") && name != "SigQ" {
					found[name] = mask
				}
			}
			if len(found) < 4 {
				t.Fatalf("no signal masks in %q; stderr %q", stdout, stderr)
			}
			return found
		}
		for _, p := range []place{pair, alone} {
			t.Run("tini: signals "+how+"/"+p.name, func(t *testing.T) {
				direct := masks(t, nil)
				got := masks(t, p.command("--").Args)
				want := map[string]uint64{
					"SigBlk": direct["SigBlk"],
					"SigIgn": direct["SigIgn"] &^ notIgnored,
					"SigCgt": direct["SigCgt"],
					"SigPnd": 0,
				}
				for name, mask := range want {
					if got[name] != mask {
						t.Errorf("%s is %016x, want %016x; %016x without fini", name, got[name], mask, direct[name])
					}
				}
			})
		}
	}
}

func TestAsDumbInit(t *testing.T) {
	t.Parallel()
	inPlaces(t, func(t *testing.T, p place) {
		t.Run("dumb-init: a group of the command's own", func(t *testing.T) {
			l := start(t, p, sh("echo ready; exec sleep 1000")...)
			l.Out.want("ready")
			fini := l.worker()
			child := childrenOf(t, fini)[0]
			if group := groupOf(child); group != child {
				t.Errorf("the command %d is in group %d", child, group)
			}
			// dumb-init gives it a session of its own as well. Such a command has lost the
			// terminal's job control: neither Ctrl-C nor Ctrl-Z of the launcher's shell is
			// meant for it, and it reads the terminal while in the background.
			if session, want := sessionOf(child), sessionOf(l.pid()); session != want {
				t.Errorf("the command is in session %d, fini in %d", session, want)
			}
			l.signal(syscall.SIGTERM)
			l.mustEnd(143)
		})
	})
}

// What stops dumb-init's child stops dumb-init too. fini, without a terminal, forwards it and
// stays awake, to stop the command when its parent dies; the command stops and goes on the same.
func TestAsDumbInitStops(t *testing.T) {
	t.Parallel()
	for _, p := range []place{pair, alone} {
		for _, sig := range []syscall.Signal{syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGTTOU} {
			t.Run("dumb-init: "+unix.SignalName(sig)+" stops the child and CONT continues it/"+p.name, func(t *testing.T) {
				t.Parallel()
				cmd := p.command(sh("echo ready; exec cat")...)
				// The kernel stops nobody by these in an orphaned group, which that of a session's leader is. In
				// the other one it could stop fini.
				cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: sig == syscall.SIGTTIN, Setpgid: sig != syscall.SIGTTIN}
				l := startCmd(t, cmd)
				l.Out.want("ready")
				l.caught()
				finis := []int{l.pid(), l.worker()}
				command := childrenOf(t, l.worker())[0]
				// Twice: what was continued can be stopped again.
				for round := range 2 {
					l.signal(sig)
					until(t, "the command is stopped", func() bool {
						return strings.HasPrefix(procStatus(command, "State"), "T")
					})
					if countStopped(finis) > 0 {
						t.Error("fini is stopped too")
					}
					word := fmt.Sprint("word ", round)
					write(t, l, word+"\n")
					l.signal(syscall.SIGCONT) // fini takes it, so it is not stopped
					if line, _ := l.Out.next(); line != word {
						t.Errorf("got %q, want %q", line, word)
					}
				}
				_ = l.Stdin.Close()
				l.mustEnd(0)
			})
		}
	}
}

func TestAsDumbInitOnATerminal(t *testing.T) {
	t.Parallel()
	for _, p := range []place{pair, alone} {
		// dumb-init gives up its terminal, which sends it HUP and CONT, so it has to
		// swallow the first of each. fini gives up nothing and swallows nothing.
		t.Run("dumb-init: a session leader's HUP and CONT/"+p.name, func(t *testing.T) {
			l, screen, _ := onTerminal(t, p.command(with("--", mode("signals", "12"))...))
			screen.want("ready")
			l.caught()
			for _, sig := range []syscall.Signal{syscall.SIGUSR1, syscall.SIGHUP, syscall.SIGCONT, syscall.SIGHUP, syscall.SIGCONT} {
				l.signal(sig)
				if line, _ := screen.next(); line != fmt.Sprint("signal ", int(sig)) {
					t.Errorf("sent %d, the command printed %q", sig, line)
				}
			}
			l.signal(syscall.SIGUSR2)
			l.mustEnd(7)
		})
	}
}
