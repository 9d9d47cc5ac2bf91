package bystanders

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/internal/tests/need"
	"github.com/seed-126c5d8a/fini/internal/tests/procfs"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { rig.Main(m) }

// Children from before fini was executed are nobody's leftovers.

// bystanders are a child that a fini had before it was one, and its descendants, each the child of the one before.
type bystanders struct {
	t     *testing.T
	hold  *os.File // they end with it
	heard *rig.Lines
	pids  []int
}

// startAsShell starts a command that starts the bystanders, and executes fini in its place when they are there. The words
// of launcher execute that, and hand on what they inherit.
func startAsShell(t *testing.T, launcher []string, p rig.Place, args ...string) (*rig.Life, *bystanders) {
	t.Helper()
	holdR, holdW := rig.Pipe(t)
	sayR, sayW := rig.Pipe(t)
	script := strings.Join(rig.Mode("bystander", "2"), " ") + ` <&4 >&5 3>&- 4<&- 5>&- & read all; exec "$@" 4<&- 5>&-`
	cmd := p.Executed([]string{"/bin/sh", "-c", script, "sh"}, args...)
	if launcher != nil {
		cmd = rig.CommandOf(append(launcher, cmd.Args...))
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	}
	cmd.ExtraFiles = []*os.File{holdR, sayW}
	l := rig.StartCmd(t, cmd)
	_, _ = holdR.Close(), sayW.Close()
	b := &bystanders{t, holdW, rig.NewLines(t, sayR), nil}
	for range 3 {
		b.pids = append(b.pids, b.heard.WantPID("bystander "))
	}
	rig.Write(t, l, "all\n")
	return l, b
}

// orphan kills all but the last one, which then is a child of fini's.
func (b *bystanders) orphan() {
	b.t.Helper()
	for len(b.pids) > 1 {
		rig.MustKill(b.t, b.pids[0], syscall.SIGKILL)
		rig.Until(b.t, "the bystander has another parent", func() bool { return procfs.ParentOf(b.pids[1]) != b.pids[0] })
		b.pids = b.pids[1:]
	}
}

// mustBeUntouched asserts that they live and have had no signal, and ends them.
func (b *bystanders) mustBeUntouched() {
	b.t.Helper()
	for _, pid := range b.pids {
		rig.MustStay(b.t, "a bystander", pid)
	}
	_ = b.hold.Close()
	rig.MustRecord(b.t, "the bystanders say", b.heard.Rest(), slices.Repeat([]string{"end"}, len(b.pids))...)
}

func TestEarlierChildren(t *testing.T) {
	t.Parallel()
	const leftovers = `setsid sleep 1000 & setsid sh -c 'trap "" TERM; echo up; while :; do sleep 1000; done' & `
	flags := []string{"--grace=300ms", "--linger=50ms"}
	rig.InEveryPlace(t, func(t *testing.T, p rig.Place) {
		t.Parallel()
		for _, policy := range []string{"stop", "pipes", "wait"} {
			t.Run("the command ends, "+policy, func(t *testing.T) {
				t.Parallel()
				script := leftovers
				if policy == "wait" { // what it waits for ends with the line
					script = `(echo up; read line <&7) 7<&0 & `
				}
				l, b := startAsShell(t, nil, p, append(flags, "--orphans="+policy, "--", "/bin/sh", "-c", script+"read go; exit 5")...)
				l.Out.Want("up")
				if policy == "stop" && !p.PID1 { // to fini, but it was there before fini was
					b.orphan()
				}
				rig.Write(t, l, "go\ngo\n")
				if policy == "pipes" { // one holds nothing but the witness
					l.MustHaveStatus(5)
				} else {
					l.MustEnd(5)
				}
				if p.PID1 { // the kernel ends all that is in the namespace, and before fini has asked each
					rig.MustRecord(t, "the bystanders say", b.heard.Rest(), slices.Repeat([]string{"signal 15"}, len(b.pids))...)
					return
				}
				b.mustBeUntouched()
			})
		}
	})
	for _, p := range rig.AloneOrPair(t, rig.Alone) {
		t.Run(p.Name+"/the launcher dies", func(t *testing.T) {
			t.Parallel()
			l, b := startAsShell(t, rig.Mode("launcher"), p, append(flags, "--", "/bin/sh", "-c", leftovers+"read go")...)
			l.Out.Launched()
			l.Out.Want("up")
			l.Signal(syscall.SIGKILL)
			rig.Until(t, "the end of the tree", func() bool { return rig.HungUp(l.Witness) })
			b.mustBeUntouched()
		})
	}
	t.Run("pair/the inner fini is killed", func(t *testing.T) {
		t.Parallel()
		l, b := startAsShell(t, nil, rig.Pair, append(flags, "--", "/bin/sh", "-c", leftovers+"echo inner $PPID; read go")...)
		rig.MustKill(t, l.Out.WantPID("inner "), syscall.SIGKILL)
		l.MustEnd(128 + 9)
		b.mustBeUntouched()
	})
}

// The kernel kills them as PID 1 exits. So PID 1 asks them first, and they have their grace. But nothing waits for them before,
// and they don't count.
func TestEarlierChildrenOfPID1(t *testing.T) {
	t.Parallel()
	const worker = `(trap 'sleep 0.1; echo worker done; exit' TERM; echo up; while :; do sleep 1000 & wait; done) & read go; exec "$@"`
	for _, policy := range []string{"stop", "pipes", "wait", "leave"} {
		t.Run(policy, func(t *testing.T) {
			t.Parallel()
			l := rig.StartCmd(t, rig.PID1.Executed([]string{"/bin/sh", "-c", worker, "sh"}, "-v", "--orphans-grace=1h", "--orphans="+policy, "--orphans-exit=9", "--", "/bin/true"))
			l.Out.Want("up")
			rig.Write(t, l, "go\n")
			l.MustEnd(0)
			rig.MustRecord(t, "the worker says", l.Out.Rest(), "worker done")
			l.Err.Want("fini: stopping ")
		})
	}
}

// What fini brings upon itself is not for the command.

// quietly is a command that records signals until SIGUSR2, which goes through fini like SIGUSR1.
func quietly(t *testing.T, fini *exec.Cmd, before func(*rig.Life)) {
	t.Helper()
	l := rig.StartCmd(t, fini)
	l.Out.Want("ready")
	l.Caught()
	for range 3 { // with each of them fini says something
		l.Signal(syscall.SIGUSR1)
		if line, _ := l.Out.Next(); line != "signal 10" {
			t.Fatalf("the command says %q", line)
		}
	}
	if before != nil {
		before(l)
	}
	l.Signal(syscall.SIGUSR2)
	rig.MustRecord(t, "the command says", l.Out.Rest(), "signal 12")
	l.MustEnd(7)
}

func TestSignalsOfFinisOwn(t *testing.T) {
	t.Parallel()
	recorder := append([]string{"-v", "--"}, rig.Mode("signals", "12")...)
	rig.InPlaces(t, rig.Alone, func(t *testing.T, p rig.Place) {
		t.Parallel()
		for _, room := range []int{0, 20, 150} { // nothing, the beginning of a line, some lines
			t.Run(fmt.Sprintf("SIGXFSZ, %d bytes", room), func(t *testing.T) {
				t.Parallel()
				file, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
				rig.NoError(t, err)
				defer func() { _ = file.Close() }()
				prefix := []string{need.Program(t, "prlimit"), fmt.Sprintf("--fsize=%d", room)}
				fini := p.Executed(prefix, recorder...)
				fini.Stderr = file
				quietly(t, fini, nil)
				if info, err := file.Stat(); err != nil || info.Size() != int64(room) {
					t.Errorf("stderr has %d bytes, want it full with %d", info.Size(), room)
				}
			})
		}
		t.Run("SIGPIPE", func(t *testing.T) {
			t.Parallel()
			r, w := rig.Pipe(t)
			_ = r.Close()
			fini := p.Command(recorder...)
			fini.Stderr = w
			quietly(t, fini, nil)
		})
	})
	// The time that fini itself has used: it takes in signals that it drops until it is over.
	t.Run("SIGXCPU", func(t *testing.T) {
		t.Parallel()
		fini := rig.Alone.Command(append([]string{"-r", "WINCH:0", "-r", "CONT:0", "--"}, rig.Mode("signals", "12")...)...)
		quietly(t, fini, func(l *rig.Life) {
			limit := unix.Rlimit{Cur: 1, Max: unix.RLIM_INFINITY}
			rig.NoError(t, unix.Prlimit(l.PID(), unix.RLIMIT_CPU, &limit, nil))
			for ticks := 0; ticks < 110; ticks = procfs.StatOf(l.PID()).Number(14) + procfs.StatOf(l.PID()).Number(15) {
				for i := range 1000 { // none of which the kernel queues up
					_ = l.Cmd.Process.Signal([]syscall.Signal{syscall.SIGWINCH, syscall.SIGCONT}[i%2])
				}
			}
		})
	})
}

// A child from before the exec whose exit signal is not SIGCHLD is no leftover either, and leaves no zombie: a wait has to ask
// for it by __WALL, see wait(2).
func TestEarlierChildWithAnotherExitSignal(t *testing.T) {
	t.Parallel()
	need.That(t, runtime.GOARCH == "amd64", "amd64, whose number of clone(2) and order of its arguments these are")
	const clones = `
		open my $end, "<&=", 4;
		if (syscall(56, 0 + shift, 0, 0, 0, 0) == 0) {
			open my $witness, ">&=", 3;
			close $witness;
			sysread $end, my $line, 1;
			print "alive\n";
			exit;
		}
		exec @ARGV`
	for _, sig := range []string{"0", "10"} {
		for _, leaves := range []string{"setsid sleep 1000 & ", ""} {
			end, hold := rig.Pipe(t)
			cmd := exec.Command("perl", "-e", clones, sig, rig.Fini, "--no-shield", "--grace=200ms", "--linger=0", "--",
				"/bin/sh", "-c", leaves+"echo ready; read line; exit 7")
			cmd.ExtraFiles = []*os.File{end}
			l := rig.StartCmd(t, cmd)
			l.Out.Want("ready")
			if leaves == "" {
				_, _ = hold.WriteString("\n")
				l.Out.Want("alive")
				rig.Until(t, "its end, without a zombie", func() bool { return len(procfs.ChildrenOf(t, l.PID())) == 1 })
			}
			rig.Write(t, l, "go\n")
			l.MustEnd(7)
			if leaves != "" {
				_, _ = hold.WriteString("\n")
				l.Out.Want("alive")
			}
		}
	}
}

// In a PID namespace that has only a hundred pids to give, each is given out again within a
// fraction of a second. Bystanders that come and go get the pids of leftovers that fini has seen,
// and are not hit.
func TestRecycledPids(t *testing.T) {
	t.Parallel()
	rig.Long(t)
	rig.NeedPidNamespace(t)
	need.Root(t)
	need.That(t, pidMaxIsTheNamespaces(), "a kernel.pid_max for each PID namespace (Linux 6.14)")
	limit := fewPids()
	before, _ := os.ReadFile("/proc/sys/kernel/pid_max")
	runs, bystanders := 0, 0
	for long := rig.DrawnFor(t, 2*time.Second); (runs < 3 || bystanders < 500) && !t.Failed(); long *= 4 {
		if long > 4*rig.Patience {
			t.Fatal("too few to mean something")
		}
		cmd := exec.Command("/proc/self/exe", append([]string{"@pid1"}, rig.Mode("pidReuse", limit, long.String(), rig.Fini)...)...)
		rig.AsPID1(cmd)
		l := rig.StartCmd(t, cmd)
		l.Wait() // for long, and the patience may be less
		l.MustEnd(0)
		for line := range strings.Lines(l.Out.Whole()) {
			_, _ = fmt.Sscanf(line, "runs %d", &runs)
			_, _ = fmt.Sscanf(line, "bystanders %d", &bystanders)
			if strings.HasPrefix(line, "hit:") || strings.HasPrefix(line, "status") {
				t.Errorf("%s", line)
			}
		}
		t.Logf("%d runs of fini beside %d bystanders, with pids below %s", runs, bystanders, limit)
	}
	if after, _ := os.ReadFile("/proc/sys/kernel/pid_max"); string(after) != string(before) {
		t.Errorf("the test's own pid_max is %s, was %s", after, before)
	}
}

// pidMaxIsTheNamespaces reports whether to write kernel.pid_max in a namespace spares the others.
func pidMaxIsTheNamespaces() bool {
	var name unix.Utsname
	_ = unix.Uname(&name)
	var major, minor int
	_, _ = fmt.Sscanf(unix.ByteSliceToString(name.Release[:]), "%d.%d", &major, &minor)
	return major > 6 || major == 6 && minor >= 14
}

// fewPids is about the least that the kernel takes for kernel.pid_max: eight for each possible processor, and 301.
func fewPids() string {
	var last int
	text, _ := os.ReadFile("/sys/devices/system/cpu/possible")
	_, _ = fmt.Sscanf(string(text), "0-%d", &last)
	return strconv.Itoa(max(400, 8*(last+1)+100))
}
