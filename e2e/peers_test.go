package e2e

import (
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/need"
	"golang.org/x/sys/unix"
)

// What the test suites of tini, dumb-init and catatonit assert of them holds for fini,
// or the difference and its reason are said here. --rewrite is left to other tests.

func sh(script string) []string { return []string{"--", "/bin/sh", "-c", script} }

func with(flags string, command []string) []string {
	return append(strings.Fields(flags), command...)
}

func TestAsTini(t *testing.T) {
	t.Parallel()
	inPlaces(t, func(t *testing.T, p place) {
		t.Run("tini: -e makes each status 0", func(t *testing.T) {
			for code := range 256 {
				if !p.takes(code) {
					continue
				}
				n := strconv.Itoa(code)
				if got, _, stderr := ask(t, p.command(with("-e "+n, sh("exit "+n))...)); got != 0 || stderr != "" {
					t.Errorf("-e %d: status %d, want 0; stderr %q", code, got, stderr)
				}
			}
		})
		t.Run("tini: -e leaves other statuses", func(t *testing.T) {
			for _, code := range []int{0, 1, 41, 43, 127, 143, 255} {
				if got, _, _ := ask(t, p.command(with("-e 42", sh(fmt.Sprint("exit ", code)))...)); got != code {
					t.Errorf("status %d, want %d", got, code)
				}
			}
		})
		t.Run("tini: -e refuses what is no status", func(t *testing.T) {
			for _, code := range []string{"256", "-1", "blah", ""} {
				// tini exits 1; fini has 125 for that.
				got, stdout, _ := ask(t, p.command("-e", code, "--", "/bin/echo", "started"))
				if got != 125 || stdout != "" {
					t.Errorf("-e %q: status %d and %q, want 125 and no start", code, got, stdout)
				}
			}
		})
		t.Run("tini: 100 orphans are reaped", func(t *testing.T) {
			l := start(t, p, with("-s --", mode("orphans", "100"))...)
			l.Out.want("made")
			fini := l.worker()
			until(t, "only the command is left", func() bool { return len(childrenOf(t, fini)) == 1 })
			_ = l.Stdin.Close()
			l.mustEnd(0)
		})
		t.Run("tini: -w says what is reaped", func(t *testing.T) {
			l := start(t, p, with("-w --", mode("orphans", "1"))...)
			if line := l.Err.want("fini: reaped zombie "); !strings.HasSuffix(line, "(sh), which ended with status 0") {
				t.Errorf("says of an orphan: %q", line)
			}
			_ = l.Stdin.Close()
			l.mustEnd(0)
		})
		t.Run("tini: -g sends USR1 to the group", func(t *testing.T) {
			l := start(t, p, with("-g", sh(`(trap "echo child got it; exit" USR1; echo ready; while :; do sleep 0.01; done) &
				trap "" USR1; echo ready; wait`))...)
			l.Out.want("ready")
			l.Out.want("ready")
			l.signal(syscall.SIGUSR1)
			l.Out.want("child got it")
			l.mustEnd(0)
		})
		t.Run("tini: a signal that ends the command is 128+n", func(t *testing.T) {
			for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGUSR2} {
				l := start(t, p, sh("echo ready; exec sleep 1000")...)
				l.Out.want("ready")
				l.signal(sig)
				l.mustEnd(128 + int(sig))
			}
		})
		t.Run("tini: 127 and 126", func(t *testing.T) {
			for path, want := range map[string]int{"/no/such/command": 127, "no-such-command": 127, "/etc/passwd": 126, "/etc": 126} {
				// dumb-init exits 2 for these.
				if got, _, stderr := ask(t, p.command("--", path)); got != want || !strings.Contains(stderr, path) {
					t.Errorf("%s: status %d, want %d; stderr %q", path, got, want, stderr)
				}
			}
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
		for name, sig := range map[string]int{"USR1": 10, "SIGUSR2": 12, "SIGTERM": 15, "INT": 2} {
			t.Run("tini: -p "+name+" at the launcher's death/"+p.name, func(t *testing.T) {
				l := launch(t, p, with("-p "+name+" --", mode("signals", strconv.Itoa(sig)))...)
				l.Out.want("ready")
				if err := syscall.Kill(l.launcher, syscall.SIGKILL); err != nil {
					t.Fatal(err)
				}
				if got := l.Out.rest(); !slices.Equal(got, []string{fmt.Sprint("signal ", sig)}) {
					t.Errorf("the command got %q", got)
				}
				l.mustVanish(0)
			})
		}
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
		t.Run("dumb-init: every signal is proxied", func(t *testing.T) {
			l := start(t, p, with("--", mode("signals", "15"))...)
			l.Out.want("ready")
			l.caught()
			for sig := syscall.Signal(1); sig <= 64; sig++ {
				if !forwardable(sig) || sig == syscall.SIGTERM {
					continue
				}
				l.signal(sig)
				if line, _ := l.Out.next(); line != fmt.Sprint("signal ", int(sig)) {
					t.Fatalf("sent %d, the command printed %q", sig, line)
				}
			}
			l.signal(syscall.SIGTERM)
			l.Out.want("signal 15")
			l.mustEnd(7)
		})
		t.Run("dumb-init: -c signals the child alone", func(t *testing.T) {
			other := strings.Join(mode("signals"), " ")
			l := start(t, p, with("-c --linger=0 --grace=1s", sh(other+" & exec "+strings.Join(mode("signals", "12"), " ")))...)
			l.Out.want("ready")
			l.Out.want("ready")
			l.signal(syscall.SIGUSR1)
			l.Out.want("signal 10")
			l.signal(syscall.SIGUSR2)
			l.Out.want("signal 12")
			// The other one stops at nothing but SIGKILL; it is asked first by TERM.
			// dumb-init -c would leave it behind: for that there is --orphans=leave.
			var got []string
			for _, line := range l.Out.rest() {
				if line != "signal 18" { // SIGCONT comes with TERM
					got = append(got, line)
				}
			}
			if !slices.Equal(got, []string{"signal 15"}) {
				t.Errorf("the other child got %q, want the TERM to leftovers alone", got)
			}
			l.mustEnd(7)
		})
		t.Run("dumb-init: statuses", func(t *testing.T) {
			for _, code := range []int{0, 1, 2, 32, 64, 127, 254, 255} {
				if got, _, _ := ask(t, p.command(sh(fmt.Sprint("exit ", code))...)); got != code {
					t.Errorf("status %d, want %d", got, code)
				}
			}
			for _, sig := range []int{1, 2, 3, 9, 15} {
				if got, _, _ := ask(t, p.command(sh(fmt.Sprintf("ulimit -c 0; kill -%d $$", sig))...)); got != 128+sig {
					t.Errorf("status %d, want %d", got, 128+sig)
				}
			}
		})
		t.Run("dumb-init: the working directory", func(t *testing.T) {
			dir := t.TempDir()
			cmd := p.command("--", "/bin/pwd", "-P")
			cmd.Dir = dir
			// dumb-init itself moves to / once the command runs; fini stays, so it
			// keeps the file system busy where the command has moved away.
			if got, stdout, stderr := ask(t, cmd); got != 0 || stdout != dir+"\n" {
				t.Errorf("status %d, %q, want %q; stderr %q", got, stdout, dir, stderr)
			}
		})
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
		t.Run("dumb-init: every descendant gets TERM at the end", func(t *testing.T) {
			need.Program(t, "setsid")
			asked := strings.Join(mode("signals", "15"), " ")
			l := start(t, p, with("--linger=0", sh(asked+" & setsid "+asked+" & read go; exit 9"))...)
			l.Out.want("ready")
			l.Out.want("ready")
			write(t, l, "go\n")
			l.Out.want("signal 15")
			l.Out.want("signal 15")
			l.mustEnd(9)
		})
		t.Run("dumb-init: TERM ends all of a background tree", func(t *testing.T) {
			need.Program(t, "setsid")
			l := start(t, p, with("--linger=0", sh("sleep 1000 & setsid sleep 1000 & (sleep 1000 | sleep 1000) & echo ready; exec sleep 1000"))...)
			l.Out.want("ready")
			l.signal(syscall.SIGTERM)
			l.mustEnd(143)
		})
		t.Run("dumb-init: no command is an error", func(t *testing.T) {
			if got, stdout, stderr := ask(t, p.command()); got != 125 || stdout != "" || !strings.HasPrefix(stderr, "fini: no command: ") {
				t.Errorf("status %d, stdout %q, stderr %.40q", got, stdout, stderr)
			}
		})
		t.Run("dumb-init: -v speaks on stderr", func(t *testing.T) {
			for _, flags := range []string{"-v", "--verbose", "-v -c", "-c --verbose", "-cv", "--single-child -v"} {
				got, stdout, stderr := ask(t, p.command(with(flags, sh("echo oh, hi"))...))
				if got != 0 || stdout != "oh, hi\n" || !strings.HasPrefix(stderr, "fini: started ") {
					t.Errorf("%s: status %d, stdout %q, stderr %q", flags, got, stdout, stderr)
				}
			}
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
		t.Run("dumb-init: tac on a tty/"+p.name, func(t *testing.T) {
			need.Program(t, "tac")
			theirs, ours := terminal(t)
			cmd := p.command("--", "tac")
			cmd.Stdin, cmd.Stdout, cmd.Stderr = theirs, theirs, theirs
			cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
			l := startCmd(t, cmd) // theirs stays open, so that the last output is not lost
			screen := newLines(t, carriageless{ours})
			if _, err := ours.WriteString("one\ntwo\nthree\n\x04"); err != nil {
				t.Fatal(err)
			}
			l.mustEnd(0)
			// The terminal echoes the input, and tac answers.
			for _, want := range []string{"one", "two", "three", "three", "two", "one"} {
				if line, _ := screen.next(); line != want {
					t.Errorf("%q on the screen, want %q", line, want)
				}
			}
		})
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
		t.Run("dumb-init: the terminal's end ends the command/"+p.name, func(t *testing.T) {
			theirs, ours := terminal(t)
			cmd := p.command(sh("echo ready; exec sleep 1000")...)
			cmd.Stdin, cmd.Stdout, cmd.Stderr = theirs, theirs, theirs
			cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
			l := startCmd(t, cmd)
			_ = theirs.Close()
			// No reader stays behind, which would keep the terminal open.
			var said [100]byte
			for n := 0; !strings.Contains(string(said[:n]), "ready"); {
				more, err := ours.Read(said[n:])
				if err != nil {
					t.Fatal(err)
				}
				n += more
			}
			_ = ours.Close()
			l.mustEnd(128 + int(syscall.SIGHUP))
		})
	}
}

func TestAsCatatonit(t *testing.T) {
	t.Parallel()
	inPlaces(t, func(t *testing.T, p place) {
		t.Run("catatonit: -P pauses until INT", func(t *testing.T) {
			// -v only to hear that it pauses.
			l := start(t, p, "-P", "-v")
			l.Err.want("fini: pausing")
			l.signal(syscall.SIGINT)
			l.mustEnd(0)
		})
		t.Run("catatonit: -g", func(t *testing.T) {
			two := strings.Join(mode("signals", "12"), " ")
			l := start(t, p, with("-g", sh(two+" & exec "+two))...)
			l.Out.want("ready")
			l.Out.want("ready")
			l.signal(syscall.SIGUSR2)
			l.Out.want("signal 12")
			l.Out.want("signal 12")
			l.mustEnd(7)
		})
		t.Run("catatonit: -h, -L and -V, and those of the others", func(t *testing.T) {
			for flag, want := range map[string]string{
				"-h": "usage: fini ", "--help": "usage: fini ",
				"-L": "MIT License", "-l": "MIT License", "--license": "MIT License",
				"-V": "fini version ", "--version": "fini version ",
			} {
				got, stdout, stderr := ask(t, p.command(flag))
				if got != 0 || !strings.HasPrefix(stdout, want) || stderr != "" {
					t.Errorf("%s: status %d, stdout %.40q, stderr %q", flag, got, stdout, stderr)
				}
			}
		})
	})
}
