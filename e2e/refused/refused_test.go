package refused

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/e2e/rig/pty"
	"github.com/seed-126c5d8a/fini/e2e/rig/refusals"
	"github.com/seed-126c5d8a/fini/e2e/rig/rest"
	"github.com/seed-126c5d8a/fini/internal/tests/need"
	"github.com/seed-126c5d8a/fini/internal/tests/procfs"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { rig.Main(m) }

// What a kernel refuses, because it is old or by a filter, and what fini does without it. The
// filter is real, and both of a pair and the command inherit it. Whatever is refused, the
// command runs, signals reach it, orphans are reaped and the status arrives.

// The tree of each case: one leftover in the main child's group, which ignores TERM, one in a
// session of its own, one that was forked twice, and one in a session of its own that ignores
// TERM. The shells fork once more. The main child answers SIGUSR1, and ends at SIGTERM. All
// are ready, and there has been an orphan, when it says so.
const refusedTree = `
	trap 'echo usr1' USR1; trap 'exit 7' TERM
	dir=$(mktemp -d); mkfifo $dir/ready; exec 4<>$dir/ready; rm -r $dir
	sh -c 'trap "" TERM USR1; (echo ready >&4; exec sleep 1000); :' &
	setsid sh -c 'echo ready >&4; exec sleep 1000' &
	setsid sh -c 'sh -c "echo ready >&4; exec sleep 1000" & exit' &
	setsid sh -c 'trap "" TERM; (echo ready >&4; exec sleep 1000); :' &
	for i in 1 2 3 4; do read line <&4; done
	sh -c 'read line <&4 & echo orphan $!'
	echo go >&4; echo main $$
	while :; do wait; done`

// leftovers is how many processes of the tree are not the main child.
const leftovers = 6

// A refusedLife is a fini with refusals and its tree.
type refusedLife struct {
	*rig.Life
	cgroup *rig.Cgroup
	orphan int
	main   int
	fini   int
}

// startRefused starts fini with the whole tree, by way of a launcher or not.
func startRefused(t *testing.T, row refusals.Row, kind string, p rig.Place, launcher ...string) *refusedLife {
	t.Helper()
	h := rig.NewCgroup(t)
	grace := "500ms"
	if row.Left == refusals.Leftovers && !p.PID1 {
		grace = "1m" // it is the main child's alone, which answers
	}
	cmd := h.Around(p, append(launcher, rig.Mode("refuse", row.Calls+":"+kind)...),
		"-w", "--linger=0", "--grace="+grace, "--", "/bin/sh", "-c", refusedTree)
	if !p.PID1 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // see launch
	}
	l := &refusedLife{Life: rig.StartCmd(t, cmd), cgroup: h}
	if l.fini = l.PID(); launcher != nil {
		l.fini = l.Out.Launched()
	}
	l.orphan, l.main = l.Out.WantPID("orphan "), l.Out.WantPID("main ")
	l.mustSay(row, p, kind) // the command may be quicker than fini, and a fini that is killed says nothing
	return l
}

// mustAnswer sends the main child a signal by way of pid.
func (l *refusedLife) mustAnswer(pid int) {
	l.T.Helper()
	rig.MustKill(l.T, pid, syscall.SIGUSR1)
	if line, _ := l.Out.Next(); line != "usr1" {
		l.T.Fatalf("it answers %q to a signal; stderr: %s", line, l.Err.Text())
	}
}

// mustLeave asserts what is alive, after every fini has gone.
func (l *refusedLife) mustLeave(want refusals.Alive) {
	l.T.Helper()
	left := map[refusals.Alive]int{refusals.Leftovers: leftovers, refusals.Everything: leftovers + 1}[want]
	if want == refusals.Everything {
		l.mustAnswer(l.main)
	}
	rig.Until(l.T, "the end of the orphan, and of all that does not stay", func() bool {
		pids := l.cgroup.Alive()
		return len(pids) <= left && !slices.Contains(pids, l.orphan) && (want == refusals.Everything || !slices.Contains(pids, l.main))
	})
	if got := l.cgroup.Names(); len(got) != left {
		l.T.Errorf("alive: %q, want %d", got, left)
	}
	if want == refusals.Nothing {
		rig.MustRecord(l.T, "the command has written more", l.Out.Rest())
	}
}

// What fini says of each leftover and zombie, and why it stops the command, is tested elsewhere.
var ofLeftovers = regexp.MustCompile(`^fini: ((stopping leftover|killing leftover|reaped zombie) [0-9]+|(stopping|killing) the command: )`)

// complaints are the other lines of fini's.
func complaints(said string) []string {
	return slices.DeleteFunc(strings.Split(strings.TrimSuffix(said, "\n"), "\n"), func(line string) bool {
		return line == "" || ofLeftovers.MatchString(line)
	})
}

// mustSay asserts what fini says of what is lost in a place: these lines, and nothing else. Leftovers hold its stderr, so
// that no EOF tells that all has been read.
func (l *refusedLife) mustSay(row refusals.Row, p rig.Place, kind string) {
	l.T.Helper()
	errno := map[string]unix.Errno{"ENOSYS": unix.ENOSYS, "EPERM": unix.EPERM}[kind]
	var want []string
	for _, line := range row.SaysIn(p) {
		want = append(want, "fini: "+strings.ReplaceAll(line, "ERROR", errno.Error()))
	}
	if !rig.Await(rig.Enough, func() bool { return slices.Equal(complaints(l.Err.Text()), want) }) {
		l.T.Errorf("fini says %q, want %q", complaints(l.Err.Text()), want)
	}
}

func TestRefused(t *testing.T) {
	t.Parallel()
	need.Root(t)
	for _, row := range refusals.Rows {
		t.Run(strings.ReplaceAll(row.Refused, "`", ""), func(t *testing.T) {
			t.Parallel()
			t.Logf("| %s | %s |", row.Refused, row.Lost)
			rig.InEveryPlace(t, func(t *testing.T, p rig.Place) {
				for _, kind := range []string{"ENOSYS", "EPERM"} {
					// One process takes the same ways as the two of a pair.
					rig.Case(t, p == rig.Pair && kind == "EPERM", kind, func(t *testing.T) {
						t.Parallel()
						refusedRun(t, row, kind, p)
					})
				}
			})
			for _, kind := range []string{"ENOSYS", "EPERM"} {
				if kind == "ENOSYS" && !strings.Contains(row.Calls, "pidfd_open") {
					continue // it takes no other way to tell of an end
				}
				for _, victim := range []string{"launcher", "outer", "inner", "only"} {
					rig.Case(t, kind == "EPERM" && victim == row.Quick, victim+" is killed/"+kind, func(t *testing.T) {
						t.Parallel()
						refusedKilled(t, row, victim, kind)
					})
				}
			}
		})
	}
}

// refusedRun is a life without a fault: a signal, an orphan, leftovers and a status.
func refusedRun(t *testing.T, row refusals.Row, kind string, p rig.Place) {
	left := row.Left
	if p.PID1 {
		left = refusals.Nothing // an orphan comes to PID 1 without being asked for
	}
	l := startRefused(t, row, kind, p)
	if left == refusals.Nothing {
		l.Err.Want(fmt.Sprintf("fini: reaped zombie %d", l.orphan))
	}
	l.mustAnswer(l.PID())
	l.Signal(syscall.SIGTERM)
	if left == refusals.Nothing {
		l.MustEnd(7)
		l.cgroup.MustBeEmpty()
	} else {
		l.MustHaveStatus(7)
	}
	l.mustLeave(left)
	l.mustSay(row, p, kind)
}

// refusedKilled kills one of the pair, a fini without a shield, or the launcher of a pair, or of what there is in its place.
func refusedKilled(t *testing.T, row refusals.Row, victim, kind string) {
	p, left := rig.Pair, row.Left
	switch victim {
	case "inner":
		left = row.Inner
	case "only":
		p, left = rig.Alone, row.Alone
	}
	l := startRefused(t, row, kind, p, rig.Mode("launcher")...)
	inner := procfs.ParentOf(l.main)
	if (inner != l.fini) != (p == rig.Pair) {
		t.Fatalf("the command is a child of %d, and fini is %d", inner, l.fini)
	}
	rig.MustKill(t, map[string]int{"launcher": l.PID(), "outer": l.fini, "inner": inner, "only": l.fini}[victim], syscall.SIGKILL)
	l.MustHaveStatus(137)
	if victim == "launcher" && row.Unbound {
		// What does not come can't be waited for. But fini does not say that it is bound, and
		// goes on.
		l.mustAnswer(l.fini)
		rig.MustKill(t, l.fini, syscall.SIGTERM)
	}
	rig.Until(t, "the end of both", func() bool {
		pids := l.cgroup.Alive()
		return !slices.Contains(pids, l.fini) && !slices.Contains(pids, inner)
	})
	l.mustLeave(left)
	l.mustSay(row, p, kind)
}

// under is fini with refused calls.
func under(calls string, p rig.Place, args ...string) *exec.Cmd {
	return p.Executed(rig.Mode("refuse", calls), args...)
}

// leftover is a command with one that ignores SIGTERM, and is no child of fini's.
const leftover = `setsid sh -c 'trap "" TERM; (echo ready; exec sleep 1000); :' & read go; exit 3`

// goOn has the command end when its leftover is there.
func goOn(t *testing.T, cmd *exec.Cmd) *rig.Life {
	t.Helper()
	l := rig.StartCmd(t, cmd)
	l.Out.Want("ready")
	rig.Write(t, l, "go\n")
	return l
}

// The number of EPERM is 1. A fini that took -1 for its own pid killed every process of the machine, so this one has a PID
// namespace of its own.
func TestGetpidIsRefused(t *testing.T) {
	t.Parallel()
	rig.NeedPidNamespace(t)
	for _, p := range []rig.Place{rig.Pair, rig.Alone} {
		rig.Case(t, p == rig.Alone, p.Name, func(t *testing.T) {
			t.Parallel()
			l := rig.StartCmd(t, rig.CommandOf(append([]string{need.Program(t, "unshare"), "-pf", "--mount-proc", "--kill-child", "/bin/sh", "-c",
				`sleep 1000 & "$@"; echo fini $?; kill $!; wait $!; echo bystander $?`, "sh"}, under("getpid:EPERM", p, "--", "true").Args...)))
			rig.MustRecord(t, "the shell says", l.Out.Rest(), "fini 125", "bystander 143")
			l.MustEnd(0)
		})
	}
}

// Where fini does without a timer and pidfds, nothing makes it look all the time.
func TestRefusedDoesNotSpin(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, calls string }{
		{"timerfd", "timerfd_create"},
		{"all", refusals.All},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			l := rig.StartCmd(t, under(tt.calls+":EPERM", rig.Pair, "-t1h", "--", "/bin/sh", "-c",
				`sh -c 'sleep 0.1 & :'; echo main $$; read go; sleep 1; echo slept; read go; exit 3`))
			finis := []int{l.PID(), procfs.ParentOf(l.Out.WantPID("main "))}
			rest.Settled(t, finis) // the outer one lets go of what it holds
			before, start := procfs.CPU(finis...), time.Now()
			rig.Write(t, l, "go\n")
			l.Out.Want("slept")
			if took := time.Since(start); procfs.CPU(finis...)-before > took/10 {
				t.Errorf("fini had a processor for %v of %v, in which it had nothing to do", procfs.CPU(finis...)-before, took)
			}
			rig.Write(t, l, "go\n")
			l.MustEnd(3)
		})
	}
}

// Every alarm rings without a timer's descriptor: --linger, --grace, --timeout and --kill-after.
func TestRefusedAlarms(t *testing.T) {
	t.Parallel()
	const stubborn = `trap "" TERM; (echo ready; exec sleep 1000); :`
	for _, tt := range []struct {
		name   string
		flags  []string
		script string
		status int
	}{
		{"timeout and grace", []string{"--grace=50ms"}, stubborn, 124},
		{"kill-after", []string{"-k100ms", "--grace=1h"}, stubborn, 137},
		{"linger and grace", []string{"--linger=50ms", "--grace=50ms"}, leftover, 3},
	} {
		for _, calls := range []string{"timerfd_create", refusals.BeforePidfds, refusals.All} {
			if calls == refusals.All && tt.status == 3 {
				continue // leftovers are not found
			}
			rig.Case(t, calls != refusals.BeforePidfds, tt.name+"/"+strings.SplitN(calls, ",", 2)[0], func(t *testing.T) {
				t.Parallel()
				h := rig.NewCgroup(t)
				cmd := func(timeout string) *exec.Cmd {
					return h.Around(rig.Pair, rig.Mode("refuse", calls+":ENOSYS"), slices.Concat([]string{timeout}, tt.flags, []string{"--", "/bin/sh", "-c", tt.script})...)
				}
				var l *rig.Life
				switch tt.status {
				case 124:
					l = rig.OutOfTime(t, func(t testing.TB, timeout string) *rig.Life { return rig.StartCmd(t, cmd(timeout)) })
				case 137:
					l = rig.StartCmd(t, cmd("--timeout=1h"))
					l.Out.Want("ready")
					l.Caught()
					l.Signal(syscall.SIGTERM)
				case 3:
					l = goOn(t, cmd("--timeout=1h"))
				}
				if calls == refusals.All {
					l.MustHaveStatus(tt.status)
				} else {
					l.MustEnd(tt.status)
				}
			})
		}
	}
}

// Without pwritev2 a line that nobody reads still raises no SIGPIPE for the command.
func TestRefusedSIGPIPE(t *testing.T) {
	t.Parallel()
	cmd := under("pwritev2:EPERM", rig.Pair, "-w", "--", "/bin/sh", "-c", `
		trap 'echo pipe' PIPE
		mkfifo $DIR/go; exec 4<>$DIR/go
		sh -c 'read line <&4 & echo orphan $!'
		echo go >&4
		while read go; do echo $go; done; exit 3`)
	cmd.Env = append(os.Environ(), "DIR="+t.TempDir())
	reader, stderr := rig.Pipe(t)
	_ = reader.Close()
	cmd.Stderr = stderr
	l := rig.StartCmd(t, cmd)
	orphan := l.Out.WantPID("orphan ")
	l.Caught()
	rig.Until(t, "the orphan is reaped", func() bool { return procfs.Status(orphan, "State") == "" })
	// What fini says of the orphan, it says before it takes in the next signal.
	for _, word := range []string{"one", "two"} {
		l.Signal(syscall.SIGCONT)
		rig.Write(t, l, word+"\n")
		l.Out.Want(word)
	}
	_ = l.Stdin.Close()
	l.MustEnd(3)
	if out := l.Out.Whole(); strings.Contains(out, "pipe") {
		t.Errorf("the command was sent SIGPIPE: %q", out)
	}
}

// At a terminal the command is in the job's group, so that it needs nothing of what is refused.
func TestRefusedForeground(t *testing.T) {
	t.Parallel()
	for _, calls := range []string{"TIOCSPGRP", "setpgid", refusals.All} {
		for _, p := range []rig.Place{rig.Pair, rig.Alone} {
			rig.Case(t, p == rig.Pair || calls == "setpgid", strings.SplitN(calls, ",", 2)[0]+"/"+p.Name, func(t *testing.T) {
				t.Parallel()
				l, screen, keys := pty.Start(t, exec.Command("/bin/sh", "-c",
					strings.Join(under(calls+":EPERM", p, "--linger=0", "--").Args, " ")+` sh -c 'echo one; read line; echo "$line is read"; exit 3'; echo "status $?"
					echo last; read line; echo "$line is read by the shell"; read end`))
				screen.Want("one")
				_, _ = io.WriteString(keys, "a word\n")
				screen.Want("a word is read")
				screen.Want("status 3")
				screen.Want("last")
				_, _ = io.WriteString(keys, "another\n")
				screen.Want("another is read by the shell")
				_, _ = io.WriteString(keys, "\n")
				l.MustEnd(0)
			})
		}
	}
}

// Without a /proc of its own fini finds its children all the same, and whatever these leave to it: where /proc is another
// namespace's, hides others, can't be written, or is missing; but not where all else is refused too. No process has a name
// then, so none is left alone, which is said once.
func TestRefusedProc(t *testing.T) {
	t.Parallel()
	need.Root(t)
	unshare, setpriv := need.Program(t, "unshare"), need.Program(t, "setpriv")
	const (
		user   = "12345"
		asUser = ` --reuid ` + user + ` --clear-groups ` + leftover
		asRoot = `$SUID --reuid 0 --clear-groups ` + leftover
	)
	with := func(mount string) []string { return []string{"-m", "sh", "-c", mount + ` && exec "$@"`, "sh"} }
	none, hide := with(`mount -t tmpfs none /proc`), with(`mount -t proc -o hidepid=2 proc /proc`)
	unprivileged := []string{setpriv, "--reuid=" + user, "--clear-groups"}
	stops := []string{"stopping leftover", "killing leftover"}
	for _, tt := range []struct {
		name   string
		proc   []string // unshare's words, which make the /proc of the case
		before []string // what starts fini
		script string
		left   int
		says   []string
	}{
		{"none", none, nil, leftover, 0,
			append(stops, "--allow-orphan has no effect: without /proc fini can't tell the names of processes")},
		{"another namespace's", []string{"-p", "-f", "sh", "-c", `"$@"; exit $?`, "sh"}, nil, leftover, 0, stops},
		{"hidepid as root", hide, nil, setpriv + asUser, 0, stops},
		{"hidepid as root without SYS_PTRACE", hide, []string{setpriv, "--bounding-set=-sys_ptrace", "--inh-caps=-sys_ptrace"},
			setpriv + asUser, 0, stops},
		{"hidepid unprivileged", hide, unprivileged, leftover, 0, stops},
		{"hidepid unprivileged, and another user's leftover", hide, unprivileged, asRoot, 2,
			[]string{"stopping leftover", "gave up on leftovers that do not exit: ["}},
		{"read-only", with(`mount -o remount,ro,bind /proc`), nil, leftover, 0, stops},
		{"none, and all else refused", none, rig.Mode("refuse", refusals.All+":EPERM"), leftover, 2,
			[]string{"leftovers will keep running"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h := rig.NewCgroup(t)
			cmd := h.Around(rig.Pair, slices.Concat([]string{unshare}, tt.proc, tt.before),
				"--linger=0", "--grace=50ms", "--allow-orphan=none", "--", "/bin/sh", "-c", tt.script)
			if tt.script == asRoot {
				cmd.Env = append(os.Environ(), "SUID="+refusals.SetUserID(t, setpriv))
			}
			l := goOn(t, cmd)
			l.MustHaveStatus(3)
			if got := h.Names(); len(got) != tt.left || rig.HeldOpen(l.Witness) != (tt.left > 0) {
				t.Errorf("fini is gone and these are alive: %q, want %d; stderr: %s", got, tt.left, l.Err.Text())
			}
			for _, want := range tt.says {
				rig.Until(t, fmt.Sprintf("it says %q", want), func() bool { return strings.Contains(l.Err.Text(), want) })
			}
			if n := strings.Count(l.Err.Text(), "--allow-orphan"); n > 1 {
				t.Errorf("says %d times that none is left alone: %s", n, l.Err.Text())
			}
		})
	}
}

// A group with a process that fini may not signal, such as sudo's, is told of once, and holds fini up no longer than that.
func TestGroupOfAnotherUser(t *testing.T) {
	t.Parallel()
	need.Root(t)
	setpriv := need.Program(t, "setpriv")
	h := rig.NewCgroup(t)
	cmd := h.Around(rig.Pair, []string{setpriv, "--reuid=12345", "--clear-groups"}, "-k", "100ms", "--grace=100ms", "--linger=0", "--", "/bin/sh", "-c",
		`trap "" TERM; $SUID --reuid 0 --clear-groups sh -c 'echo ready; exec sleep 1000'; :`)
	cmd.Env = append(os.Environ(), "SUID="+refusals.SetUserID(t, setpriv))
	l := rig.StartCmd(t, cmd)
	l.Out.Want("ready")
	l.Signal(syscall.SIGTERM)
	l.MustHaveStatus(128 + 9)
	rig.Until(t, "it says that it gives up", func() bool { return strings.Contains(l.Err.Text(), "gave up on leftovers that do not exit: [") })
	if n := strings.Count(l.Err.Text(), "cannot signal"); n != 1 {
		t.Errorf("says %d times what it may not signal, want once: %s", n, l.Err.Text())
	}
}

// With hidepid the kernel still lists fini's own children, so fini tries no other pid.
func TestHidepidTakesNoSearch(t *testing.T) {
	t.Parallel()
	need.Root(t)
	unshare, setpriv, strace := need.Program(t, "unshare"), need.Program(t, "setpriv"), need.Program(t, "strace")
	for _, options := range []string{"hidepid=2", "hidepid=2,subset=pid"} {
		t.Run(options, func(t *testing.T) {
			t.Parallel()
			calls := filepath.Join(rig.ShortTempDir(t), "calls")
			goOn(t, rig.Pair.Executed([]string{unshare, "-m", "sh", "-c", `mount -t proc -o "$0" proc /proc && exec "$@"`, options,
				strace, "-f", "-e", "trace=waitid", "-o", calls, setpriv, "--reuid=12345", "--clear-groups"},
				"--linger=0", "--grace=50ms", "--", "/bin/sh", "-c", leftover)).MustEnd(3)
			if n := strings.Count(rig.ReadFile(t, calls), "waitid("); n > 1000 {
				t.Errorf("fini asks %d times whether a pid is a child's", n)
			}
		})
	}
}

const noPair = "fini: cannot fork: operation not permitted: running as with --no-shield, so leftovers survive if fini is killed"

// The outer fini can't do without these calls. If a filter refuses one, fini is a single process, and hands on none of the
// descriptors that it had meant for two.
func TestNoPairWithoutTheCallsOfTheOuterFini(t *testing.T) {
	t.Parallel()
	for _, call := range []string{"recvmsg", "sendto", "ppoll"} {
		t.Run(call, func(t *testing.T) {
			t.Parallel()
			l := rig.StartCmd(t, under(call+":EPERM", rig.Pair, "--", "sh", "-c",
				"for fd in /proc/$$/fd/*; do readlink $fd; done | grep -e pidfd -e socket -e signalfd -e eventpoll; exit 7"))
			l.MustEnd(7)
			rig.MustRecord(t, "the command has", l.Out.Rest())
			rig.MustRecord(t, "fini says", l.Err.Rest(), noPair)
		})
	}
}

// Without /proc fini can't tell which process holds a stream, so --orphans=pipes is --orphans=stop, even if no stream is
// a pipe.
func TestPipesWithoutProc(t *testing.T) {
	t.Parallel()
	need.Root(t)
	unshare := []string{need.Program(t, "unshare"), "-m", "sh", "-c", `mount -t tmpfs none /proc && exec "$0" "$@" >/dev/null 2>&1`}
	cmd := rig.Pair.Executed(unshare, "--orphans=pipes", "--linger=0", "--orphans-grace=10m", "--", "/bin/sh", "-c", `setsid sleep 1000 & exit 3`)
	rig.StartCmd(t, cmd).MustEnd(3)
}
