package e2e

import (
	"bufio"
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/seed-126c5d8a/fini/e2e/need"
	"github.com/seed-126c5d8a/fini/e2e/surroundings"
	"golang.org/x/sys/unix"
)

// finiPath is the binary under test: built for this run, or named with -fini.
var finiPath string

// patience ends a failing wait. No test passes because of it.
const patience = 5 * time.Minute

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && strings.HasPrefix(os.Args[1], "@") {
		helper(os.Args[1], os.Args[2:])
	}
	surroundings.Own()
	withoutShims()
	flag.StringVar(&finiPath, "fini", "", "test this binary instead of building one")
	flag.Parse()
	if isDefault("test.parallel") {
		// Most of the tests wait for others to do something.
		_ = flag.Set("test.parallel", strconv.Itoa(6*runtime.NumCPU()))
	}
	os.Exit(func() int {
		if finiPath == "" {
			dir, err := os.MkdirTemp("", "fini-e2e-")
			if err != nil {
				fmt.Fprintln(os.Stderr, err)
				return 1
			}
			defer func() { _ = os.RemoveAll(dir) }()
			if err := os.Chmod(dir, 0o755); err != nil { // another uid runs it too
				fmt.Fprintln(os.Stderr, err)
				return 1
			}
			finiPath = filepath.Join(dir, "fini")
			// The Makefile knows the linker's flags.
			build := exec.Command("make", "-s", "-C", "..", "build")
			if out, err := build.CombinedOutput(); err != nil {
				fmt.Fprintf(os.Stderr, "cannot build fini: %v\n%s", err, out)
				return 1
			}
			if out, err := exec.Command("install", "-m", "755", "../bin/fini", finiPath).CombinedOutput(); err != nil {
				fmt.Fprintf(os.Stderr, "cannot copy fini: %v\n%s", err, out)
				return 1
			}
		}
		status := m.Run()
		if testing.Verbose() {
			printTable(os.Stdout)
		}
		return max(status, tooLarge())
	}())
}

// withoutShims puts the directory of the true python3 first on PATH if it is not there yet. What stands there in its
// place may be a shell script that looks for it (pyenv's), which takes several times as long as what the tests have
// it do.
func withoutShims() {
	path, err := exec.Command("python3", "-c", "import sys; print(sys.executable)").Output()
	dir := filepath.Dir(strings.TrimSpace(string(path)))
	if err == nil && filepath.IsAbs(dir) && !slices.Contains(filepath.SplitList(os.Getenv("PATH")), dir) {
		_ = os.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	}
}

// tooLarge is 1, and says so, if the tests have ever had more memory than a small machine can spare.
func tooLarge() int {
	const most = 500_000 // kB; it is a tenth of that
	kb, _, _ := strings.Cut(procStatus(os.Getpid(), "VmHWM"), " ")
	if n, _ := strconv.Atoi(kb); n > most {
		fmt.Printf("the tests themselves had %d kB of memory, want at most %d: what do they keep?\n", n, most)
		return 1
	}
	return 0
}

// isDefault reports whether a flag was left at its default.
func isDefault(name string) bool {
	set := false
	flag.Visit(func(f *flag.Flag) { set = set || f.Name == name })
	return !set
}

// A place is one of the ways in which fini lives.
type place struct {
	name     string
	pid1     bool
	alone    bool // a wrapper without a shield
	isolated bool // a pair whose inner fini is the init of a PID namespace
}

var (
	pair     = place{name: "pair"}
	alone    = place{name: "alone", alone: true}
	pid1     = place{name: "pid1", pid1: true}
	isolated = place{name: "isolated", isolated: true}
	places   = []place{pair, alone, pid1}
)

// flags is what fini is given to be so.
func (p place) flags() []string {
	switch {
	case p.alone:
		return []string{"--no-shield"}
	case p.isolated:
		return []string{"--isolate"}
	}
	return nil
}

// takes reports whether a place has a share in a case with this number, of many cases that are dealt out
// among the places; each of them takes all under FINI_FULL. Isolated is another pair, and takes a few.
func (p place) takes(n int) bool {
	return full() || places[n%len(places)] == p || p.isolated && n%(4*len(places)) == 0
}

// inPlaces runs a test as each kind of wrapper and as PID 1 of a real PID namespace; and isolated, as CI
// does.
func inPlaces(t *testing.T, test func(t *testing.T, p place)) {
	t.Helper()
	inPlacesButIsolated(t, "", test)
	if asInCI() {
		t.Run(isolated.name, func(t *testing.T) {
			needIsolation(t, account{name: "this user"})
			test(t, isolated)
		})
	}
}

// inPlacesButIsolated leaves out what differs in a namespace of its own, and says why.
func inPlacesButIsolated(t *testing.T, _ string, test func(t *testing.T, p place)) {
	t.Helper()
	for _, p := range places {
		t.Run(p.name, func(t *testing.T) {
			if p.pid1 {
				needPidNamespace(t)
			}
			test(t, p)
		})
	}
}

var pidNamespace = sync.OnceValue(func() error {
	cmd := exec.Command("/proc/self/exe", "@pid1", "/bin/true")
	asPID1(cmd)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
})

func needPidNamespace(t testing.TB) {
	t.Helper()
	err := pidNamespace()
	need.That(t, err == nil, fmt.Sprintf("the right to make a PID namespace (%v)", err))
}

// asPID1 makes cmd the first process of a new PID namespace.
func asPID1(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS}
	if os.Geteuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= unix.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
}

// command is fini with these arguments, in this place. As PID 1 a helper mounts
// /proc first and becomes fini by exec, so that cmd.Process.Pid is fini's pid.
func (p place) command(args ...string) *exec.Cmd {
	args = append(p.flags(), args...)
	if !p.pid1 {
		return exec.Command(finiPath, args...)
	}
	cmd := exec.Command("/proc/self/exe", append([]string{"@pid1", finiPath}, args...)...)
	asPID1(cmd)
	return cmd
}

// mode is the command line that runs a helper of this test binary.
func mode(name string, args ...string) []string {
	self, err := os.Executable()
	if err != nil {
		panic(err)
	}
	return append([]string{self, "@" + name}, args...)
}

// A life is a started fini with all that a test watches.
type life struct {
	t       testing.TB
	cmd     *exec.Cmd
	Out     *lines
	Err     *lines
	Stdin   io.WriteCloser
	witness *os.File // every process of the tree holds the other end, as fd 3
	once    sync.Once
}

// start runs fini in place p with the given arguments, its streams piped and the
// witness as descriptor 3.
func start(t testing.TB, p place, args ...string) *life {
	t.Helper()
	return startCmd(t, p.command(args...))
}

func startCmd(t testing.TB, cmd *exec.Cmd) *life {
	t.Helper()
	outR, outW := pipe(t)
	errR, errW := pipe(t)
	inR, inW := pipe(t)
	witR, witW := pipe(t)
	l := &life{t: t, cmd: cmd, Stdin: inW, witness: witR}
	if cmd.Stdin == nil {
		cmd.Stdin = inR
	}
	if cmd.Stdout == nil {
		cmd.Stdout = outW
	}
	if cmd.Stderr == nil {
		cmd.Stderr = errW
	}
	cmd.ExtraFiles = append([]*os.File{witW}, cmd.ExtraFiles...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for _, f := range []*os.File{outW, errW, inR, witW} {
		_ = f.Close()
	}
	l.Out, l.Err = newLines(t, outR), newLines(t, errR)
	l.Out.beside = l.Err
	t.Cleanup(func() {
		_ = inW.Close()
		_ = cmd.Process.Kill()
		l.wait()
	})
	return l
}

func (l *life) wait() { l.once.Do(func() { _ = l.cmd.Wait() }) }

// pid is fini's, seen from the test's PID namespace.
func (l *life) pid() int { return l.cmd.Process.Pid }

func (l *life) signal(sig syscall.Signal) {
	l.t.Helper()
	if err := l.cmd.Process.Signal(sig); err != nil {
		l.t.Fatalf("cannot send %v: %v", sig, err)
	}
}

// inside makes a shell execute a line in the PID namespace of which fini is PID 1.
func (l *life) inside(line string) {
	l.t.Helper()
	argv := append(l.enter(), "/bin/sh", "-c", line)
	enter := exec.Command(argv[0], argv[1:]...)
	if out, err := enter.CombinedOutput(); err != nil {
		l.t.Fatalf("%v: %s", err, out)
	}
}

// enter is the words before those of a command by which it runs in the namespaces of a PID 1.
func (l *life) enter() []string {
	l.t.Helper()
	into := []string{need.Program(l.t, "nsenter"), "-t", strconv.Itoa(l.pid()), "-p", "-m"}
	if os.Geteuid() != 0 {
		into = append(into, "-U", "--preserve-credentials") // see asPID1
	}
	return append(into, "--")
}

// worker is the pid of the fini whose main child is the command: the inner one of a
// pair.
func (l *life) worker() int {
	l.t.Helper()
	pid := l.pid()
	until(l.t, "fini's child", func() bool { return len(childrenOf(l.t, pid)) > 0 })
	if child := childrenOf(l.t, pid)[0]; isInner(l.t, child) {
		return child
	}
	return pid
}

// isInner reports whether a child of fini is the inner fini, as soon as that can be told: until it has
// executed something, a command is a copy of its fini.
func isInner(t testing.TB, pid int) (inner bool) {
	t.Helper()
	until(t, "what fini's child is", func() bool {
		own, _ := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
		fini, _ := os.Readlink(fmt.Sprintf("/proc/%s/exe", procStatus(pid, "PPid")))
		inner = own == fini && maskHas(procStatus(pid, "SigIgn"), 33)
		return inner || own != fini || statOf(pid).gone()
	})
	return inner
}

// caught waits until fini, each one of a pair, has started the command and catches every
// signal that it can.
func (l *life) caught() {
	l.t.Helper()
	waitCaught(l.t, l.pid(), l.worker())
}

func waitCaught(t testing.TB, finis ...int) {
	t.Helper()
	if procStatus(os.Getpid(), "SigIgn") == "" {
		return // gVisor does not tell; there fini is slower than nobody
	}
	for _, pid := range finis {
		until(t, fmt.Sprintf("fini %d catches all signals", pid), func() bool { return catchesAll(pid) })
	}
}

// catchesAll reports whether a fini has caught all signals, and what it can't catch is ignored; or sleeps,
// and waits for all of them at a signalfd(2).
func catchesAll(pid int) bool {
	infos, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fdinfo/*", pid))
	for _, info := range infos {
		text, _ := os.ReadFile(info)
		if _, mask, ok := strings.Cut(string(text), "sigmask:\t"); ok && maskHas(strings.TrimSpace(mask), syscall.SIGUSR1) {
			return true
		}
	}
	return maskHas(procStatus(pid, "SigIgn"), 33)
}

// status waits for fini's end and returns its exit status as a shell gives it.
func (l *life) status() int {
	l.t.Helper()
	ended := make(chan struct{})
	go func() { l.wait(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(patience):
		l.t.Fatalf("fini %d has not ended; its stderr: %s", l.pid(), l.Err.text())
	}
	return shellStatus(l.cmd.ProcessState)
}

func shellStatus(s *os.ProcessState) int {
	if ws := s.Sys().(syscall.WaitStatus); ws.Signaled() {
		return 128 + int(ws.Signal())
	}
	return s.ExitCode()
}

// mustEnd asserts fini's status, and that when fini is gone nothing of its tree is
// alive: the witness has hung up already.
func (l *life) mustEnd(want int) {
	l.t.Helper()
	if got := l.status(); got != want {
		l.t.Errorf("status %d, want %d; stderr: %s", got, want, l.Err.text())
	}
	if heldOpen(l.witness) {
		l.t.Errorf("fini is gone and a process of its tree is alive; stderr: %s", l.Err.text())
	}
}

// hungUp reports whether nobody has the other end of a pipe open, at this moment. What a test
// beside this one is starting has all of this process open until it executes its program, of which
// syscall.ForkLock knows.
func hungUp(f *os.File) bool {
	syscall.ForkLock.Lock()
	defer syscall.ForkLock.Unlock()
	fds := []unix.PollFd{{Fd: int32(f.Fd())}}
	_, _ = unix.Poll(fds, 0)
	return fds[0].Revents&unix.POLLHUP != 0
}

// heldOpen reports whether a process that is no child of this one has the other end of a pipe open. A
// child has it if a test beside this one is starting that: execve(2) lets go of its parent, and so of the
// lock, before it closes what is close-on-exec; and in a user namespace the lock is let go of even sooner.
func heldOpen(f *os.File) bool {
	if hungUp(f) {
		return false
	}
	link, _ := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
	links, _ := filepath.Glob("/proc/[0-9]*/fd/*")
	for _, name := range links {
		pid, _ := strconv.Atoi(strings.Split(name, "/")[2])
		if pid == os.Getpid() || statOf(pid).number(4) == os.Getpid() {
			continue
		}
		if to, _ := os.Readlink(name); to == link {
			return true
		}
	}
	return !poll(patience, func() bool { return hungUp(f) })
}

func pipe(t testing.TB) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close(); _ = w.Close() })
	return r, w
}

// lines reads a stream line by line. It never makes the writer wait, and what nobody has asked for yet is
// kept in b alone: a test may start hundreds of commands, so there is no large buffer for each.
type lines struct {
	t    testing.TB
	c    chan string // of the lines, one after the other; closed at EOF
	came chan struct{}
	mu   sync.Mutex
	b    bytes.Buffer
	eof  bool

	early  []string // to be read before what comes by c
	beside *lines   // the process's other stream, which a failure quotes
}

func newLines(t testing.TB, r io.Reader) *lines {
	l := &lines{t: t, c: make(chan string), came: make(chan struct{}, 1)}
	over := make(chan struct{})
	t.Cleanup(func() { close(over) })
	go l.read(r)
	go l.pass(over)
	return l
}

// read takes in what there is, whole lines at a time.
func (l *lines) read(r io.Reader) {
	in := bufio.NewReader(r)
	for {
		line, err := in.ReadSlice('\n')
		if bytes.HasPrefix(line, []byte("fini: ")) {
			line = ageless(line)
		}
		l.mu.Lock()
		l.b.Write(line)
		l.eof = err != nil && err != bufio.ErrBufferFull
		eof := l.eof
		l.mu.Unlock()
		select {
		case l.came <- struct{}{}:
		default:
		}
		if eof {
			return
		}
	}
}

// ageless takes out how old a leftover is, which a line tells if it is older than ten seconds: none here is meant to be,
// but on a slow machine it may be.
func ageless(line []byte) []byte { return ages.ReplaceAll(line, nil) }

var ages = regexp.MustCompile(`, (\d+[hms])+ old\b`)

// pass hands the lines on until the test is over.
func (l *lines) pass(over <-chan struct{}) {
	defer close(l.c)
	for from := 0; ; {
		l.mu.Lock()
		var text string
		rest, eof := l.b.Bytes()[from:], l.eof
		line, _, whole := bytes.Cut(rest, []byte("\n"))
		if whole || eof {
			text = string(line)
		}
		l.mu.Unlock()
		switch {
		case whole:
			from += len(text) + 1
		case eof && text == "":
			return
		case eof:
			from += len(text)
		default:
			select {
			case <-l.came:
			case <-over:
				return
			}
			continue
		}
		select {
		case l.c <- text:
		case <-over:
			return
		}
	}
}

func (l *lines) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// whole reads to EOF and returns everything that came, what was read before too.
func (l *lines) whole() string {
	l.t.Helper()
	for {
		if _, ok := l.next(); !ok {
			return l.text()
		}
	}
}

// next is the next line; ok is false at EOF.
func (l *lines) next() (line string, ok bool) {
	l.t.Helper()
	if len(l.early) > 0 {
		line, l.early = l.early[0], l.early[1:]
		return line, true
	}
	select {
	case line, ok = <-l.c:
		return line, ok
	case <-time.After(patience):
		l.t.Fatalf("no line and no EOF; so far: %q", l.text())
		return "", false
	}
}

// want reads lines up to one that begins with prefix, and returns what follows it.
func (l *lines) want(prefix string) string {
	l.t.Helper()
	for {
		line, ok := l.next()
		if !ok {
			l.t.Fatalf("EOF before a line that begins with %q; so far: %q%s", prefix, l.text(), l.other())
		}
		if rest, ok := strings.CutPrefix(line, prefix); ok {
			return strings.TrimSpace(rest)
		}
	}
}

// other quotes what came to the other stream, if there is one.
func (l *lines) other() string {
	if l.beside == nil {
		return ""
	}
	return fmt.Sprintf("; and beside it: %q", l.beside.whole())
}

// wantPid is want for a line whose rest is a number.
func (l *lines) wantPid(prefix string) int {
	l.t.Helper()
	rest := l.want(prefix)
	pid, err := strconv.Atoi(rest)
	if err != nil {
		l.t.Fatalf("no pid behind %q: %q", prefix, rest)
	}
	return pid
}

// launched is the pid of the fini that a launcher has started, which it says when that may have
// started the command already: what the command has said by then is left to be read.
func (l *lines) launched() int {
	l.t.Helper()
	var early []string
	for {
		line, ok := l.next()
		if !ok {
			l.t.Fatalf("EOF before the launcher's line; so far: %q", l.text())
		}
		if text, ok := strings.CutPrefix(line, "fini "); ok {
			pid, err := strconv.Atoi(text)
			if err != nil {
				l.t.Fatalf("the launcher says %q", line)
			}
			l.early = early
			return pid
		}
		early = append(early, line)
	}
}

// rest reads to EOF.
func (l *lines) rest() (all []string) {
	l.t.Helper()
	for {
		line, ok := l.next()
		if !ok {
			return all
		}
		all = append(all, line)
	}
}

// until waits for a fact that can only be polled.
func until(t testing.TB, what string, fact func() bool) {
	t.Helper()
	if !poll(patience, fact) {
		t.Fatalf("never came true: %s", what)
	}
}

// poll asks for a fact until it is true, or the limit has passed, and reports which. It is the one
// place that sleeps to wait, at first for a short time: what takes long is not asked for all the time.
func poll(limit time.Duration, fact func() bool) bool {
	pause := time.Millisecond
	for end := time.Now().Add(limit); !fact(); time.Sleep(pause) {
		if time.Now().After(end) {
			return false
		}
		pause = min(pause+pause/4, 20*time.Millisecond)
	}
	return true
}

// procStatus is a field of /proc/PID/status.
func procStatus(pid int, field string) string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, field+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// childrenOf lists the children of a process, zombies included, the oldest first where the kernel
// lists them.
func childrenOf(t testing.TB, pid int) (pids []int) {
	t.Helper()
	if threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid)); err == nil && len(threads) > 0 {
		for _, name := range threads {
			text, _ := os.ReadFile(name)
			for field := range strings.FieldsSeq(string(text)) {
				child, _ := strconv.Atoi(field)
				pids = append(pids, child)
			}
		}
		return pids
	}
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range stats {
		if stat := readStat(name); stat.number(4) == pid {
			pids = append(pids, stat.pid)
		}
	}
	return pids
}

// A procStat is what a stat file of /proc says of a process or a thread; the zero value if there is
// none. See proc_pid_stat(5).
type procStat struct {
	pid  int
	name string
	rest []string // the fields from the third on
}

func statOf(pid int) procStat { return readStat(fmt.Sprintf("/proc/%d/stat", pid)) }

func readStat(path string) procStat {
	text, _ := os.ReadFile(path)
	return parseStat(string(text))
}

func parseStat(text string) (s procStat) {
	from, to := strings.IndexByte(text, '('), strings.LastIndexByte(text, ')')
	if from < 0 || to < from {
		return s
	}
	s.pid, _ = strconv.Atoi(strings.TrimSpace(text[:from]))
	s.name, s.rest = text[from+1:to], strings.Fields(text[to+1:])
	return s
}

// state is the third field, or 0.
func (s procStat) state() byte {
	if len(s.rest) == 0 {
		return 0
	}
	return s.rest[0][0]
}

// number is a field behind the third, counted as in the man page.
func (s procStat) number(field int) int {
	if field-3 >= len(s.rest) {
		return 0
	}
	n, _ := strconv.Atoi(s.rest[field-3])
	return n
}

// gone reports whether there is no process, or one that has ended and was not waited for.
func (s procStat) gone() bool { return s.state() == 0 || s.state() == 'Z' || s.state() == 'X' }

func countFDs(t testing.TB, pid int) int {
	t.Helper()
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return len(entries)
}
