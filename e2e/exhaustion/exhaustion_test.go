package exhaustion

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/e2e/rig/refusals"
	"github.com/seed-126c5d8a/fini/internal/tests/need"
	"github.com/seed-126c5d8a/fini/internal/tests/procfs"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { rig.Main(m) }

// The programs that exhaust something are scripts: a Go program would be the first victim
// of a full process table.

// filler waits for a line, forks until the kernel refuses, says "full" and the number of its
// children, and ends with 7 after SIGTERM, before which it fills the table once more. The
// words of its command line:
//
//	orphans    most of the children are orphans, which are fini's
//	replace    kills one of these after the other and forks another in its place, which
//	           can only be had after fini has reaped the one; then says "replaced"
//	stubborn   the children ignore SIGTERM
//	bombs      each child forks too, for as long as it lives
//	sessions   each child leads a session of its own
//	immortal   the filler ignores SIGTERM too
const filler = `
import os, signal, sys, time
words, children, orphans = sys.argv[1:], 0, []

def say(text):
    os.write(1, (text + "\n").encode())

def sleep():
    if "bombs" in words:
        while True:
            try:
                if os.fork() == 0:
                    continue
            except OSError:
                time.sleep(.005)
    while True:
        time.sleep(1000)

def child():
    signal.signal(signal.SIGTERM, signal.SIG_IGN if "stubborn" in words else signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    if "sessions" in words:
        os.setsid()
    sleep()

def fill():
    global children
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    pids = []
    while True:
        try:
            pid = os.fork()
        except OSError:
            children += len(pids)
            return pids
        if pid == 0:
            child()
        pids.append(pid)

def asked(*_):
    say("asked")
    if "immortal" in words:
        return
    fill()
    say("full again")
    os._exit(7)

signal.signal(signal.SIGTERM, asked)
say("ready")
sys.stdin.readline()
if "orphans" in words:
    r, w = os.pipe()
    parent = os.fork()
    if parent == 0:
        os.write(w, " ".join(map(str, fill())).encode())
        os._exit(0)
    os.close(w)
    while text := os.read(r, 65536):
        orphans += map(int, text.split())
        break
    os.waitpid(parent, 0)
fill()
if "replace" in words:
    for orphan in orphans[:20]:
        os.kill(orphan, signal.SIGKILL)
        while not fill():
            pass
    say("replaced")
say("full %d" % (children + len(orphans)))
signal.pthread_sigmask(signal.SIG_SETMASK, [])
while True:
    time.sleep(0.01) # not for ever: a signal may come just before it, which Python then acts on after it
`

// fill is the command line of the filler.
func fill(words ...string) []string {
	return append([]string{"python3", "-I", "-S", "-c", filler}, words...)
}

// limited is what executes a program with a limit of so many descriptors.
func limited(t testing.TB, descriptors int) []string {
	t.Helper()
	return []string{need.Program(t, "prlimit"), fmt.Sprintf("--nofile=%d", descriptors)}
}

// tasks counts the threads of those processes that have not ended.
func tasks(pids []int) (n int) {
	for _, pid := range pids {
		threads, _ := strconv.Atoi(procfs.Status(pid, "Threads"))
		n += threads
	}
	return n
}

// mustNotAbort asserts that the Go runtime has not ended a fini.
func mustNotAbort(t testing.TB, stderr string) {
	t.Helper()
	if aborted(stderr) {
		t.Errorf("the runtime has aborted: %s", stderr)
	}
}

var aborted = regexp.MustCompile(`runtime:|fatal error|panic:|goroutine `).MatchString

// Whatever runs out, fini is never the cause that a command ends: not when the process table
// is full, nor the table of descriptors, nor the memory; not when nobody reads what it says,
// and not when it may not do what it is for.

// A fullTable is a way to limit processes, and what executes fini under it.
type fullTable struct {
	name   string
	prefix func(t *testing.T, most int) []string
	most   int // for the cgroup
}

// What is left for the command is more than a pair of finis takes.
const brimful = 60

var fullTables = []fullTable{
	{"cgroup", func(*testing.T, int) []string { return nil }, brimful},
	{"RLIMIT_NPROC", func(t *testing.T, most int) []string {
		need.Root(t)
		// The limit counts all that a user has, so each case is a user of its own.
		uid := fmt.Sprint(100_000 + os.Getpid()%100_000*100 + int(fullTableUsers.Add(1)))
		return []string{need.Program(t, "prlimit"), fmt.Sprintf("--nproc=%d", most),
			need.Program(t, "setpriv"), "--reuid=" + uid, "--regid=" + uid, "--clear-groups"}
	}, 10 * brimful},
}

var fullTableUsers atomic.Int64

// A full life is a fini whose command has filled the table.
type fullLife struct {
	*rig.BoundLife
	cgroup *rig.Cgroup
	finis  []int
	tasks  int // of the finis, at that moment
}

// startFull starts fini with the filler, by way of a launcher if that is to be killed, which may execute some words. The
// table is full when it returns.
func startFull(t *testing.T, p rig.Place, b fullTable, launcher []string, words, flags string) *fullLife {
	t.Helper()
	need.Program(t, "python3")
	h := rig.NewCgroup(t)
	h.Limit("pids.max", strconv.Itoa(b.most))
	l := &fullLife{cgroup: h}
	prefix, args := b.prefix(t, brimful), slices.Concat(strings.Fields(flags), []string{"--"}, fill(strings.Fields(words)...))
	if launcher != nil {
		l.BoundLife = rig.LaunchBy(t, slices.Concat(launcher, h.Wrap(prefix...)), p, args...)
	} else {
		l.BoundLife = &rig.BoundLife{Life: rig.StartCmd(t, h.Around(p, prefix, args...))}
		l.Outer = l.PID()
	}
	l.Out.Want("ready")
	l.finis = []int{l.Outer}
	if p == rig.Pair {
		l.finis = append(l.finis, l.Inner())
	}
	rig.WaitCaught(t, l.finis...)
	rig.Write(t, l.Life, "go\n")
	l.Out.Want("full ")
	l.tasks = tasks(l.finis)
	return l
}

// over asserts the end of everything.
func (l *fullLife) over(status int) {
	l.T.Helper()
	if status >= 0 {
		l.MustEnd(status)
	}
	rig.Until(l.T, "the end of the cgroup", func() bool { return l.cgroup.Count() == 0 })
	mustNotAbort(l.T, l.Err.Whole())
}

func TestProcessTableIsFull(t *testing.T) {
	t.Parallel()
	const grace = "--grace=300ms"
	alone, pair := []rig.Place{rig.Pair, rig.Alone}, []rig.Place{rig.Pair}
	kill := func(l *fullLife, pid int) { rig.MustKill(l.T, pid, syscall.SIGKILL) }
	for _, tt := range []struct {
		name   string
		quick  bool
		places []rig.Place
		words  string
		flags  string
		end    func(l *fullLife)
		status int // -1 for any
	}{
		{"TERM", true, rig.Places, "orphans replace", "", func(l *fullLife) { l.Signal(syscall.SIGTERM) }, 7},
		{"TERM, stubborn", false, rig.Places, "orphans stubborn sessions", grace, func(l *fullLife) {
			l.Signal(syscall.SIGTERM)
			l.Out.Want("full again")
			l.Err.Want("fini: stopping leftover")
			if now := tasks(l.finis); now > l.tasks { // now that there may be room
				l.T.Errorf("the finis have %d threads, and had %d when the table was full", now, l.tasks)
			}
		}, 7},
		{"TERM, bombs", false, rig.Places, "orphans stubborn bombs sessions", grace, func(l *fullLife) {
			l.Signal(syscall.SIGTERM)
			l.Out.Want("full again")
		}, 7},
		// A busy machine may not let it answer in time.
		{"TERM, KILL after", false, rig.Places, "immortal stubborn", grace + " --kill-after=200ms", func(l *fullLife) { l.Signal(syscall.SIGTERM) }, 137},
		{"main child killed", false, rig.Places, "orphans stubborn", grace, func(l *fullLife) {
			kill(l, procfs.ChildrenOf(l.T, l.finis[len(l.finis)-1])[0]) // the oldest
		}, 137},
		{"end of stdin", false, rig.Places, "orphans immortal", grace + " -i", func(l *fullLife) { _ = l.Stdin.Close() }, 137},
		{"launcher killed", true, alone, "orphans stubborn", grace, func(l *fullLife) { kill(l, l.Launcher) }, -1},
		{"outer fini killed", false, pair, "orphans stubborn", grace, func(l *fullLife) { kill(l, l.finis[0]) }, -1},
		{"inner fini killed", true, pair, "orphans stubborn", grace, func(l *fullLife) { kill(l, l.finis[1]) }, 137},
		{"TSTP, launcher killed", false, alone, "orphans stubborn", grace, func(l *fullLife) {
			l.suspend()
			kill(l, l.Launcher)
		}, -1},
		{"TSTP, TERM", true, alone, "orphans stubborn", grace, func(l *fullLife) {
			l.suspend()
			rig.MustKill(l.T, l.Outer, syscall.SIGTERM)
			l.Out.Want("full again")
		}, 7},
	} {
		for _, b := range fullTables {
			places := tt.places
			if b.name != fullTables[0].name {
				places = places[:1] // a fork fails in the same way, whichever limit it is
				if !tt.quick && !rig.Full() {
					continue // each has run with the first table
				}
			}
			for _, p := range places {
				quick := tt.quick && b.name == fullTables[0].name && p == tt.places[0]
				rig.Case(t, quick, tt.name+"/"+b.name+"/"+p.Name, func(t *testing.T) {
					t.Parallel()
					if p.PID1 {
						rig.NeedPidNamespace(t)
					}
					var launcher []string
					switch {
					case strings.HasPrefix(tt.name, "TSTP"):
						// Alone in its session fini's process group is orphaned.
						launcher = []string{need.Program(t, "setsid"), "--wait"}
					case tt.name == "launcher killed":
						launcher = []string{}
					}
					l := startFull(t, p, b, launcher, tt.words, tt.flags)
					tt.end(l)
					l.over(tt.status)
				})
			}
		}
	}
}

// suspend makes fini stop the command, in a process group that is orphaned.
func (l *fullLife) suspend() {
	l.T.Helper()
	command := l.ChildOf(l.finis[len(l.finis)-1])
	rig.MustKill(l.T, l.Outer, syscall.SIGTSTP)
	rig.Until(l.T, "the command is stopped", func() bool { return procfs.CountStopped([]int{command}) == 1 })
}

// Where the table is full or nearly so before the command starts, fini says so, or the
// runtime aborts; but never once the command has what it needs.
func TestProcessTableIsTooSmall(t *testing.T) {
	t.Parallel()
	rig.InEveryPlace(t, func(t *testing.T, p rig.Place) {
		t.Parallel()
		enough := 12
		if p == rig.Pair {
			enough = 14
		}
		h := rig.NewCgroup(t)
		for _, most := range []int{6, 8, 9, 10, 11, 12, 13, 14, 16} {
			if quick := []int{6, 9, 11, 13, 16}; rig.Quick() && !slices.Contains(quick, most) {
				continue
			}
			h.Limit("pids.max", strconv.Itoa(most))
			for range rig.QuickOrFull(1, 5) {
				l := rig.StartCmd(t, h.Around(p, nil, "--linger=0", "--",
					"/bin/sh", "-c", "echo started; sleep 1000 & echo two; read line; exit 3"))
				_ = l.Stdin.Close()
				status, out, stderr := l.Status(), l.Out.Whole(), l.Err.Whole()
				ok := false
				switch out {
				case "started\ntwo\n":
					ok = status == 3 && !aborted(stderr)
				case "started\n": // a shell that can't fork ends with 2; on a busy machine the inner one wants a thread more
					ok = most < enough && (status == 2 || status == 125 && aborted(stderr))
				case "": // of an abort the outer one says 125
					ok = most < enough && (aborted(stderr) && (status == 2 || p == rig.Pair && status == 125) ||
						status == 125 && strings.Contains(stderr, "fini: cannot run /bin/sh: resource temporarily unavailable\n"))
				}
				if !ok || rig.HeldOpen(l.Witness) {
					t.Errorf("under %d: status %d, stdout %q, something is alive: %v, stderr: %s", most, status, out, rig.HeldOpen(l.Witness), stderr)
				}
				rig.Until(t, "the end of the cgroup", func() bool { return h.Count() == 0 })
				t.Logf("under %d: status %d, stdout %q", most, status, out)
			}
		}
	})
}

// What docs/platforms.md says is enough is enough, also with the flags that take a descriptor; and with fewer
// fini starts nothing, or leaves nothing.
func TestDescriptorTableIsTooSmall(t *testing.T) {
	t.Parallel()
	const own = 4 // that fini is started with here: its streams, and the witness
	bind := []string{fmt.Sprintf("--bind=%d", os.Getpid()), fmt.Sprintf("--bind=%d", os.Getppid())}
	names := strings.NewReplacer(bind[0], "--bind=TEST", bind[1], "--bind=PARENT") // which are the same in each run
	rig.InPlaces(t, rig.Pair, func(t *testing.T, p rig.Place) {
		t.Parallel()
		for n, flags := range [][]string{nil, {"--report=/dev/stderr"}, bind, {"--report=/dev/stderr", bind[0], bind[1]}} {
			if p.PID1 && n >= 2 {
				continue // in whose namespace the bound ones have no pid
			}
			t.Run(names.Replace(fmt.Sprint(flags)), func(t *testing.T) {
				t.Parallel()
				enough := 7
				if n > 0 {
					enough = 9 + len(flags)
				}
				for free := range 16 {
					l := rig.StartCmd(t, p.Executed(limited(t, own+free), append(flags,
						"--linger=50ms", "--timeout=1h", "--grace=50ms", "--", "/bin/sh", "-c", `echo started
							setsid sh -c 'trap "" TERM; echo ready; read line; sleep 1000' &
							sleep 1000 & read line; exit 3`)...))
					for line, ok := "", true; ok && line != "ready"; {
						line, ok = l.Out.Next() // the command is told to end when its leftover is there
					}
					_, _ = l.Stdin.Write([]byte("go\n")) // there may be nobody
					status := l.Status()
					if rig.HeldOpen(l.Witness) {
						t.Fatalf("%d free descriptors: something is alive; stderr: %s", free, l.Err.Text())
					}
					started, stderr := strings.HasPrefix(l.Out.Whole(), "started\n"), l.Err.Whole()
					mustNotAbort(t, fmt.Sprintf("%d free descriptors: %s", free, stderr))
					if want := map[bool]int{true: 3, false: 125}[started]; status != want {
						t.Errorf("%d free descriptors: status %d, want %d; stderr: %s", free, status, want, stderr)
					}
					if free >= enough && !started || free >= max(12, enough) && strings.Contains(stderr, "running as with --no-shield") {
						t.Errorf("%d free descriptors should be enough; stderr: %s", free, stderr)
					}
				}
			})
		}
	})
}

// A descriptor may be the last one when leftovers are to be looked for, and gone when they are.
func TestLeftoversWithoutADescriptor(t *testing.T) {
	t.Parallel()
	for _, p := range rig.AloneOrPair(t, rig.Pair) {
		for limit := 7; limit < 16; limit++ {
			h := rig.NewCgroup(t)
			// It has the three streams and no other, so that none is free once it lets go of that.
			cmd := h.Around(p, limited(t, limit), "--linger=50ms", "--grace=5s", "--", "/bin/sh", "-c", `setsid sleep 1000 & setsid sleep 1000 & exit 3`)
			err := cmd.Run()
			if status := procfs.ShellStatus(cmd.ProcessState); h.Count() > 0 || status != 3 && status != 125 {
				t.Errorf("%s, %d descriptors: status %d (%v), alive: %q", p.Name, limit, status, err, h.Names())
			}
		}
	}
}

// The runtime wants two descriptors for its first timer, which is set after some garbage collection, and
// aborts without. So it has them from the start, or nothing is collected.
func TestPollerIsThereBeforeATimer(t *testing.T) {
	t.Parallel()
	rig.InPlaces(t, rig.PID1, func(t *testing.T, p rig.Place) {
		t.Parallel()
		for limit, want := range map[int]int{20: 0, 30: 1} {
			l := rig.StartCmd(t, p.Executed(limited(t, limit), "--", "/bin/sh", "-c", "echo ready; read line; exit 3"))
			l.Out.Want("ready")
			proc := fmt.Sprintf("/proc/%d", l.Worker()) // an outer one sleeps, and has no runtime
			// fini leaves its directory when it has all that it keeps.
			rig.Until(t, "fini is in /", func() bool {
				root, _ := os.Readlink(proc + "/root")
				dir, _ := os.Readlink(proc + "/cwd")
				return dir == root && dir != ""
			})
			links, _ := filepath.Glob(proc + "/fd/*")
			n := 0
			for _, link := range links {
				if text, _ := os.Readlink(link); text == "anon_inode:[eventpoll]" {
					n++
				}
			}
			if n != want {
				t.Errorf("--nofile=%d: %d pollers, want %d", limit, n, want)
			}
			_ = l.Stdin.Close()
			l.MustEnd(3)
		}
	})
}

// Leftovers that are no children of fini's take a descriptor each to be signalled safely.
func TestMoreLeftoversThanDescriptors(t *testing.T) {
	t.Parallel()
	const deep = 100
	// A chain of processes, each the parent of the next, each of which says that it was asked.
	chain := rig.Mode("script", fmt.Sprintf(`block 15
		fork first
		read
		exit 3
		first: setsid
		next: fork deeper
		leftover: await 15
		say asked
		goto leftover
		deeper: loop %d next
		say ready
		goto leftover`, deep-2))
	rig.InPlaces(t, rig.PID1, func(t *testing.T, p rig.Place) {
		if p.Alone {
			return // it does what the inner one of a pair does
		}
		t.Parallel()
		l := rig.StartCmd(t, p.Executed(limited(t, 40), append([]string{"--linger=0", "--orphans-grace=1h", "--"}, chain...)...))
		l.Out.Want("ready")
		rig.Write(t, l, "go\n")
		for range deep {
			l.Out.Want("asked")
		}
		rig.Until(t, "a second SIGINT ends the grace", func() bool {
			l.Signal(syscall.SIGINT)
			return strings.Contains(l.Err.Text(), "a second SIGINT")
		})
		l.MustEnd(3)
		mustNotAbort(t, l.Err.Whole())
		if asked := strings.Count(l.Out.Whole(), "asked\n"); asked != deep {
			t.Errorf("%d leftovers were asked to end, want %d; stderr: %s", asked, deep, l.Err.Text())
		}
	})
}

// A leftover that has become another user is not fini's to signal: it is named, and waited
// for for a bounded time in which fini sleeps.
func TestLeftoverThatMayNotBeSignalled(t *testing.T) {
	t.Parallel()
	need.Root(t)
	setpriv := need.Program(t, "setpriv")
	become := refusals.SetUserID(t, setpriv)
	user := []string{setpriv, "--reuid=65534", "--regid=65534", "--clear-groups"}
	rig.InEveryPlace(t, func(t *testing.T, p rig.Place) {
		t.Parallel()
		h := rig.NewCgroup(t)
		l := rig.StartCmd(t, h.Around(p, user, "--linger=0", "--grace=200ms", "--", "/bin/sh", "-c",
			`setsid "$0" --reuid=0 --regid=0 --clear-groups sh -c 'echo ready; exec sleep 1000' &
			setsid sh -c 'trap "" TERM; (echo ready; exec sleep 1000); :' & read line; exit 3`, become))
		l.Out.Want("ready")
		l.Out.Want("ready")
		started := time.Now()
		rig.Write(t, l, "go\n")
		l.MustHaveStatus(3)
		// It includes what every process has taken that fini has reaped.
		took, used := time.Since(started), l.Cmd.ProcessState.UserTime()+l.Cmd.ProcessState.SystemTime()
		if used > took/4 {
			t.Errorf("fini took %v of processor time in %v", used, took)
		}
		gaveUp := "fini: gave up on leftovers that do not exit: ["
		if p.PID1 {
			h.MustBeEmpty() // the kernel's doing
		} else if alive := h.Alive(); len(alive) != 1 || procfs.Status(alive[0], "Name") != "sleep" ||
			!strings.HasPrefix(procfs.Status(alive[0], "Uid"), "0\t") {
			t.Errorf("alive: %q, want the one that can't be signalled", h.Names())
		} else {
			rig.MustKill(t, alive[0], syscall.SIGKILL)
			gaveUp += fmt.Sprintf("%d]\n", alive[0])
		}
		said := l.Err.Whole()
		if strings.Count(said, gaveUp) != 1 || !strings.Contains(said, "operation not permitted") || strings.Count(said, "\n") > 10 {
			t.Errorf("says %s, want %q once, why, and at most ten lines", said, gaveUp)
		}
	})
}

// The command inherits what it would without fini, whatever fini has opened for itself by then.
func TestFiniKeepsItsDescriptors(t *testing.T) {
	t.Parallel()
	// Without a pipe of its own: the shell closes its end of one when it likes.
	list := []string{"/bin/sh", "-c", "readlink /proc/$$/fd/*; echo end; read line; exit 0"}
	kinds := func(l *rig.Life) string {
		l.Out.Want("end")
		rig.Write(t, l, "go\n")
		l.MustEnd(0)
		return regexp.MustCompile(":.*").ReplaceAllString(l.Out.Text(), "")
	}
	want := kinds(rig.StartCmd(t, rig.CommandOf(list)))
	rig.InPlaces(t, rig.Pair, func(t *testing.T, p rig.Place) {
		if got := kinds(rig.Start(t, p, append([]string{"-i", "--timeout=1h", "--pdeathsig=INT", "--"}, list...)...)); got != want {
			t.Errorf("the command has %s, and without fini %s", got, want)
		}
	})
}

// Whatever number it has, and whatever is missing: a descriptor that the command has closed
// is not kept open by fini.
func TestFiniLetsGoOfHighDescriptors(t *testing.T) {
	t.Parallel()
	const script = `ulimit -Sn 2001 && exec 2000<&3 70<&3 3>&- "$@"`
	var limit unix.Rlimit
	_ = unix.Getrlimit(unix.RLIMIT_NOFILE, &limit)
	need.That(t, limit.Max > 2000, "a hard limit of 2,001 descriptors")
	withoutProc := []string{need.Program(t, "unshare"), "-m", "/bin/sh", "-c", `mount -t tmpfs none /proc && exec "$@"`, "sh"}
	for name, before := range map[string][]string{
		"as it is":            nil,
		"close_range refused": rig.Mode("refuse", "close_range:EPERM"),
		"without /proc":       withoutProc,
		"without both":        append(rig.Mode("refuse", "close_range"), withoutProc...),
	} {
		for _, p := range rig.AloneOrPair(t, rig.Alone) {
			t.Run(name+"/"+p.Name, func(t *testing.T) {
				t.Parallel()
				if strings.HasPrefix(name, "without") {
					need.Root(t)
				}
				words := append([]string{"/bin/bash", "-c", script, "sh"}, before...)
				l := rig.StartCmd(t, p.Executed(words, "-q", "--", "/bin/bash", "-c", `echo started; exec 70<&- 2000<&-; exec cat`))
				l.Out.Want("started")
				rig.Until(t, "the end of the descriptors", func() bool { return rig.HungUp(l.Witness) })
				_ = l.Stdin.Close()
				l.MustEnd(0)
			})
		}
	}
}

// fini is what it is, however many threads the Go runtime is told to make, without a name, and without the file that it is of.
func TestOddSurroundings(t *testing.T) {
	t.Parallel()
	dir := rig.ShortTempDir(t)
	rig.InPlaces(t, rig.Pair, func(t *testing.T, p rig.Place) {
		for _, tt := range []struct{ name, script string }{
			{"no argv0", `exec -a "" "$@"`},
			{"deleted", `cp "$1" $DIR/gone-$$; exec 9<$DIR/gone-$$; rm $DIR/gone-$$; shift; exec /proc/self/fd/9 "$@"`},
			{"LD_", `export LD_PRELOAD=$DIR/none.so LD_LIBRARY_PATH=$DIR LD_DEBUG_OUTPUT=$DIR/x; exec "$@" 2>/dev/null`},
			{"GOMAXPROCS=99", `export GOMAXPROCS=99 GOGC=off GOMEMLIMIT=1GiB; exec "$@"`},
		} {
			prefix := []string{need.Program(t, "bash"), "-c", tt.script, "sh"}
			t.Run(tt.name, func(t *testing.T) {
				t.Parallel()
				cmd := p.Executed(prefix, "--linger=0", "--", "/bin/sh", "-c", `setsid sh -c '(echo ready; exec sleep 1000); :' & read line; echo main; exit 3`)
				cmd.Env = append(os.Environ(), "DIR="+dir)
				l := rig.StartCmd(t, cmd)
				l.Out.Want("ready")
				rig.Write(t, l, "go\n")
				rig.MustRecord(t, "stdout has", l.Out.Rest(), "main")
				l.MustEnd(3)
				if said := l.Err.Whole(); aborted(said) || strings.Contains(said, "running as with --no-shield") {
					t.Errorf("not what it is elsewhere: %s", said)
				}
			})
			if tt.name == "GOMAXPROCS=99" {
				t.Run(tt.name+", full", func(t *testing.T) {
					t.Parallel()
					l := startFull(t, p, fullTable{"", func(*testing.T, int) []string { return prefix }, brimful}, nil, "orphans replace", "")
					l.Signal(syscall.SIGTERM)
					l.Out.Want("full again")
					l.over(7)
				})
			}
		}
	})
}

// The fork bomb that everybody knows. Its processes ignore SIGTERM for a moment after each fork, so some outlive that.
func TestForkBomb(t *testing.T) {
	rig.Long(t)
	t.Parallel()
	rig.InEveryPlace(t, func(t *testing.T, p rig.Place) {
		h := rig.NewCgroup(t)
		h.Limit("pids.max", "300")
		const bomb = "f(){ f|f& }; f 2>/dev/null; exec sleep 1000 2>/dev/null"
		h.MustLeaveNothing(t, rig.StartCmd(t, h.Around(p, nil, "-t", "1s", "--grace=300ms", "--", need.Program(t, "bash"), "-c", bomb)), 124)
	})
}
