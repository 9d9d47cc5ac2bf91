package rig

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

// Fini is the binary under test: built for this run, or named with -fini.
var Fini string

// Main runs the tests of a room, or one of the programs that tests start. The folder e2e is the working directory of
// either, so that the path of a file is the same in each room.
func Main(m *testing.M) {
	if len(os.Args) > 1 && strings.HasPrefix(os.Args[1], "@") {
		helper(os.Args[1], os.Args[2:])
	}
	if err := toE2E(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	surroundings.Own()
	withoutShims()
	flag.StringVar(&Fini, "fini", "", "test this binary instead of building one")
	flag.Parse()
	if isDefault("test.parallel") {
		// Most of the tests wait for others to do something, and go test runs as many rooms at a time as there are processors.
		_ = flag.Set("test.parallel", strconv.Itoa(max(8, 2*runtime.NumCPU())))
	}
	os.Exit(func() int {
		if Fini == "" {
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
			Fini = filepath.Join(dir, "fini")
			if err := build(Fini); err != nil {
				fmt.Fprintln(os.Stderr, err)
				return 1
			}
		}
		status := m.Run()
		if testing.Verbose() && !Quick() {
			printTable(os.Stdout)
		}
		return max(status, tooLarge())
	}())
}

// locked runs what no two rooms may do at a time: rooms run beside each other.
func locked(do func() error) error {
	dir, err := os.Open(".")
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }()
	if err := unix.Flock(int(dir.Fd()), unix.LOCK_EX); err != nil {
		return err
	}
	return do()
}

// build makes a copy of bin/fini. make test, which has made bin/fini, says so.
func build(to string) error {
	return locked(func() error {
		if surroundings.Asked("FINI_BUILT") == "" {
			// The Makefile knows the linker's flags.
			if out, err := exec.Command("make", "-s", "-C", "..", "build").CombinedOutput(); err != nil {
				return fmt.Errorf("cannot build fini: %w\n%s", err, out)
			}
		}
		if out, err := exec.Command("install", "-m", "755", "../bin/fini", to).CombinedOutput(); err != nil {
			return fmt.Errorf("cannot copy fini: %w\n%s", err, out)
		}
		return nil
	})
}

// toE2E goes up from the room's folder.
func toE2E() error {
	dir, err := os.Getwd()
	for err == nil && filepath.Base(dir) != "e2e" {
		if filepath.Dir(dir) == dir {
			return errors.New("the tests of a room run in its folder, which is below e2e")
		}
		dir = filepath.Dir(dir)
	}
	if err != nil {
		return err
	}
	return os.Chdir(dir)
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
	kb, _, _ := strings.Cut(ProcStatus(os.Getpid(), "VmHWM"), " ")
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
type Place struct {
	Name  string
	PID1  bool
	Alone bool // a wrapper without a shield
}

var (
	Pair   = Place{Name: "pair"}
	Alone  = Place{Name: "alone", Alone: true}
	PID1   = Place{Name: "pid1", PID1: true}
	Places = []Place{Pair, Alone, PID1}
)

// Flags is what fini is given to be so.
func (p Place) Flags() []string {
	if p.Alone {
		return []string{"--no-shield"}
	}
	return nil
}

// InPlaces runs a test as each kind of wrapper and as PID 1 of a real PID namespace. In make test it is the quick one of
// these places alone.
func InPlaces(t *testing.T, quick Place, test func(t *testing.T, p Place)) {
	t.Helper()
	for _, p := range Places {
		inPlace(t, p, p == quick, test)
	}
}

// InEveryPlace runs a test in all places, also in make test: the first test of a promise, or a test that differs from place
// to place.
func InEveryPlace(t *testing.T, test func(t *testing.T, p Place)) {
	t.Helper()
	for _, p := range Places {
		inPlace(t, p, true, test)
	}
}

func inPlace(t *testing.T, p Place, quick bool, test func(t *testing.T, p Place)) {
	t.Helper()
	Case(t, quick, p.Name, func(t *testing.T) {
		if p.PID1 {
			NeedPidNamespace(t)
		}
		test(t, p)
	})
}

var pidNamespace = sync.OnceValue(func() error {
	cmd := exec.Command("/proc/self/exe", "@pid1", "/bin/true")
	AsPID1(cmd)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
})

func NeedPidNamespace(t testing.TB) {
	t.Helper()
	err := pidNamespace()
	need.That(t, err == nil, fmt.Sprintf("the right to make a PID namespace (%v)", err))
}

// AsPID1 makes cmd the first process of a new PID namespace.
func AsPID1(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS}
	if os.Geteuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= unix.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
}

// Command is fini with these arguments, in this place. As PID 1 a helper mounts
// /proc first and becomes fini by exec, so that cmd.Process.Pid is fini's pid.
func (p Place) Command(args ...string) *exec.Cmd {
	args = append(p.Flags(), args...)
	if !p.PID1 {
		return exec.Command(Fini, args...)
	}
	cmd := exec.Command("/proc/self/exe", append([]string{"@pid1", Fini}, args...)...)
	AsPID1(cmd)
	return cmd
}

// Mode is the command line that runs a helper of this test binary.
func Mode(name string, args ...string) []string {
	self, err := os.Executable()
	if err != nil {
		panic(err)
	}
	return append([]string{self, "@" + name}, args...)
}

// CommandOf is the command of a command line.
func CommandOf(argv []string) *exec.Cmd { return exec.Command(argv[0], argv[1:]...) }

// A life is a started fini with all that a test watches.
type Life struct {
	T       testing.TB
	Cmd     *exec.Cmd
	Out     *Lines
	Err     *Lines
	Stdin   io.WriteCloser
	Witness *os.File // every process of the tree holds the other end, as fd 3
	once    sync.Once
}

// Start runs fini in place p with the given arguments, its streams piped and the
// witness as descriptor 3.
func Start(t testing.TB, p Place, args ...string) *Life {
	t.Helper()
	return StartCmd(t, p.Command(args...))
}

func StartCmd(t testing.TB, cmd *exec.Cmd) *Life {
	t.Helper()
	outR, outW := Pipe(t)
	errR, errW := Pipe(t)
	inR, inW := Pipe(t)
	witR, witW := Pipe(t)
	l := &Life{T: t, Cmd: cmd, Stdin: inW, Witness: witR}
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
	l.Out, l.Err = NewLines(t, outR), NewLines(t, errR)
	l.Out.beside = l.Err
	t.Cleanup(func() {
		_ = inW.Close()
		_ = cmd.Process.Kill()
		l.Wait()
	})
	return l
}

func (l *Life) Wait() { l.once.Do(func() { _ = l.Cmd.Wait() }) }

// PID is fini's, seen from the test's PID namespace.
func (l *Life) PID() int { return l.Cmd.Process.Pid }

func (l *Life) Signal(sig syscall.Signal) {
	l.T.Helper()
	if err := l.Cmd.Process.Signal(sig); err != nil {
		l.T.Fatalf("cannot send %v: %v", sig, err)
	}
}

// Inside makes a shell execute a line in the PID namespace of which fini is PID 1.
func (l *Life) Inside(line string) {
	l.T.Helper()
	if out, err := CommandOf(append(l.Enter(), "/bin/sh", "-c", line)).CombinedOutput(); err != nil {
		l.T.Fatalf("%v: %s", err, out)
	}
}

// Enter is the words before those of a command by which it runs in the namespaces of a PID 1.
func (l *Life) Enter() []string {
	l.T.Helper()
	into := []string{need.Program(l.T, "nsenter"), "-t", strconv.Itoa(l.PID()), "-p", "-m"}
	if os.Geteuid() != 0 {
		into = append(into, "-U", "--preserve-credentials") // see AsPID1
	}
	return append(into, "--")
}

// Worker is the pid of the fini whose main child is the command: the inner one of a
// pair.
func (l *Life) Worker() int {
	l.T.Helper()
	pid := l.PID()
	var children []int
	Until(l.T, "fini's child", func() bool {
		children = ChildrenOf(l.T, pid)
		return len(children) > 0
	})
	if isInner(l.T, children[0]) {
		return children[0]
	}
	return pid
}

// isInner reports whether a child of fini is the inner fini, as soon as that can be told: until it has
// executed something, a command is a copy of its fini. What has ended has no executable, and is not told apart: an inner
// fini that has ended is taken for the command.
func isInner(t testing.TB, pid int) (inner bool) {
	t.Helper()
	Until(t, "what fini's child is", func() bool {
		own, _ := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
		fini, _ := os.Readlink(fmt.Sprintf("/proc/%s/exe", ProcStatus(pid, "PPid")))
		ignored := ProcStatus(pid, "SigIgn")
		inner = own != "" && own == fini && (MaskHas(ignored, 33) || ignored == "") // gVisor shows no mask
		return inner || own == "" || own != fini
	})
	return inner
}

// Caught waits until fini, each one of a pair, has started the command and catches every
// signal that it can.
func (l *Life) Caught() {
	l.T.Helper()
	WaitCaught(l.T, l.PID(), l.Worker())
}

func WaitCaught(t testing.TB, finis ...int) {
	t.Helper()
	if ProcStatus(os.Getpid(), "SigIgn") == "" {
		return // gVisor does not tell; there fini is slower than nobody
	}
	for _, pid := range finis {
		Until(t, fmt.Sprintf("fini %d catches all signals", pid), func() bool { return CatchesAll(pid) })
	}
}

// CatchesAll reports whether a fini has caught all signals, and what it can't catch is ignored; or sleeps,
// and waits for all of them at a signalfd(2).
func CatchesAll(pid int) bool {
	infos, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fdinfo/*", pid))
	for _, info := range infos {
		text, _ := os.ReadFile(info)
		if _, mask, ok := strings.Cut(string(text), "sigmask:\t"); ok && MaskHas(strings.TrimSpace(mask), syscall.SIGUSR1) {
			return true
		}
	}
	return MaskHas(ProcStatus(pid, "SigIgn"), 33)
}

// Status waits for fini's end and returns its exit status as a shell gives it.
func (l *Life) Status() int {
	l.T.Helper()
	ended := make(chan struct{})
	go func() { l.Wait(); close(ended) }()
	for w := new(Wait); ; {
		select {
		case <-ended:
			return ShellStatus(l.Cmd.ProcessState)
		case <-time.After(100 * time.Millisecond):
		}
		if w.Over(Enough) {
			l.T.Fatalf("fini %d has not ended; its stderr: %s", l.PID(), l.Err.Text())
		}
	}
}

func ShellStatus(s *os.ProcessState) int {
	if ws := s.Sys().(syscall.WaitStatus); ws.Signaled() {
		return 128 + int(ws.Signal())
	}
	return s.ExitCode()
}

func (l *Life) MustHaveStatus(want int) {
	l.T.Helper()
	if got := l.Status(); got != want {
		l.T.Errorf("status %d, want %d; stderr: %s", got, want, l.Err.Text())
	}
}

// MustEnd asserts fini's status, and that when fini is gone nothing of its tree is
// alive: the witness has hung up already.
func (l *Life) MustEnd(want int) {
	l.T.Helper()
	l.MustHaveStatus(want)
	if HeldOpen(l.Witness) {
		l.T.Errorf("fini is gone and a process of its tree is alive; stderr: %s", l.Err.Text())
	}
}

// HungUp reports whether nobody has the other end of a pipe open, at this moment. What a test
// beside this one is starting has all of this process open until it executes its program, of which
// syscall.ForkLock knows.
func HungUp(f *os.File) bool {
	syscall.ForkLock.Lock()
	defer syscall.ForkLock.Unlock()
	fds := []unix.PollFd{{Fd: int32(f.Fd())}}
	_, _ = unix.Poll(fds, 0)
	return fds[0].Revents&unix.POLLHUP != 0
}

// HeldOpen reports whether a process that is no child of this one has the other end of a pipe open. A
// child has it if a test beside this one is starting that: execve(2) lets go of its parent, and so of the
// lock, before it closes what is close-on-exec; and in a user namespace the lock is let go of even sooner.
func HeldOpen(f *os.File) bool {
	if HungUp(f) {
		return false
	}
	link, _ := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
	links, _ := filepath.Glob("/proc/[0-9]*/fd/*")
	for _, name := range links {
		pid, _ := strconv.Atoi(strings.Split(name, "/")[2])
		if pid == os.Getpid() || StatOf(pid).Number(4) == os.Getpid() {
			continue
		}
		if to, _ := os.Readlink(name); to == link {
			return true
		}
	}
	return !Await(Enough, func() bool { return HungUp(f) })
}

func Pipe(t testing.TB) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close(); _ = w.Close() })
	return r, w
}

// Lines reads a stream line by line. It never makes the writer wait, and what nobody has asked for yet is
// kept in b alone: a test may start hundreds of commands, so there is no large buffer for each.
type Lines struct {
	T    testing.TB
	C    chan string // of the lines, one after the other; closed at EOF
	came chan struct{}
	mu   sync.Mutex
	b    bytes.Buffer
	eof  bool

	early  []string // to be read before what comes by c
	beside *Lines   // the process's other stream, which a failure quotes
}

func NewLines(t testing.TB, r io.Reader) *Lines {
	l := &Lines{T: t, C: make(chan string), came: make(chan struct{}, 1)}
	over := make(chan struct{})
	t.Cleanup(func() { close(over) })
	go l.read(r)
	go l.pass(over)
	return l
}

// read takes in what there is, whole lines at a time.
func (l *Lines) read(r io.Reader) {
	in := bufio.NewReader(r)
	for {
		line, err := in.ReadSlice('\n')
		if bytes.HasPrefix(line, []byte("fini: ")) {
			line = Ageless(line)
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

// Ageless takes out how old a leftover is, which a line tells if it is older than ten seconds: none here is meant to be,
// but on a slow machine it may be.
func Ageless(line []byte) []byte { return ages.ReplaceAll(line, nil) }

var ages = regexp.MustCompile(`, (\d+[hms])+ old\b`)

// pass hands the lines on until the test is over.
func (l *Lines) pass(over <-chan struct{}) {
	defer close(l.C)
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
		case l.C <- text:
		case <-over:
			return
		}
	}
}

func (l *Lines) Text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// Whole reads to EOF and returns everything that came, what was read before too.
func (l *Lines) Whole() string {
	l.T.Helper()
	for {
		if _, ok := l.Next(); !ok {
			return l.Text()
		}
	}
}

// Next is the next line; ok is false at EOF.
func (l *Lines) Next() (line string, ok bool) {
	l.T.Helper()
	if len(l.early) > 0 {
		line, l.early = l.early[0], l.early[1:]
		return line, true
	}
	for w := new(Wait); ; {
		select {
		case line, ok = <-l.C:
			return line, ok
		case <-time.After(100 * time.Millisecond):
		}
		if w.Over(Enough) {
			l.T.Fatalf("no line and no EOF; so far: %q", l.Text())
		}
	}
}

// Want reads lines up to one that begins with prefix, and returns what follows it.
func (l *Lines) Want(prefix string) string {
	l.T.Helper()
	for {
		line, ok := l.Next()
		if !ok {
			l.T.Fatalf("EOF before a line that begins with %q; so far: %q%s", prefix, l.Text(), l.other())
		}
		if rest, ok := strings.CutPrefix(line, prefix); ok {
			return strings.TrimSpace(rest)
		}
	}
}

// other quotes what came to the other stream, if there is one.
func (l *Lines) other() string {
	if l.beside == nil {
		return ""
	}
	return fmt.Sprintf("; and beside it: %q", l.beside.Whole())
}

// WantPID is want for a line whose rest is a number.
func (l *Lines) WantPID(prefix string) int {
	l.T.Helper()
	rest := l.Want(prefix)
	pid, err := strconv.Atoi(rest)
	if err != nil {
		l.T.Fatalf("no pid behind %q: %q", prefix, rest)
	}
	return pid
}

// Launched is the pid of the fini that a launcher has started, which it says when that may have
// started the command already: what the command has said by then is left to be read.
func (l *Lines) Launched() int {
	l.T.Helper()
	var early []string
	for {
		line, ok := l.Next()
		if !ok {
			l.T.Fatalf("EOF before the launcher's line; so far: %q", l.Text())
		}
		if text, ok := strings.CutPrefix(line, "fini "); ok {
			pid, err := strconv.Atoi(text)
			if err != nil {
				l.T.Fatalf("the launcher says %q", line)
			}
			l.early = early
			return pid
		}
		early = append(early, line)
	}
}

// Rest reads to EOF.
func (l *Lines) Rest() (all []string) {
	l.T.Helper()
	for {
		line, ok := l.Next()
		if !ok {
			return all
		}
		all = append(all, line)
	}
}

// ProcStatus is a field of /proc/PID/status.
func ProcStatus(pid int, field string) string {
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

// ChildrenOf lists the children of a process, zombies included, the oldest first where the kernel
// lists them.
func ChildrenOf(t testing.TB, pid int) (pids []int) {
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
		if stat := ReadStat(name); stat.Number(4) == pid {
			pids = append(pids, stat.pid)
		}
	}
	return pids
}

// A procStat is what a stat file of /proc says of a process or a thread; the zero value if there is
// none. See proc_pid_stat(5).
type procStat struct {
	pid  int
	Name string
	rest []string // the fields from the third on
}

func StatOf(pid int) procStat { return ReadStat(fmt.Sprintf("/proc/%d/stat", pid)) }

func ReadStat(path string) procStat {
	text, _ := os.ReadFile(path)
	return ParseStat(string(text))
}

func ParseStat(text string) (s procStat) {
	from, to := strings.IndexByte(text, '('), strings.LastIndexByte(text, ')')
	if from < 0 || to < from {
		return s
	}
	s.pid, _ = strconv.Atoi(strings.TrimSpace(text[:from]))
	s.Name, s.rest = text[from+1:to], strings.Fields(text[to+1:])
	return s
}

// State is the third field, or 0.
func (s procStat) State() byte {
	if len(s.rest) == 0 {
		return 0
	}
	return s.rest[0][0]
}

// Number is a field behind the third, counted as in the man page.
func (s procStat) Number(field int) int {
	if field-3 >= len(s.rest) {
		return 0
	}
	n, _ := strconv.Atoi(s.rest[field-3])
	return n
}

// Gone reports whether there is no process, or one that has ended and was not waited for.
func (s procStat) Gone() bool { return s.State() == 0 || s.State() == 'Z' || s.State() == 'X' }

func CountFDs(t testing.TB, pid int) int {
	t.Helper()
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return len(entries)
}
