package soak

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/internal/tests/procfs"
	"github.com/seed-126c5d8a/fini/internal/tests/programs"
	"github.com/seed-126c5d8a/fini/internal/tests/surroundings"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { rig.MainOfOthers(m) }

// TestSoak draws commands, flags, places and faults at random, and checks after each life what must
// always hold. FINI_FULL=1h prolongs it. FINI_SEED=n draws the same lives again, in the same order;
// what happens at the same moment in two processes is not the same again.
func TestSoak(t *testing.T) {
	t.Parallel()
	rig.NeedPidNamespace(t)
	rig.NewCgroup(t) // skips where there are none
	seed := uint64(time.Now().UnixNano()) % 1_000_000
	if text := surroundings.Asked("FINI_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("FINI_SEED: %v", err)
		}
	}
	const workers = 4
	s := &soak{seed: seed, long: rig.DrawnFor(t, 4*time.Second)}
	t.Logf("FINI_SEED=%d", seed)
	t.Run("workers", func(t *testing.T) {
		for w := range workers {
			t.Run(strconv.Itoa(w), func(t *testing.T) {
				t.Parallel()
				s.work(t)
			})
		}
	})
	t.Logf("FINI_SEED=%d: %d runs, %d faults injected", seed, s.runs.Load(), s.faults.Load())
	if s.runs.Load() == 0 {
		t.Error("not one run")
	}
}

type soak struct {
	seed         uint64
	long         time.Duration
	runs, faults atomic.Int64
}

// work runs one life after the other, with a bystander beside them that is in fini's process group and session, and says which
// signals it gets.
func (s *soak) work(t *testing.T) {
	h := rig.NewCgroup(t)
	by := rig.CommandOf(rig.Mode("bystander", "0"))
	var said bytes.Buffer
	by.Stdout = &said
	in, err := by.StdinPipe()
	rig.NoError(t, err)
	rig.NoError(t, by.Start())
	for end := time.Now().Add(s.long); time.Now().Before(end); {
		n := s.runs.Add(1)
		t.Run(fmt.Sprint("life ", n), func(t *testing.T) {
			d := drawLife(rand.New(rand.NewPCG(s.seed, uint64(n))))
			defer func() {
				if t.Failed() {
					t.Logf("FINI_SEED=%d: %s", s.seed, d)
				}
			}()
			d.live(t, s, h)
		})
		if len(h.Alive()) > 0 {
			break // the next life could not be told from this one
		}
	}
	_ = in.Close()
	if err := by.Wait(); err != nil || strings.Contains(said.String(), "signal") {
		t.Errorf("a bystander was hit: %v, %s", err, &said)
	}
}

// A drawnLife is what is drawn for one life.
type drawnLife struct {
	place    rig.Place
	launcher bool // a launcher of its own, which is killed
	flags    []string
	program  string
	sh       string // what a shell does before it becomes fini
	pids     string // the cgroup's limit
	faults   []fault

	out   string       // all that the command writes
	whole bool         // nothing keeps it from writing that
	legal map[int]bool // statuses; those of a shell
}

// A fault is done to a life at a moment after its start.
type fault struct {
	at   time.Duration
	what string // who is meant: outer, inner, main, launcher or stdin
	sig  syscall.Signal
	stop time.Duration // continued after this, if it is SIGSTOP
}

func (d *drawnLife) String() string {
	return fmt.Sprintf("in place %s, launcher %v, before %q, at most %s tasks: fini %s -- @script '%s'\nfaults: %+v\nlegal: %v",
		d.place.Name, d.launcher, d.sh, d.pids, strings.Join(d.flags, " "), d.program, d.faults, d.legal)
}

// drawLife draws all of a life. Whatever comes, one thing at least ends it.
func drawLife(r *rand.Rand) *drawnLife {
	d := &drawnLife{place: rig.Places[r.IntN(len(rig.Places))], pids: "max", whole: true, legal: map[int]bool{}}
	strike := func(f fault) { d.faults = append(d.faults, f) }
	ms := func(most int) time.Duration { return time.Duration(r.IntN(most+1)) * time.Millisecond }
	flag := func(format string, a ...any) { d.flags = append(d.flags, fmt.Sprintf(format, a...)) }
	some := func(of ...syscall.Signal) syscall.Signal { return of[r.IntN(len(of))] }
	chance := func(percent int) bool { return r.IntN(100) < percent }

	grace := ms(300) + 10*time.Millisecond
	flag("--grace=%v", grace)
	flag("--linger=%v", ms(100))
	for _, rare := range []string{[]string{"-v", "-q"}[r.IntN(2)], "-w", []string{"-c", "-g"}[r.IntN(2)], "-s"} {
		if chance(8) {
			flag("%s", rare)
		}
	}

	// The command: its tree, what it writes, how it ends.
	g := &grower{r: r, left: 12}
	var main strings.Builder
	if chance(20) {
		main.WriteString("ignore 15\n")
	}
	main.WriteString("say begin\n")
	for range r.IntN(5) {
		main.WriteString(g.child())
	}
	fill := []int{0, 1, 1000, 70000, 300000}[r.IntN(5)]
	text := make([]byte, fill)
	for i := range text {
		text[i] = programs.FillByte(i)
	}
	fmt.Fprintf(&main, "fill %d\nsay end\n", fill)
	d.out = "begin\n" + string(text) + "end\n"
	natural := 0
	end := func() {
		fmt.Fprintf(&main, "sleep %d\n", r.IntN(300))
		if chance(70) {
			natural = []int{0, 0, 1, 7, 42, 124, 137, 143, 255}[r.IntN(9)]
			fmt.Fprintf(&main, "exit %d\n", natural)
		} else {
			sig := some(unix.SIGTERM, unix.SIGKILL, unix.SIGINT, unix.SIGHUP, unix.SIGUSR1, unix.SIGALRM)
			// An ignored one does not end it, but what comes next does.
			fmt.Fprintf(&main, "kill %d\nkill 9\n", sig)
			natural = 128 + int(sig)
			if sig == unix.SIGTERM && !strings.HasPrefix(main.String(), "say") {
				natural = 128 + 9
			}
		}
		d.legal[natural] = true
	}

	// What ends it.
	kinds := []string{"itself", "itself", "timeout", "stdin", "kill-after", "launcher", "outer", "inner", "main"}
	kind := kinds[r.IntN(len(kinds))]
	switch {
	case kind == "inner":
		d.place = rig.Pair
	case kind == "outer" && d.place.Alone, kind == "launcher" && d.place.PID1:
		// Without its shield a fini that is killed can't do anything.
		d.place = rig.Pair
	}
	if kind == "itself" || chance(50) {
		end()
	} else {
		main.WriteString("pause\n")
	}
	at := ms(500)
	asked := false // the command is sent a signal by fini
	switch kind {
	case "timeout":
		flag("--timeout=%v", at+20*time.Millisecond)
		d.legal[124] = true
		d.whole = false
	case "stdin":
		flag("-i")
		strike(fault{at: at, what: "stdin"})
		asked = true
	case "kill-after":
		flag("--kill-after=%v", ms(300)+time.Millisecond)
		sig := some(unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGQUIT)
		strike(fault{at: at, what: "outer", sig: sig})
		d.legal[128+int(sig)] = true
		asked = true
	case "launcher":
		d.launcher = true
		strike(fault{at: at, what: "launcher", sig: unix.SIGKILL})
		if chance(30) {
			flag("--orphans=wait") // which the launcher's death overrules
		}
		if chance(30) {
			flag("--pdeathsig=%s", []string{"INT", "USR1", "KILL"}[r.IntN(3)])
		}
		asked = true
	case "outer", "inner", "main":
		strike(fault{at: at, what: kind, sig: unix.SIGKILL})
		d.legal[137] = true
		asked = true
	}
	if d.place.PID1 && chance(20) {
		flag("--orphans=%s", []string{"leave", "pipes"}[r.IntN(2)]) // the kernel stops them
	}

	// What does not: further faults and limits.
	for chance(40) {
		if chance(20) {
			who := []string{"main", "inner", "outer"}[r.IntN(3)]
			strike(fault{at: ms(400), what: who, sig: unix.SIGSTOP, stop: ms(200)})
			continue
		}
		sig := some(unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2, unix.SIGWINCH, unix.SIGCONT)
		strike(fault{at: ms(500), what: "outer", sig: sig})
		d.legal[128+int(sig)] = true
		asked = true
	}
	if asked {
		d.legal[143], d.legal[137] = true, true
		d.whole = false
	}
	if chance(20) && kind != "inner" { // an heir may need 64 free tasks: see docs/platforms.md
		d.pids = strconv.Itoa(50 + r.IntN(20)) // enough for both finis, and for the launcher
	}
	d.sh = []string{fmt.Sprintf("ulimit -n %d", 24+r.IntN(40)), "ulimit -s 256", "ulimit -c 0; umask 777; cd /", "unset PATH HOME; cd /proc",
		"", "", "", ""}[r.IntN(8)]
	if chance(15) {
		code := []int{0, 7, 137, 143}[r.IntN(4)]
		flag("--remap-exit=%d", code)
		if d.legal[code] {
			// Of a fini that was killed the status is the shell's, and so is that of an outer one without its inner.
			if code != 137 || kind != "outer" && kind != "inner" {
				delete(d.legal, code)
			}
			d.legal[0] = true
		}
	}
	if chance(15) {
		flag("--orphans-exit=99")
		if d.legal[0] {
			d.legal[99] = true
		}
	}
	d.program = main.String() + g.text.String()
	return d
}

// A grower draws trees out of a small grammar.
type grower struct {
	r    *rand.Rand
	text strings.Builder // what the processes do that were forked
	n    int
	left int // how many more it may draw
}

// child is the statement that makes a child. What the child does goes to the end of the program.
func (g *grower) child() string {
	if g.left == 0 {
		return ""
	}
	g.left--
	label := g.label()
	var b strings.Builder
	fmt.Fprintf(&b, "%s:\n", label)
	one := func(percent int, text string) {
		if g.r.IntN(100) < percent {
			b.WriteString(text + "\n")
		}
	}
	one(40, "setsid")
	one(20, "setpgid")
	one(30, "ignore 15")
	one(30, "ignore 1")
	one(25, "close 0\nclose 1\nclose 2")
	one(10, "subreaper")
	for range g.r.IntN(3) {
		b.WriteString(g.child())
	}
	one(5, "seize") // the last child, if there is one
	x, y := g.label(), g.label()
	switch g.r.IntN(12) {
	case 0, 1, 2:
		b.WriteString("exit 0\n") // its children are orphans: a double fork
	case 3:
		fmt.Fprintf(&b, "sleep %d\nexit 3\n", g.r.IntN(300))
	case 4:
		fmt.Fprintf(&b, "sleep %d\nkill 9\n", g.r.IntN(300))
	case 5:
		b.WriteString("kill 19\npause\n")
	case 6:
		b.WriteString("traceme\nkill 10\npause\n") // stopped for a tracer that does not look
	case 7: // forks while it is being stopped
		fmt.Fprintf(&b, "block 15\nawait 15\n%s: fork %s\nsleep 5\nloop 20 %s\nexit 0\n%s: setsid\nignore 15\npause\n", x, y, x, y)
	case 8: // never the same pid for long
		fmt.Fprintf(&b, "%s: fork %s\nexit 0\n%s: sleep 1\ngoto %s\n", x, y, y, x)
	default:
		b.WriteString("pause\n")
	}
	g.text.WriteString(b.String())
	switch g.r.IntN(12) {
	case 0:
		return fmt.Sprintf("clone 0x8000 %s\n", label) // CLONE_PARENT
	case 1: // CLONE_VFORK, by a child: the parent is not to hang
		x, y := g.label(), g.label()
		fmt.Fprintf(&g.text, "%s: clone 0x4000 %s\n%s: pause\n", x, label, y)
		return fmt.Sprintf("fork %s\n", x)
	}
	return fmt.Sprintf("fork %s\n", label)
}

func (g *grower) label() string {
	g.n++
	return fmt.Sprintf("l%d", g.n)
}

var (
	launcherSays = regexp.MustCompile(`fini \d+\n`)
	crash        = regexp.MustCompile(`fatal error|panic|runtime:|goroutine |SIGSEGV|unexpected fault`)
	onlyLines    = regexp.MustCompile(`^(fini: .*\n?)*$`)
)

// live lives a life.
func (d *drawnLife) live(t *testing.T, s *soak, h *rig.Cgroup) {
	h.AtMost(d.pids)
	var before []string
	if d.sh != "" {
		before = []string{"/bin/sh", "-c", d.sh + `; exec "$0" "$@"`}
	}
	if d.launcher {
		before = append(before, rig.Mode("launcher")...)
	}
	l := rig.StartCmd(t, h.Around(d.place, before, slices.Concat(d.flags, []string{"--"}, rig.Mode("script", d.program))...))
	started := time.Now()
	ended := make(chan struct{})
	go func() { l.Wait(); close(ended) }()

	var faults sync.WaitGroup
	outerKilled := d.launcher
	for _, f := range d.faults {
		outerKilled = outerKilled || f.what == "outer" && f.sig == unix.SIGKILL
		faults.Go(func() {
			select {
			case <-time.After(f.at - time.Since(started)):
			case <-ended:
				if !d.launcher {
					return
				}
			}
			if f.what == "stdin" && l.Stdin.Close() == nil || f.what != "stdin" && d.strike(l, f, ended) {
				s.faults.Add(1)
			}
		})
	}

	select {
	case <-ended:
	case <-time.After(rig.Patience):
		t.Errorf("fini has not ended after %v; alive: %v", rig.Patience, h.Names())
		h.AtMost("0")
		h.Kill()
		<-ended
	}
	status := procfs.ShellStatus(l.Cmd.ProcessState)
	// The end of fini is the end of the tree; if fini was killed, its other half's end is.
	alive := h.Names()
	if outerKilled {
		rig.Await(rig.Enough, func() bool { alive = h.Names(); return len(alive) == 0 })
	}
	faults.Wait()
	if len(alive) > 0 { // who reads their output might wait for ever
		t.Fatalf("survivors: %v; status %d; stderr: %s", alive, status, l.Err.Text())
	}
	if rig.HeldOpen(l.Witness) {
		t.Error("the witness is held")
	}
	text, said := launcherSays.ReplaceAllString(l.Out.Whole(), ""), l.Err.Whole()
	if !d.launcher && !d.legal[status] {
		t.Errorf("status %d; stderr: %s", status, said)
	}
	if d.whole && text != d.out || !strings.HasPrefix(d.out, text) {
		t.Errorf("%d bytes of output, want %d, or a beginning of them (%v): %.100q", len(text), len(d.out), !d.whole, text)
	}
	if crash.MatchString(said) || !onlyLines.MatchString(said) {
		t.Errorf("stderr: %s", said)
	}
}

// strike sends a signal to one of the life's processes, if it still is that, and reports whether it did.
func (d *drawnLife) strike(l *rig.Life, f fault, ended chan struct{}) bool {
	for {
		pidfd := d.find(l, f)
		if pidfd >= 0 {
			defer func() { _ = unix.Close(pidfd) }()
			if unix.PidfdSendSignal(pidfd, f.sig, nil, 0) != nil {
				return false
			}
			if f.sig == unix.SIGSTOP {
				time.Sleep(f.stop) // it is the test: how long the process stays suspended
				_ = unix.PidfdSendSignal(pidfd, unix.SIGCONT, nil, 0)
			}
			return true
		}
		select {
		case <-ended:
			return false
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// find opens the process that a fault is for, -1 if it is not there, yet or any more.
func (d *drawnLife) find(l *rig.Life, f fault) int {
	var path []string
	if d.launcher && f.what != "launcher" {
		path = append(path, "fini")
	}
	if d.place == rig.Pair && (f.what == "inner" || f.what == "main") {
		path = append(path, "reaper")
	}
	if f.what == "main" {
		path = append(path, filepath.Base(rig.Mode("")[0]))
	}
	pid, parent, is := l.PID(), os.Getpid(), procfs.Status(l.PID(), "Name")
	for _, name := range path {
		// fini's first child is the command; others of its name it has inherited.
		first := procfs.Stat{}
		for _, child := range procfs.ChildrenOf(l.T, pid) {
			if stat := procfs.StatOf(child); stat.Name == name && (first.PID == 0 || stat.Number(22) < first.Number(22)) {
				first = stat
			}
		}
		if pid, parent, is = first.PID, pid, name; pid == 0 {
			return -1
		}
	}
	pidfd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return -1
	}
	mayBe := f.what != "outer" || f.sig == unix.SIGKILL || f.sig == unix.SIGSTOP || strings.Contains(l.Out.Text(), "begin\n") && d.caught(l.T, pid)
	// What is open can't be another process by now, if it is this one still.
	if stat := procfs.StatOf(pid); stat.Name != is || stat.Number(4) != parent || !mayBe {
		_ = unix.Close(pidfd)
		return -1
	}
	return pidfd
}

// caught reports whether fini, and its inner one if it has one, catches every signal that it can. A Go
// program that is sent one before ends by it, and by SIGQUIT with status 2; the command is one too, and
// has said something when it no longer does that.
func (d *drawnLife) caught(t testing.TB, pid int) bool {
	for name := "fini"; ; name = "reaper" {
		if procfs.Status(pid, "Name") != name || !rig.CatchesAll(pid) {
			return false
		}
		children := procfs.ChildrenOf(t, pid)
		if d.place != rig.Pair || name == "reaper" {
			return true
		} else if len(children) == 0 {
			return false
		}
		pid = children[0]
	}
}
