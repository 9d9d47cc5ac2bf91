package refused

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seed-126c5d8a/fini/e2e/need"
	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/e2e/rig/procfs"
	"github.com/seed-126c5d8a/fini/e2e/rig/pty"
	"github.com/seed-126c5d8a/fini/e2e/rig/refusals"
	"github.com/seed-126c5d8a/fini/e2e/rig/rest"
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

// refusedLeft is how many processes of the tree are not the main child.
const refusedLeft = 6

// A refusedLife is a fini with refusals and its tree.
type refusedLife struct {
	*rig.Life
	row    refusals.Row
	kind   string // of error
	cgroup *rig.Cgroup

	orphan int
	main   int
}

// startRefused starts fini with the tree, or what is to start that: the words of before.
func startRefused(t *testing.T, row refusals.Row, kind string, p rig.Place, before ...string) *refusedLife {
	t.Helper()
	h := rig.NewCgroup(t)
	grace := "500ms"
	if row.Left == refusals.Leftovers && !p.PID1 {
		grace = "1m" // it is the main child's alone, which answers
	}
	cmd := h.Around(p, append(before, rig.Mode("refuse", row.Calls+":"+kind)...),
		"-w", "--linger=0", "--grace="+grace, "--", "/bin/sh", "-c", refusedTree)
	if !p.PID1 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // see launch
	}
	return &refusedLife{Life: rig.StartCmd(t, cmd), row: row, kind: kind, cgroup: h}
}

// ready waits for the whole tree.
func (l *refusedLife) ready() {
	l.T.Helper()
	l.orphan = l.Out.WantPID("orphan ")
	l.main = l.Out.WantPID("main ")
}

// mustAnswer sends the main child a signal by way of pid.
func (l *refusedLife) mustAnswer(pid int) {
	l.T.Helper()
	rig.NoError(l.T, syscall.Kill(pid, syscall.SIGUSR1))
	if line, _ := l.Out.Next(); line != "usr1" {
		l.T.Fatalf("it answers %q to a signal; stderr: %s", line, l.Err.Text())
	}
}

// mustLeave asserts what is alive, after every fini has gone.
func (l *refusedLife) mustLeave(want refusals.Alive) {
	l.T.Helper()
	switch want {
	case refusals.Nothing:
		rig.Until(l.T, "the output's end", func() bool { return rig.HungUp(l.Witness) })
		rig.Until(l.T, "an empty cgroup", func() bool { return len(l.cgroup.Alive()) == 0 })
		if more := l.Out.Rest(); len(more) > 0 {
			l.T.Errorf("the command wrote more: %q", more)
		}
	case refusals.Leftovers, refusals.Everything:
		most := refusedLeft
		if want == refusals.Everything {
			l.mustAnswer(l.main)
			most++
		}
		rig.Until(l.T, "the end of the orphan, and of the main child if that does not stay", func() bool {
			pids := l.cgroup.Alive()
			return !slices.Contains(pids, l.orphan) && (want == refusals.Everything || !slices.Contains(pids, l.main)) && len(pids) <= most
		})
		if got := l.cgroup.Names(); len(got) != most {
			l.T.Errorf("alive: %q, want %d", got, most)
		}
	}
}

// What fini says of each leftover and zombie, and why it stops the command, is tested elsewhere.
var ofLeftovers = regexp.MustCompile(`^fini: ((stopping leftover|killing leftover|reaped zombie) [0-9]+|(stopping|killing) the command: )`)

// mustSay asserts what fini has said of what is lost: these lines, and nothing else.
func (l *refusedLife) mustSay(want []string) {
	l.T.Helper()
	errno := map[string]unix.Errno{"ENOSYS": unix.ENOSYS, "EPERM": unix.EPERM}[l.kind]
	var lines []string
	for _, line := range want {
		lines = append(lines, "fini: "+strings.ReplaceAll(line, "ERROR", errno.Error()))
	}
	var said []string
	// Leftovers hold its stderr, so that no EOF tells that all has been read.
	if !rig.Await(rig.Enough, func() bool {
		said = nil
		for line := range strings.Lines(l.Err.Text()) {
			if line = strings.TrimSuffix(line, "\n"); !ofLeftovers.MatchString(line) {
				said = append(said, line)
			}
		}
		return slices.Equal(said, lines)
	}) {
		l.T.Errorf("fini says %q, want %q", said, lines)
	}
}

func TestRefused(t *testing.T) {
	t.Parallel()
	need.Root(t)
	for _, row := range refusals.Rows {
		t.Run(strings.ReplaceAll(row.Refused, "`", ""), func(t *testing.T) {
			t.Parallel()
			t.Logf("| %s | %s | %s |", row.Refused, row.Lost, row.Holds)
			rig.InEveryPlace(t, func(t *testing.T, p rig.Place) {
				for _, kind := range []string{"ENOSYS", "EPERM"} {
					// One process takes the same ways as the two of a pair.
					rig.Case(t, p == rig.Pair && kind == "EPERM", kind, func(t *testing.T) {
						t.Parallel()
						refusedRun(t, row, kind, p)
					})
				}
			})
			for _, kind := range row.Kinds() {
				for _, victim := range row.Victims() {
					t.Run(victim+" is killed/"+kind, func(t *testing.T) {
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
	l := startRefused(t, row, kind, p)
	l.ready()
	if row.Left == refusals.Nothing || p.PID1 {
		l.Err.Want(fmt.Sprintf("fini: reaped zombie %d", l.orphan))
	}
	l.mustAnswer(l.PID())
	l.Signal(syscall.SIGTERM)
	l.MustHaveStatus(7)
	left := row.Left
	if p.PID1 {
		left = refusals.Nothing // an orphan comes to PID 1 without being asked for
	}
	if left == refusals.Nothing {
		if rig.HeldOpen(l.Witness) || len(l.cgroup.Alive()) > 0 {
			t.Errorf("fini is gone and these are alive: %q", l.cgroup.Names())
		}
		l.Err.Rest()
	}
	l.mustLeave(left)
	l.mustSay(row.SaysIn(p))
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
	outer := l.Out.Launched()
	l.ready()
	inner := procfs.ParentOf(l.main)
	if (inner != outer) != (p == rig.Pair) {
		t.Fatalf("the command is a child of %d, and fini is %d", inner, outer)
	}
	rig.MustKill(t, map[string]int{"launcher": l.PID(), "outer": outer, "inner": inner, "only": outer}[victim], syscall.SIGKILL)
	l.MustHaveStatus(137)
	if victim == "launcher" && row.Unbound {
		// What does not come can't be waited for. But fini does not say that it is bound, and
		// goes on.
		l.mustAnswer(outer)
		rig.MustKill(t, outer, syscall.SIGTERM)
	}
	rig.Until(t, "the end of both", func() bool {
		pids := l.cgroup.Alive()
		return !slices.Contains(pids, outer) && !slices.Contains(pids, inner)
	})
	l.mustLeave(left)
	l.mustSay(row.SaysIn(p))
}

// Where fini does without waitid, a timer and pidfds, nothing makes it look all the time.
// The number of EPERM is 1. A fini that took -1 for its own pid killed every process of the machine, so this one has a PID
// namespace of its own.
func TestGetpidIsRefused(t *testing.T) {
	t.Parallel()
	rig.NeedPidNamespace(t)
	for _, p := range []rig.Place{rig.Pair, rig.Alone} {
		rig.Case(t, p == rig.Alone, p.Name, func(t *testing.T) {
			t.Parallel()
			argv := slices.Concat([]string{need.Program(t, "unshare"), "-pf", "--mount-proc", "--kill-child", "/bin/sh", "-c",
				`sleep 1000 & "$@"; echo fini $?; kill $!; wait $!; echo bystander $?`, "sh"},
				rig.Mode("refuse", "getpid:EPERM"), p.Command("--", "true").Args)
			l := rig.StartCmd(t, exec.Command(argv[0], argv[1:]...))
			if got := l.Out.Whole(); got != "fini 125\nbystander 143\n" {
				t.Errorf("got %q", got)
			}
			l.MustEnd(0)
		})
	}
}

func TestRefusedDoesNotSpin(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, calls string }{
		{"waitid", "waitid"},
		{"timerfd", "timerfd_create"},
		{"all", refusals.All},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			argv := append(rig.Mode("refuse", tt.calls+":EPERM"), rig.Fini, "-t1h", "--", "/bin/sh", "-c",
				`sh -c 'sleep 0.1 & :'; echo main $$; read go; sleep 1; echo slept; read go; exit 3`)
			l := rig.StartCmd(t, exec.Command(argv[0], argv[1:]...))
			inner, _ := strconv.Atoi(procfs.Status(l.Out.WantPID("main "), "PPid"))
			finis := []int{l.PID(), inner}
			rest.Settled(t, finis) // the outer one lets go of what it holds
			before, start := ticks(t, finis), time.Now()
			rig.Write(t, l, "go\n")
			l.Out.Want("slept")
			// A tick is 10 ms.
			if got, most := ticks(t, finis)-before, int(time.Since(start)/(100*time.Millisecond)); got > most {
				t.Errorf("fini had a processor for %d0 ms, in which it had nothing to do", got)
			}
			rig.Write(t, l, "go\n")
			l.MustEnd(3)
		})
	}
}

// ticks is the time that processes have had a processor for.
func ticks(t *testing.T, pids []int) (sum int) {
	for _, pid := range pids {
		sum += procfs.StatOf(pid).Number(14) + procfs.StatOf(pid).Number(15) // utime and stime
	}
	return sum
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
		{"linger and grace", []string{"--linger=50ms", "--grace=50ms"}, `setsid sh -c '` + stubborn + `' & read go; exit 3`, 3},
	} {
		for _, calls := range []string{"timerfd_create", refusals.BeforePidfds, refusals.All} {
			if calls == refusals.All && tt.status == 3 {
				continue // leftovers are not found
			}
			rig.Case(t, calls != refusals.BeforePidfds, tt.name+"/"+strings.SplitN(calls, ",", 2)[0], func(t *testing.T) {
				t.Parallel()
				h := rig.NewCgroup(t)
				begin := func(t testing.TB, timeout string) *rig.Life {
					argv := append(rig.Mode("refuse", calls+":ENOSYS", rig.Fini, timeout), tt.flags...)
					argv = h.Wrap(append(argv, "--", "/bin/sh", "-c", tt.script)...)
					return rig.StartCmd(t, exec.Command(argv[0], argv[1:]...))
				}
				var l *rig.Life
				if tt.status == 124 {
					l = rig.OutOfTime(t, begin)
				} else {
					l = begin(t, "--timeout=1h")
					l.Out.Want("ready")
				}
				switch tt.status {
				case 137:
					l.Caught()
					l.Signal(syscall.SIGTERM)
				case 3:
					rig.Write(t, l, "go\n")
				}
				l.MustHaveStatus(tt.status)
				if calls != refusals.All && (rig.HeldOpen(l.Witness) || len(h.Alive()) > 0) {
					t.Errorf("fini is gone and these are alive: %q", h.Names())
				}
			})
		}
	}
}

// Without pwritev2 a line that nobody reads still raises no SIGPIPE for the command.
func TestRefusedSIGPIPE(t *testing.T) {
	t.Parallel()
	argv := append(rig.Mode("refuse", "pwritev2:EPERM"), rig.Fini, "-w", "--", "/bin/sh", "-c", `
		trap 'echo pipe' PIPE
		mkfifo $DIR/go; exec 4<>$DIR/go
		sh -c 'read line <&4 & echo orphan $!'
		echo go >&4
		while read go; do echo $go; done; exit 3`)
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), "DIR="+t.TempDir())
	reader, stderr := rig.Pipe(t)
	_ = reader.Close()
	cmd.Stderr = stderr
	l := rig.StartCmd(t, cmd)
	orphan := l.Out.WantPID("orphan ")
	l.Caught()
	rig.Until(t, "the orphan is reaped", func() bool { return procfs.Status(orphan, "State") == "" })
	// What fini says of the orphan, it says before it takes in the next signal.
	for _, word := range []string{"one\n", "two\n"} {
		l.Signal(syscall.SIGCONT)
		rig.Write(t, l, word)
		l.Out.Want(strings.TrimSpace(word))
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
				fini := append(rig.Mode("refuse", calls+":EPERM"), p.Command("--linger=0", "--").Args...)
				l, screen, keys := pty.Start(t, exec.Command("/bin/sh", "-c",
					strings.Join(fini, " ")+` sh -c 'echo one; read line; echo "$line is read"; exit 3'; echo "status $?"
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
		user     = "12345"
		leftover = `setsid sh -c 'trap "" TERM; (echo ready; exec sleep 1000); :' & read go; exit 3`
		asUser   = ` --reuid ` + user + ` --clear-groups ` + leftover
		asRoot   = `$SUID --reuid 0 --clear-groups ` + leftover
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
			append(stops, "--allow-orphan leaves no process alone: without /proc fini can't tell the names of processes")},
		{"another namespace's", []string{"-p", "-f", "sh", "-c", `"$@"; exit $?`, "sh"}, nil, leftover, 0, stops},
		{"hidepid as root", hide, nil, setpriv + asUser, 0, stops},
		{"hidepid as root without SYS_PTRACE", hide, []string{setpriv, "--bounding-set=-sys_ptrace", "--inh-caps=-sys_ptrace"},
			setpriv + asUser, 0, stops},
		{"hidepid unprivileged", hide, unprivileged, leftover, 0, stops},
		{"hidepid unprivileged, and another user's leftover", hide, unprivileged, asRoot, 2,
			[]string{"stopping leftover", "gave up on leftovers that do not exit: ["}},
		{"read-only", with(`mount -o remount,ro,bind /proc`), nil, leftover, 0, stops},
		{"none, and all else refused", none, rig.Mode("refuse", refusals.All+":EPERM"), leftover, 2,
			[]string{"what the command leaves running goes on", "going on without a shield"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h := rig.NewCgroup(t)
			argv := h.Wrap(slices.Concat([]string{unshare}, tt.proc, tt.before,
				[]string{rig.Fini, "--linger=0", "--grace=50ms", "--allow-orphan=none", "--", "/bin/sh", "-c", tt.script})...)
			cmd := exec.Command(argv[0], argv[1:]...)
			if tt.script == asRoot {
				cmd.Env = append(os.Environ(), "SUID="+refusals.SetUserID(t, setpriv))
			}
			l := rig.StartCmd(t, cmd)
			l.Out.Want("ready")
			rig.Write(t, l, "go\n")
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

// With hidepid the kernel still lists fini's own children, so fini tries no other pid.
func TestHidepidTakesNoSearch(t *testing.T) {
	t.Parallel()
	need.Root(t)
	unshare, setpriv, strace := need.Program(t, "unshare"), need.Program(t, "setpriv"), need.Program(t, "strace")
	for _, options := range []string{"hidepid=2", "hidepid=2,subset=pid"} {
		t.Run(options, func(t *testing.T) {
			t.Parallel()
			h := rig.NewCgroup(t)
			calls := filepath.Join(rig.ShortTempDir(t), "calls")
			argv := h.Wrap(unshare, "-m", "sh", "-c", `mount -t proc -o "$0" proc /proc && exec "$@"`, options,
				strace, "-f", "-e", "trace=waitid", "-o", calls, setpriv, "--reuid=12345", "--clear-groups", rig.Fini, "--linger=0", "--grace=50ms", "--",
				"/bin/sh", "-c", `setsid sh -c 'trap "" TERM; (echo ready; exec sleep 1000); :' & read go; exit 3`)
			l := rig.StartCmd(t, exec.Command(argv[0], argv[1:]...))
			l.Out.Want("ready")
			rig.Write(t, l, "go\n")
			l.MustEnd(3)
			h.MustBeEmpty()
			if n := strings.Count(rig.ReadFile(t, calls), "waitid("); n > 1000 {
				t.Errorf("fini asks %d times whether a pid is a child's", n)
			}
		})
	}
}

// The outer fini can't do without these calls. If a filter refuses one, fini is a single process, and hands on none of the
// descriptors that it had meant for two.
func TestNoPairWithoutTheCallsOfTheOuterFini(t *testing.T) {
	t.Parallel()
	for _, call := range []string{"recvmsg", "sendto", "ppoll"} {
		t.Run(call, func(t *testing.T) {
			t.Parallel()
			argv := append(rig.Mode("refuse", call+":EPERM"), rig.Fini, "--", "sh", "-c",
				"for fd in /proc/$$/fd/*; do readlink $fd; done | grep -e pidfd -e socket -e signalfd -e eventpoll; exit 7")
			l := rig.StartCmd(t, exec.Command(argv[0], argv[1:]...))
			l.MustEnd(7)
			if got := l.Out.Whole(); got != "" {
				t.Errorf("the command has %q", got)
			}
			const want = "fini: cannot fork: operation not permitted: going on without a shield\n"
			if said := l.Err.Whole(); said != want {
				t.Errorf("it says %q, want %q", said, want)
			}
		})
	}
}

// Without /proc fini can't tell which process holds a stream, so --orphans=pipes is --orphans=stop, even if no stream is
// a pipe.
func TestPipesWithoutProc(t *testing.T) {
	t.Parallel()
	need.Root(t)
	argv := []string{need.Program(t, "unshare"), "-m", "sh", "-c", `mount -t tmpfs none /proc && exec "$0" "$@" >/dev/null 2>&1`,
		rig.Fini, "--orphans=pipes", "--linger=0", "--grace=10m", "--", "/bin/sh", "-c", `setsid sleep 1000 & exit 3`}
	l := rig.StartCmd(t, exec.Command(argv[0], argv[1:]...))
	l.MustEnd(3)
	if !rig.HungUp(l.Witness) {
		t.Error("a leftover is alive")
	}
}
