package e2e

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
	"golang.org/x/sys/unix"
)

// What a kernel refuses, because it is old or by a filter, and what fini does without it. The
// filter is real, and both of a pair and the command inherit it. Whatever is refused, the
// command runs, signals reach it, orphans are reaped and the status arrives.

// alive is what of a case is alive when every fini of it is gone.
type alive int

const (
	nothing    alive = iota
	leftovers        // all that the main child started
	everything       // and the main child
)

// refusedRow is one row of the table in docs/refused-and-exhausted.md.
type refusedRow struct {
	refused string
	calls   string // as @refuse names them
	lost    string
	holds   string

	says    []string // by a pair; each line once and no other, ERROR for the error
	left    alive    // after the main child's end
	unbound bool     // the launcher's death goes unnoticed
	inner   alive    // after SIGKILL of the inner fini
	alone   alive    // after SIGKILL of a fini without a shield
}

const (
	noSubreaper = "cannot become a subreaper: ERROR: what the command leaves running goes on"
	noDeathsig  = "cannot set the command's parent death signal: it outlives a fini that is killed"
	noBond      = "cannot set a parent death signal: ERROR: going on without a bond to the parent process"
	noGroup     = "cannot give the command a process group: signals go to the main child alone"
)

var refusedRows = []refusedRow{
	{
		refused: "`clone3`, `close_range`, `pwritev2`, `rt_sigtimedwait`",
		calls:   "clone3,close_range,pwritev2,rt_sigtimedwait", lost: "nothing", holds: "all", alone: leftovers,
	},
	{
		refused: "`pidfd_open`", calls: "pidfd_open",
		lost:  "`--bind`; a pid of a leftover's child may be recycled in the instant before the signal",
		holds: "all else: the parent death signal is the bond to the parent process", alone: leftovers,
	},
	{
		refused: "`pidfd_open`, `pidfd_send_signal`, `clone3`, `close_range`, as on Linux 4.18 and in old sandboxes", calls: beforePidfds,
		lost: "the same", holds: "all else", alone: leftovers,
	},
	{
		refused: "`pidfd_send_signal`", calls: "pidfd_send_signal",
		lost: "a pid of a leftover's child may be recycled in the instant before the signal", holds: "all else", alone: leftovers,
	},
	{refused: "`clone` with `CLONE_PIDFD`", calls: "CLONE_PIDFD", lost: "nothing", holds: "all", alone: leftovers},
	{refused: "`waitid`", calls: "waitid", lost: "nothing", holds: "all", alone: leftovers},
	{refused: "`waitid` with `WNOWAIT`", calls: "WNOWAIT", lost: "nothing", holds: "all", alone: leftovers},
	{refused: "`timerfd_create`", calls: "timerfd_create", lost: "nothing", holds: "all", alone: leftovers},
	{refused: "`eventfd2`", calls: "eventfd2", lost: "nothing", holds: "all", alone: leftovers},
	{refused: "`epoll_create1`, `epoll_ctl`", calls: "epoll_create1,epoll_ctl", lost: "nothing", holds: "all", alone: leftovers},
	{refused: "`epoll_pwait`", calls: "epoll_pwait", lost: "nothing", holds: "all", alone: leftovers},
	{
		refused: "`prctl(PR_SET_PDEATHSIG)`", calls: "pdeathsig",
		lost:  "without a shield the command survives SIGKILL of fini",
		holds: "SIGKILL of either fini of a pair; the bond to the parent process",
		says:  []string{noDeathsig}, alone: everything,
	},
	{
		refused: "`prctl(PR_SET_PDEATHSIG)`, `pidfd_open`", calls: "pdeathsig,pidfd_open",
		lost:  "the bond to the parent process; without a shield the command survives SIGKILL of fini",
		holds: "SIGKILL of either fini of a pair; leftovers are stopped",
		says:  []string{noBond, noDeathsig}, unbound: true, alone: everything,
	},
	{
		refused: "`prctl(PR_SET_CHILD_SUBREAPER)`", calls: "subreaper",
		lost:  "fini stops leftovers only as PID 1",
		holds: "the main child is stopped when the parent process dies or a fini is killed",
		says:  []string{noSubreaper}, left: leftovers, inner: leftovers, alone: leftovers,
	},
	{
		refused: "`prctl`", calls: "prctl",
		lost:  "fini stops leftovers only as PID 1; the command survives SIGKILL of the inner fini, or of a fini without a shield",
		holds: "the main child is stopped when the parent process dies or the outer fini is killed",
		says:  []string{noSubreaper, noDeathsig}, left: leftovers, inner: everything, alone: everything,
	},
	{
		refused: "`setpgid`", calls: "setpgid",
		lost:  "signals reach the main child alone",
		holds: "leftovers are stopped; the parent's death; SIGKILL of either fini", says: []string{noGroup}, alone: leftovers,
	},
	{
		refused: "`ioctl(TIOCSPGRP)`", calls: "TIOCSPGRP", lost: "as PID 1 on a terminal, the command's own process group", holds: "all else",
		alone: leftovers,
	},
	{
		refused: "all of these", calls: refuseAll,
		lost:  "the bond to the parent process, and the process group; fini stops leftovers only as PID 1",
		holds: "the command runs, signals reach it, its status arrives; PID 1 reaps; if the outer fini is killed, the main child is stopped",
		says:  []string{noSubreaper, noBond, noDeathsig, noGroup}, left: leftovers, unbound: true, inner: everything, alone: everything,
	},
}

// beforePidfds are the newer calls that old kernels and sandboxes do not have.
const beforePidfds = "pidfd_open,pidfd_send_signal,clone3,close_range"

const refuseAll = "prctl,pidfd_open,pidfd_send_signal,CLONE_PIDFD,clone3,waitid,close_range,timerfd_create," +
	"eventfd2,epoll_create1,epoll_ctl,epoll_pwait,rt_sigtimedwait,pwritev2,setpgid,TIOCSPGRP"

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
	*life
	row    refusedRow
	kind   string // of error
	cgroup *cgroup

	orphan int
	main   int
}

// startRefused starts fini with the tree, or what is to start that: the words of before.
func startRefused(t *testing.T, row refusedRow, kind string, p place, before ...string) *refusedLife {
	t.Helper()
	h := newCgroup(t)
	argv := before
	if p.pid1 {
		argv = mode("pid1")
	}
	argv = append(append(argv, mode("refuse", row.calls+":"+kind)...), finiPath, "-w", "--linger=0", "--grace=500ms")
	argv = h.wrap(slices.Concat(argv, p.flags(), []string{"--", "/bin/sh", "-c", refusedTree})...)
	cmd := exec.Command(argv[0], argv[1:]...)
	if p.pid1 {
		asPID1(cmd)
	} else {
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // see launch
	}
	return &refusedLife{life: startCmd(t, cmd), row: row, kind: kind, cgroup: h}
}

// ready waits for the whole tree.
func (l *refusedLife) ready() {
	l.t.Helper()
	l.orphan = l.Out.wantPid("orphan ")
	l.main = l.Out.wantPid("main ")
}

// mustAnswer sends the main child a signal by way of pid.
func (l *refusedLife) mustAnswer(pid int) {
	l.t.Helper()
	if err := syscall.Kill(pid, syscall.SIGUSR1); err != nil {
		l.t.Fatal(err)
	}
	if line, _ := l.Out.next(); line != "usr1" {
		l.t.Fatalf("it answers %q to a signal; stderr: %s", line, l.Err.text())
	}
}

// mustLeave asserts what is alive, after every fini has gone.
func (l *refusedLife) mustLeave(want alive) {
	l.t.Helper()
	switch want {
	case nothing:
		until(l.t, "the output's end", func() bool { return hungUp(l.witness) })
		until(l.t, "an empty cgroup", func() bool { return len(l.cgroup.alive()) == 0 })
		if more := l.Out.rest(); len(more) > 0 {
			l.t.Errorf("the command wrote more: %q", more)
		}
	case leftovers:
		until(l.t, "the end of the main child and of the orphan", func() bool {
			pids := l.cgroup.alive()
			return !slices.Contains(pids, l.main) && !slices.Contains(pids, l.orphan) && len(pids) <= refusedLeft
		})
		if got := l.cgroup.names(); len(got) != refusedLeft {
			l.t.Errorf("alive: %q, want the %d leftovers", got, refusedLeft)
		}
	case everything:
		l.mustAnswer(l.main)
		until(l.t, "the end of the orphan", func() bool {
			pids := l.cgroup.alive()
			return !slices.Contains(pids, l.orphan) && len(pids) <= refusedLeft+1
		})
		if got := l.cgroup.names(); len(got) != refusedLeft+1 {
			l.t.Errorf("alive: %q, want the main child and %d leftovers", got, refusedLeft)
		}
	}
}

// What fini says of each leftover and zombie, and why it stops the command, is tested elsewhere.
var ofLeftovers = regexp.MustCompile(`^fini: ((stopping leftover|killing leftover|reaped zombie) [0-9]+|(stopping|killing) the command: )`)

// mustSay asserts what fini has said of what is lost: these lines, and nothing else.
func (l *refusedLife) mustSay(want []string) {
	l.t.Helper()
	errno := map[string]unix.Errno{"ENOSYS": unix.ENOSYS, "EPERM": unix.EPERM}[l.kind]
	var lines []string
	for _, line := range want {
		lines = append(lines, "fini: "+strings.ReplaceAll(line, "ERROR", errno.Error()))
	}
	var said []string
	// Leftovers hold its stderr, so that no EOF tells that all has been read.
	if !poll(patience, func() bool {
		said = nil
		for line := range strings.Lines(l.Err.text()) {
			if line = strings.TrimSuffix(line, "\n"); !ofLeftovers.MatchString(line) {
				said = append(said, line)
			}
		}
		return slices.Equal(said, lines)
	}) {
		l.t.Errorf("fini says %q, want %q", said, lines)
	}
}

// saysIn is what a row makes fini say in a place.
func (row refusedRow) saysIn(p place) []string {
	return slices.DeleteFunc(slices.Clone(row.says), func(line string) bool {
		return p.pid1 && line != noGroup
	})
}

func TestRefused(t *testing.T) {
	t.Parallel()
	need.Root(t)
	for _, row := range refusedRows {
		t.Run(strings.ReplaceAll(row.refused, "`", ""), func(t *testing.T) {
			t.Parallel()
			t.Logf("| %s | %s | %s |", row.refused, row.lost, row.holds)
			inPlacesButIsolated(t, "isolation takes some of these calls: see TestIsolationRefused", func(t *testing.T, p place) {
				for _, kind := range []string{"ENOSYS", "EPERM"} {
					if kind == "ENOSYS" && p != pair {
						continue // one process takes the same ways as the two of a pair
					}
					t.Run(kind, func(t *testing.T) {
						t.Parallel()
						refusedRun(t, row, kind, p)
					})
				}
			})
			for _, kind := range row.kinds() {
				t.Run("launcher dies/"+kind, func(t *testing.T) {
					t.Parallel()
					refusedLauncherDies(t, row, kind)
				})
				for _, victim := range []string{"outer", "inner", "only"} {
					t.Run(victim+" fini is killed/"+kind, func(t *testing.T) {
						t.Parallel()
						refusedFiniKilled(t, row, victim, kind)
					})
				}
			}
		})
	}
}

// kinds are the errors with which a row's kills are tried: both where it takes another way to tell of an end.
func (row refusedRow) kinds() []string {
	if strings.Contains(row.calls, "pidfd_open") {
		return []string{"ENOSYS", "EPERM"}
	}
	return []string{"EPERM"}
}

// refusedRun is a life without a fault: a signal, an orphan, leftovers and a status.
func refusedRun(t *testing.T, row refusedRow, kind string, p place) {
	l := startRefused(t, row, kind, p)
	l.ready()
	if row.left == nothing || p.pid1 {
		l.Err.want(fmt.Sprintf("fini: reaped zombie %d", l.orphan))
	}
	l.mustAnswer(l.pid())
	l.signal(syscall.SIGTERM)
	if got := l.status(); got != 7 {
		t.Errorf("status %d, want 7; stderr: %s", got, l.Err.text())
	}
	left := row.left
	if p.pid1 {
		left = nothing // an orphan comes to PID 1 without being asked for
	}
	if left == nothing {
		if heldOpen(l.witness) || len(l.cgroup.alive()) > 0 {
			t.Errorf("fini is gone and these are alive: %q", l.cgroup.names())
		}
		l.Err.rest()
	}
	l.mustLeave(left)
	l.mustSay(row.saysIn(p))
}

// refusedLauncherDies kills the launcher of a pair, or of what there is in its place.
func refusedLauncherDies(t *testing.T, row refusedRow, kind string) {
	l := startRefused(t, row, kind, pair, mode("launcher")...)
	fini := l.Out.launched()
	l.ready()
	_ = syscall.Kill(l.pid(), syscall.SIGKILL)
	l.wait()
	if row.unbound {
		// What does not come can't be waited for. But fini does not say that it is bound, and
		// goes on.
		l.mustAnswer(fini)
		_ = syscall.Kill(fini, syscall.SIGTERM)
	}
	until(t, "fini's end", func() bool { return !slices.Contains(l.cgroup.alive(), fini) })
	l.mustLeave(row.left)
	l.mustSay(row.says)
}

// refusedFiniKilled kills one of the pair, or a fini without a shield.
func refusedFiniKilled(t *testing.T, row refusedRow, victim, kind string) {
	p, left := pair, row.left
	switch victim {
	case "inner":
		left = row.inner
	case "only":
		p, left = alone, row.alone
	}
	l := startRefused(t, row, kind, p, mode("launcher")...)
	outer := l.Out.launched()
	l.ready()
	inner, err := strconv.Atoi(procStatus(l.main, "PPid"))
	if err != nil {
		t.Fatal(err)
	}
	if (inner != outer) != (p == pair) {
		t.Fatalf("the command is a child of %d, and fini is %d", inner, outer)
	}
	killed := outer
	if victim == "inner" {
		killed = inner
	}
	if err := syscall.Kill(killed, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if got := l.status(); got != 137 {
		t.Errorf("status %d, want 137; stderr: %s", got, l.Err.text())
	}
	until(t, "the end of both", func() bool {
		pids := l.cgroup.alive()
		return !slices.Contains(pids, outer) && !slices.Contains(pids, inner)
	})
	l.mustLeave(left)
	l.mustSay(row.saysIn(p))
}

// Where fini does without waitid, a timer and pidfds, nothing makes it look all the time.
func TestRefusedDoesNotSpin(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, calls string }{
		{"waitid", "waitid"},
		{"timerfd", "timerfd_create"},
		{"all", refuseAll},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			argv := append(mode("refuse", tt.calls+":EPERM"), finiPath, "-t1h", "--", "/bin/sh", "-c",
				`sh -c 'sleep 0.1 & :'; echo main $$; sleep 1; echo slept; read go; exit 3`)
			l := startCmd(t, exec.Command(argv[0], argv[1:]...))
			inner, _ := strconv.Atoi(procStatus(l.Out.wantPid("main "), "PPid"))
			finis := []int{l.pid(), inner}
			before, start := ticks(t, finis), time.Now()
			l.Out.want("slept")
			// A tick is 10 ms.
			if got, most := ticks(t, finis)-before, int(time.Since(start)/(100*time.Millisecond)); got > most {
				t.Errorf("fini had a processor for %d0 ms, in which it had nothing to do", got)
			}
			write(t, l, "go\n")
			l.mustEnd(3)
		})
	}
}

// ticks is the time that processes have had a processor for.
func ticks(t *testing.T, pids []int) (sum int) {
	for _, pid := range pids {
		sum += statOf(pid).number(14) + statOf(pid).number(15) // utime and stime
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
		signal syscall.Signal // 0 for none
		status int
	}{
		{"timeout and grace", []string{"-t3s", "--grace=50ms"}, stubborn, 0, 124},
		{"kill-after", []string{"-k100ms", "--grace=1h"}, stubborn, syscall.SIGTERM, 137},
		{"linger and grace", []string{"--linger=50ms", "--grace=50ms"}, `setsid sh -c '` + stubborn + `' & read go; exit 3`, 0, 3},
	} {
		for _, calls := range []string{"timerfd_create", beforePidfds, refuseAll} {
			if calls == refuseAll && tt.status == 3 {
				continue // leftovers are not found
			}
			t.Run(tt.name+"/"+strings.SplitN(calls, ",", 2)[0], func(t *testing.T) {
				t.Parallel()
				h := newCgroup(t)
				argv := h.wrap(append(append(mode("refuse", calls+":ENOSYS"), finiPath), append(tt.flags, "--", "/bin/sh", "-c", tt.script)...)...)
				l := startCmd(t, exec.Command(argv[0], argv[1:]...))
				l.Out.want("ready")
				if tt.signal != 0 {
					l.signal(tt.signal)
				}
				write(t, l, "go\n")
				if got := l.status(); got != tt.status {
					t.Errorf("status %d, want %d; stderr: %s", got, tt.status, l.Err.text())
				}
				if calls != refuseAll && (heldOpen(l.witness) || len(h.alive()) > 0) {
					t.Errorf("fini is gone and these are alive: %q", h.names())
				}
			})
		}
	}
}

// Without rt_sigtimedwait a line that nobody reads still raises no SIGPIPE for the command.
func TestRefusedSIGPIPE(t *testing.T) {
	t.Parallel()
	for _, calls := range []string{"rt_sigtimedwait", "rt_sigtimedwait,pwritev2"} {
		t.Run(calls, func(t *testing.T) {
			t.Parallel()
			argv := append(mode("refuse", calls+":EPERM"), finiPath, "-w", "--", "/bin/sh", "-c", `
				trap 'echo pipe' PIPE
				mkfifo $DIR/go; exec 4<>$DIR/go
				sh -c 'read line <&4 & echo orphan $!'
				echo go >&4
				while read go; do echo $go; done; exit 3`)
			cmd := exec.Command(argv[0], argv[1:]...)
			cmd.Env = append(os.Environ(), "DIR="+t.TempDir())
			reader, stderr := pipe(t)
			_ = reader.Close()
			cmd.Stderr = stderr
			l := startCmd(t, cmd)
			orphan := l.Out.wantPid("orphan ")
			l.caught()
			until(t, "the orphan is reaped", func() bool { return procStatus(orphan, "State") == "" })
			// What fini says of the orphan, it says before it takes in the next signal.
			for _, word := range []string{"one\n", "two\n"} {
				l.signal(syscall.SIGCONT)
				write(t, l, word)
				l.Out.want(strings.TrimSpace(word))
			}
			_ = l.Stdin.Close()
			l.mustEnd(3)
			if out := l.Out.whole(); strings.Contains(out, "pipe") {
				t.Errorf("the command was sent SIGPIPE: %q", out)
			}
		})
	}
}

// At a terminal the command is in the job's group, so that it needs nothing of what is refused.
func TestRefusedForeground(t *testing.T) {
	t.Parallel()
	for _, calls := range []string{"TIOCSPGRP", "setpgid", refuseAll} {
		for _, p := range []place{pair, alone} {
			t.Run(strings.SplitN(calls, ",", 2)[0]+"/"+p.name, func(t *testing.T) {
				t.Parallel()
				fini := append(mode("refuse", calls+":EPERM"), p.command("--linger=0", "--").Args...)
				l, screen, keys := onTerminal(t, exec.Command("/bin/sh", "-c",
					strings.Join(fini, " ")+` sh -c 'echo one; read line; echo "$line is read"; exit 3'; echo "status $?"
					echo last; read line; echo "$line is read by the shell"; read end`))
				screen.want("one")
				_, _ = io.WriteString(keys, "a word\n")
				screen.want("a word is read")
				screen.want("status 3")
				screen.want("last")
				_, _ = io.WriteString(keys, "another\n")
				screen.want("another is read by the shell")
				_, _ = io.WriteString(keys, "\n")
				l.mustEnd(0)
			})
		}
	}
}

// A /proc that hides others, can't be written, or is missing where all else is refused too.
func TestRefusedProc(t *testing.T) {
	t.Parallel()
	need.Root(t)
	unshare, setpriv := need.Program(t, "unshare"), need.Program(t, "setpriv")
	const hide = `mount -t proc -o hidepid=2 proc /proc`
	const user = "12345"
	leftover := `setsid sh -c 'trap "" TERM; (echo ready; exec sleep 1000); :' & read go; exit 3`
	for _, tt := range []struct {
		name   string
		mount  string   // makes the /proc of the case
		before []string // what starts fini
		script string
		left   int
		says   []string
	}{
		{"hidepid as root", hide, nil,
			setpriv + ` --reuid ` + user + ` --clear-groups ` + leftover, 0, []string{"stopping leftover", "killing leftover"}},
		{"hidepid as root without SYS_PTRACE", hide, []string{setpriv, "--bounding-set=-sys_ptrace", "--inh-caps=-sys_ptrace"},
			setpriv + ` --reuid ` + user + ` --clear-groups ` + leftover, 0, []string{"stopping leftover", "killing leftover"}},
		{"hidepid unprivileged", hide, []string{setpriv, "--reuid=" + user, "--clear-groups"},
			leftover, 0, []string{"stopping leftover", "killing leftover"}},
		{"hidepid unprivileged, and another user's leftover", hide, []string{setpriv, "--reuid=" + user, "--clear-groups"},
			`$SUID --reuid 0 --clear-groups ` + leftover, 2, []string{"stopping leftover", "gave up on leftovers that do not end: ["}},
		{"read-only", `mount -o remount,ro,bind /proc`, nil, leftover, 0, []string{"stopping leftover", "killing leftover"}},
		{"none, and all else refused", `mount -t tmpfs none /proc`, mode("refuse", refuseAll+":EPERM"), leftover, 2,
			[]string{"what the command leaves running goes on", "going on without a shield"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h := newCgroup(t)
			argv := []string{unshare, "-m", "sh", "-c", tt.mount + ` && exec "$@"`, "sh"}
			argv = append(append(argv, tt.before...), finiPath, "--linger=0", "--grace=50ms", "--", "/bin/sh", "-c", tt.script)
			argv = h.wrap(argv...)
			cmd := exec.Command(argv[0], argv[1:]...)
			if strings.Contains(tt.script, "$SUID") {
				cmd.Env = append(os.Environ(), "SUID="+setUserID(t, setpriv))
			}
			l := startCmd(t, cmd)
			l.Out.want("ready")
			write(t, l, "go\n")
			if got := l.status(); got != 3 {
				t.Errorf("status %d, want 3; stderr: %s", got, l.Err.text())
			}
			if got := h.names(); len(got) != tt.left || hungUp(l.witness) != (tt.left == 0) {
				t.Errorf("fini is gone and these are alive: %q, want %d; stderr: %s", got, tt.left, l.Err.text())
			}
			for _, want := range tt.says {
				until(t, fmt.Sprintf("it says %q", want), func() bool { return strings.Contains(l.Err.text(), want) })
			}
		})
	}
}

// setUserID makes a copy of a program that runs as its owner, root.
func setUserID(t *testing.T, program string) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "fini-e2e-") // t.TempDir is not open to other users
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "program")
	text, err := os.ReadFile(program)
	if err == nil {
		err = os.WriteFile(path, text, 0o755)
	}
	if err == nil {
		err = os.Chmod(path, 0o755|os.ModeSetuid)
	}
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	var fs unix.Statfs_t
	need.That(t, unix.Statfs(dir, &fs) == nil && fs.Flags&unix.ST_NOSUID == 0, "a temporary directory without nosuid")
	return path
}
