package e2e

import (
	"fmt"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seed-126c5d8a/fini/e2e/need"
	"golang.org/x/sys/unix"
)

// What a Go program as the command can't catch, or fini must not forward: KILL and STOP; CHLD,
// which speaks of fini's own children; URG and PROF, which the runtime keeps; 32 to 34, which
// the C library and the runtime keep.
func forwardable(sig syscall.Signal) bool {
	switch sig {
	case syscall.SIGKILL, syscall.SIGSTOP, syscall.SIGCHLD, syscall.SIGURG, syscall.SIGPROF:
		return false
	}
	return sig < 32 || sig > 34
}

func TestEverySignalArrivesOnce(t *testing.T) {
	t.Parallel()
	inPlaces(t, func(t *testing.T, p place) {
		l := start(t, p, append([]string{"--"}, mode("signals", "3")...)...)
		l.Out.want("ready")
		l.caught()
		for sig := syscall.Signal(1); sig <= 64; sig++ {
			if forwardable(sig) && sig != syscall.SIGQUIT {
				l.signal(sig)
				if line, _ := l.Out.next(); line != fmt.Sprintf("signal %d", sig) {
					t.Fatalf("sent %d, got %q", sig, line)
				}
			}
		}
		// Were one of these forwarded, it would arrive before the sentinel.
		for _, sig := range []syscall.Signal{syscall.SIGURG, syscall.SIGCHLD, 32, 33} {
			l.signal(sig)
		}
		l.signal(syscall.SIGQUIT)
		if got := l.Out.rest(); len(got) != 1 || got[0] != "signal 3" {
			t.Errorf("the rest is %q, want the sentinel alone", got)
		}
		l.mustEnd(7)
	})
}

func TestSignalsReachTheGroup(t *testing.T) {
	t.Parallel()
	signals := strings.Join(mode("signals", "12"), " ")
	inPlaces(t, func(t *testing.T, p place) {
		for _, tt := range []struct {
			name string
			args []string
			want int // how many of the group get it
		}{{"group", nil, 2}, {"-c", []string{"-c"}, 1}, {"--single-child", []string{"--single-child"}, 1}} {
			t.Run(tt.name, func(t *testing.T) {
				l := start(t, p, append(tt.args, "--linger=0", "--grace=50ms", "--", "/bin/sh", "-c", signals+" & exec "+signals)...)
				l.Out.want("ready")
				l.Out.want("ready")
				l.signal(syscall.SIGUSR1)
				for range tt.want {
					l.Out.want("signal 10")
				}
				l.signal(syscall.SIGUSR2)
				var again int
				for _, line := range l.Out.rest() {
					if line == "signal 10" {
						again++
					}
				}
				if again > 0 {
					t.Errorf("%d more got the signal than should", again)
				}
				l.mustEnd(7)
			})
		}
	})
}

// A shell without job control starts a command in the background with SIGINT and SIGQUIT ignored. If that
// handles them all the same, it gets them, as without an init.
func TestIgnoredSignalReachesAHandler(t *testing.T) {
	t.Parallel()
	programs := map[string][]string{
		"node": {need.Program(t, "node"), "-e", `
for (const sig of ["SIGINT", "SIGQUIT", "SIGHUP"]) process.on(sig, () => { console.log("got " + sig); process.exit(9) });
setInterval(() => {}, 1e6); console.log("up")`},
		"python": {need.Program(t, "python3"), "-c", `
import os, signal
def got(sig, _): os.write(1, b"got %s\n" % signal.Signals(sig).name.encode()); os._exit(9)
for sig in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP): signal.signal(sig, got)
os.write(1, b"up\n")
while True: signal.sigtimedwait([], 1)`},
	}
	runners := map[string][]string{"without": nil, "tini": {need.Program(t, "tini"), "-s", "--"}}
	for _, p := range []place{alone, pair, isolated} {
		runners[p.name] = slices.Concat([]string{finiPath}, p.flags(), []string{"--kill-after=1ms", "--"})
	}
	for what, program := range programs {
		for who, runner := range runners {
			for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGQUIT, syscall.SIGHUP} {
				t.Run(fmt.Sprintf("%s/%s/%v", what, who, sig), func(t *testing.T) {
					t.Parallel()
					if who == isolated.name {
						needIsolation(t, account{name: "this user"})
					}
					script := `trap "" HUP; "$@" & echo "fini $!"; wait $!; exit $?`
					l := startCmd(t, exec.Command("/bin/sh", slices.Concat([]string{"-c", script, "sh"}, runner, program)...))
					pid := l.Out.launched()
					l.Out.want("up")
					if runner != nil && who != "tini" {
						waitCaught(t, pid)
						if who != "alone" {
							waitCaught(t, childrenOf(t, pid)[0])
						}
					}
					mustKill(t, pid, sig)
					l.Out.want("got " + unix.SignalName(sig))
					l.mustEnd(9)
				})
			}
		}
	}
}

// It shortens none of the waits if the command, and what that leaves behind, ignores it as it did.
func TestIgnoredSignalAsksForNoEnd(t *testing.T) {
	t.Parallel()
	for _, p := range aloneOrPair {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			argv := p.executed(nil, "-v", "--kill-after=1ms", "--", "/bin/sh", "-c", "echo up; read line; exit 7").Args
			l := startCmd(t, exec.Command("/bin/sh", append([]string{"-c", `trap "" INT QUIT HUP; exec "$@"`, "sh"}, argv...)...))
			l.Out.want("up")
			l.caught()
			for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGQUIT, syscall.SIGHUP, syscall.SIGINT} {
				l.signal(sig)
				l.Err.want("fini: sending " + unix.SignalName(sig) + " to the command")
			}
			write(t, l, "line\n")
			l.mustEnd(7)
		})
	}
}

// A leader that has moved to another group is still reached.
func TestSignalReachesACommandThatChangedItsGroup(t *testing.T) {
	t.Parallel()
	python := need.Program(t, "python3")
	l := start(t, pair, "--", python, "-c", `
import os, signal, sys, time
signal.signal(signal.SIGUSR1, lambda *_: (os.write(1, b"got it\n"), sys.exit(8)))
child = os.fork()
if child == 0:
    os.setpgid(0, 0)
    signal.pause()
    os._exit(0)
while True:
    try:
        os.setpgid(0, child)
        break
    except PermissionError:
        pass
os.write(1, b"moved\n")
while True:
    time.sleep(0.01) # pause would miss a signal that comes just before it
`)
	l.Out.want("moved")
	l.signal(syscall.SIGUSR1)
	l.Out.want("got it")
	l.mustEnd(8)
}

// Those that the Go runtime uses for itself are the command's too, where somebody sends them.
func TestSignalsOfTheRuntimeAreForwarded(t *testing.T) {
	t.Parallel()
	need.That(t, runtime.GOARCH == "amd64" || runtime.GOARCH == "arm64", "an architecture with a signal handler of fini's own")
	python := need.Program(t, "python3")
	inPlaces(t, func(t *testing.T, p place) {
		l := start(t, p, "--", python, "-c", `
import os, signal, sys
wanted = [23, 27, 34]
signal.pthread_sigmask(signal.SIG_BLOCK, wanted)
print("ready", flush=True)
while wanted:
    sig = signal.sigwait(wanted)
    print("signal", int(sig), flush=True)
    wanted.remove(sig)
sys.exit(9)
`)
		l.Out.want("ready")
		l.caught()
		for _, sig := range []syscall.Signal{syscall.SIGURG, syscall.SIGPROF, 34} {
			l.signal(sig)
			l.Out.want(fmt.Sprintf("signal %d", sig))
		}
		l.mustEnd(9)
	})
}

func TestRewrite(t *testing.T) {
	t.Parallel()
	inPlaces(t, func(t *testing.T, p place) {
		t.Run("some", func(t *testing.T) {
			l := start(t, p, append([]string{"-r", "TERM:QUIT", "-r2:0", "--rewrite=sighup:SIGUSR1", "-r", "RTMIN+3:15", "--"}, mode("signals", "12")...)...)
			l.Out.want("ready")
			l.caught()
			for _, tt := range []struct {
				sent syscall.Signal
				want string
			}{
				{syscall.SIGTERM, "signal 3"},
				{syscall.SIGHUP, "signal 10"},
				{37, "signal 15"},
				{syscall.SIGINT, ""},
				{syscall.SIGQUIT, "signal 3"},
				{syscall.SIGUSR2, "signal 12"},
			} {
				l.signal(tt.sent)
				if tt.want == "" {
					continue // the next one shows that it did not come
				}
				if line, _ := l.Out.next(); line != tt.want {
					t.Errorf("sent %d, got %q, want %q", tt.sent, line, tt.want)
				}
			}
			l.mustEnd(7)
		})
		t.Run("all", func(t *testing.T) {
			var flags []string
			for sig := syscall.Signal(1); sig <= 64; sig++ {
				if forwardable(sig) && sig != syscall.SIGUSR2 {
					flags = append(flags, "-r", fmt.Sprintf("%d:10", sig))
				}
			}
			l := start(t, p, append(append(flags, "--"), mode("signals", "12")...)...)
			l.Out.want("ready")
			l.caught()
			for sig := syscall.Signal(1); sig <= 64; sig++ {
				if forwardable(sig) && sig != syscall.SIGUSR2 {
					l.signal(sig)
					if line, _ := l.Out.next(); line != "signal 10" {
						t.Fatalf("sent %d, got %q", sig, line)
					}
				}
			}
			l.signal(syscall.SIGUSR2)
			l.mustEnd(7)
		})
	})
}

func countStopped(pids []int) (n int) {
	for _, pid := range pids {
		if strings.HasPrefix(procStatus(pid, "State"), "T") {
			n++
		}
	}
	return n
}

// A fini whose process group is orphaned can't be stopped by these, and need not be: it goes
// on watching its launcher. What it has stopped can be continued, ended and killed.
func TestStopSignalsInAnOrphanedGroup(t *testing.T) {
	t.Parallel()
	for _, p := range []place{pair, alone} {
		for name, tt := range map[string]struct {
			end    func(l *boundLife) error
			status int // of fini
		}{
			"TERM":            {func(l *boundLife) error { return syscall.Kill(l.outer, syscall.SIGTERM) }, 128 + 15},
			"INT":             {func(l *boundLife) error { return syscall.Kill(l.outer, syscall.SIGINT) }, 128 + 2},
			"CONT":            {func(l *boundLife) error { return syscall.Kill(l.outer, syscall.SIGCONT) }, 0},
			"launcher killed": {func(l *boundLife) error { return syscall.Kill(l.launcher, syscall.SIGKILL) }, -1},
			"fini killed": {func(l *boundLife) error {
				if !p.alone {
					return syscall.Kill(l.outer, syscall.SIGKILL)
				}
				return syscall.Kill(l.childOf(l.outer), syscall.SIGKILL)
			}, 128 + 9},
		} {
			t.Run(p.name+"/"+name, func(t *testing.T) {
				t.Parallel()
				args := append([]string{need.Program(t, "setsid"), "--wait"}, p.command("--grace=300ms", "--", "/bin/sh", "-c", "echo ready; read word").Args...)
				cmd := exec.Command("/proc/self/exe", append([]string{"@launcher"}, args...)...)
				l := &boundLife{life: startCmd(t, cmd)}
				l.launcher = l.pid()
				l.outer = l.Out.launched()
				l.Out.want("ready")
				inner := l.outer
				if !p.alone {
					inner = l.inner()
				}
				waitCaught(t, l.outer, inner)
				command := l.childOf(inner)
				_ = syscall.Kill(l.outer, syscall.SIGTSTP)
				until(t, "the command is stopped", func() bool { return countStopped([]int{command}) == 1 })
				write(t, l.life, "go\n")
				if err := tt.end(l); err != nil {
					t.Fatal(err)
				}
				l.mustVanish(time.Second)
				_ = l.Stdin.Close()
				if got := l.status(); tt.status >= 0 && got != tt.status {
					t.Errorf("status %d, want %d; stderr: %s", got, tt.status, l.Err.text())
				}
			})
		}
	}
}

// A child from before the exec whose exit signal is not SIGCHLD is no leftover either.
func TestEarlierChildWithAnotherExitSignal(t *testing.T) {
	t.Parallel()
	need.That(t, runtime.GOARCH == "amd64", "amd64, whose number of clone(2) and order of its arguments these are")
	python := need.Program(t, "python3")
	for _, sig := range []string{"0", "10"} {
		l := startCmd(t, exec.Command(python, "-c", `
import ctypes, os, sys
if ctypes.CDLL(None).syscall(56, int(sys.argv[1]), 0, 0, 0, 0) == 0:
    os.read(0, 1)
    os.write(1, b"alive\n")
    os._exit(0)
os.execv(sys.argv[2], sys.argv[2:])`,
			sig, finiPath, "--no-shield", "--grace=200ms", "--linger=0", "--", "/bin/sh", "-c", "setsid sleep 1000 & exit 7"))
		if got := l.status(); got != 7 {
			t.Errorf("status %d; stderr: %s", got, l.Err.text())
		}
		write(t, l, "\n")
		l.Out.want("alive")
	}
}

// What was ignored when fini started stays ignored, as nohup wants it.
func TestIgnoredSignalsStayIgnored(t *testing.T) {
	t.Parallel()
	signals := strings.Join(mode("signals", "15"), " ")
	for _, sig := range []syscall.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGTTOU} {
		t.Run(sig.String(), func(t *testing.T) {
			l := startCmd(t, exec.Command("/bin/sh", "-c", fmt.Sprintf(`trap "" %d; exec %s -- %s`, sig, finiPath, signals)))
			l.Out.want("ready")
			l.signal(sig)
			if ignored := procStatus(childrenOf(t, l.worker())[0], "SigIgn"); !maskHas(ignored, sig) {
				t.Errorf("the command does not ignore it: SigIgn %s", ignored)
			}
			l.signal(syscall.SIGTERM)
			if got := l.Out.rest(); len(got) != 1 || got[0] != "signal 15" {
				t.Errorf("got %q, want SIGTERM alone", got)
			}
			l.mustEnd(7)
		})
	}
}

func maskHas(mask string, sig syscall.Signal) bool {
	var bits uint64
	_, err := fmt.Sscanf(mask, "%x", &bits)
	return err == nil && bits&(1<<(sig-1)) != 0
}
