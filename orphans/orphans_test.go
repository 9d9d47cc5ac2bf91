package orphans

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seed-126c5d8a/fini/e2e/need"
	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/e2e/rig/procfs"
	"github.com/seed-126c5d8a/fini/e2e/surroundings"
	"github.com/seed-126c5d8a/fini/internal/proc"
	"golang.org/x/sys/unix"
)

// patience ends a wait that fails. No test passes because of it.
const patience = 5 * time.Minute

// onMain carries what has to run on the first thread. The kernel lists children by
// the thread that forked them, and Tree looks at those of the first one, which is
// where fini starts its command and where orphans come to.
var onMain = make(chan func())

func init() { runtime.LockOSThread() }

func TestMain(m *testing.M) {
	// Under the race detector a program sleeps for a second when it exits.
	_ = os.Setenv("GORACE", "atexit_sleep_ms=0")
	if len(os.Args) > 1 && strings.HasPrefix(os.Args[1], "@") && os.Args[1] != "@alone" {
		program(os.Args[1:])
	}
	surroundings.Own()
	if len(os.Args) > 1 && os.Args[1] == "@alone" {
		isAlone = true
		os.Args = slices.Delete(os.Args, 1, 2)
	}
	done := make(chan int)
	go func() { done <- m.Run() }()
	for {
		select {
		case f := <-onMain:
			f()
		case code := <-done:
			os.Exit(code)
		}
	}
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// program is what a process of a family runs. Each writes lines to descriptor 3, and
// ends at the end of descriptor 4, which is at the latest when the test has ended.
// Any of the words can follow one of those that take further words:
//
//	@stay LABEL              say "ready LABEL PID" and stay
//	@signals LABEL           also say "USR1 LABEL" and "USR2 LABEL" for a signal
//	@fork LABEL words...     start words, stay, and say "reaped LABEL" when they end
//	@double words...         start words in a session of its own and end
//	@named NAME words...     take a name
//	@headless LABEL          end the first thread and stay
//	@clone LABEL AUTOREAP    fork, say "ready LABEL PID" of the child, and end
//	@end                     end
func program(words []string) {
	say := func(format string, args ...any) { _, _ = fmt.Fprintf(os.NewFile(3, "said"), format+"\n", args...) }
	stay := func() {
		_, _ = io.Copy(io.Discard, os.NewFile(4, "until"))
		os.Exit(0)
	}
	start := func(attr *syscall.SysProcAttr, words []string) *exec.Cmd {
		cmd := exec.Command("/proc/self/exe", words...)
		cmd.ExtraFiles = []*os.File{os.NewFile(3, "said"), os.NewFile(4, "until")}
		cmd.SysProcAttr = attr
		if err := cmd.Start(); err != nil {
			say("failed: %v", err)
			os.Exit(1)
		}
		return cmd
	}
	switch words[0] {
	case "@stay":
		say("ready %s %d", words[1], os.Getpid())
		stay()
	case "@signals":
		c := make(chan os.Signal, 10)
		signal.Notify(c, unix.SIGUSR1, unix.SIGUSR2)
		say("ready %s %d", words[1], os.Getpid())
		go stay()
		for sig := range c {
			say("%s %s", map[os.Signal]string{unix.SIGUSR1: "USR1", unix.SIGUSR2: "USR2"}[sig], words[1])
		}
	case "@fork":
		// This is not the first thread: init locked that one to another goroutine.
		go func() {
			cmd := start(nil, words[2:])
			say("ready %s %d", words[1], os.Getpid())
			go stay()
			_ = cmd.Wait()
			say("reaped %s", words[1])
		}()
		select {}
	case "@double":
		start(&syscall.SysProcAttr{Setsid: true}, words[1:])
		os.Exit(0)
	case "@named":
		// As PR_SET_NAME does for the thread that calls it.
		if err := os.WriteFile("/proc/self/comm", []byte(words[1]), 0); err != nil {
			say("failed: %v", err)
			os.Exit(1)
		}
		program(words[2:])
	case "@headless":
		go func() {
			for {
				text, err := os.ReadFile("/proc/" + strconv.Itoa(os.Getpid()) + "/stat")
				if err != nil || strings.Contains(string(text), ") Z ") {
					break
				}
				runtime.Gosched()
			}
			say("ready %s %d", words[1], os.Getpid())
			stay()
		}()
		// Syscall, unlike RawSyscall, lets the runtime go on without this thread.
		_, _, _ = syscall.Syscall(unix.SYS_EXIT, 0, 0, 0)
	case "@clone":
		flags, signal := uint64(0), unix.SIGCHLD
		if words[2] == "true" {
			flags, signal = cloneAutoreap, 0
		}
		if pid, err := cloneChild(flags, signal); err != nil {
			say("failed: %v", err)
		} else {
			say("ready %s %d", words[1], pid)
		}
		os.Exit(0)
	case "@end":
		os.Exit(0)
	}
	say("failed: no such program: %q", words)
	os.Exit(99)
}

// family is a tree of real processes below this one.
type family struct {
	t     *testing.T
	heard *os.File
	lines *bufio.Reader
	said  *os.File // the end that processes write
	until *os.File // the end that processes read
	hold  *os.File
	pids  map[string]int
	cmds  []*exec.Cmd // kept, since one that is forgotten closes its pidfd some day
}

func newFamily(t *testing.T) *family {
	t.Helper()
	sayR, sayW := rig.Pipe(t)
	untilR, untilW := rig.Pipe(t)
	return &family{t: t, heard: sayR, lines: bufio.NewReader(sayR), said: sayW, until: untilR, hold: untilW, pids: map[string]int{}}
}

// command is a process to start; without more it has no streams.
func (f *family) command(words ...string) *exec.Cmd {
	f.t.Helper()
	self, err := os.Executable()
	check(f.t, err)
	cmd := exec.Command(self, words...)
	cmd.ExtraFiles = []*os.File{f.said, f.until}
	return cmd
}

// start starts a process from the first thread.
func (f *family) start(cmd *exec.Cmd) *exec.Cmd {
	f.t.Helper()
	err := make(chan error)
	onMain <- func() { err <- cmd.Start() }
	check(f.t, <-err)
	f.cmds = append(f.cmds, cmd)
	return cmd
}

func (f *family) line() string {
	f.t.Helper()
	check(f.t, f.heard.SetReadDeadline(time.Now().Add(patience)))
	text, err := f.lines.ReadString('\n')
	if err != nil {
		f.t.Fatalf("no line from a process: %v; so far there are %v", err, f.pids)
	}
	return strings.TrimSuffix(text, "\n")
}

func (f *family) want(line string) {
	f.t.Helper()
	if got := f.line(); got != line {
		f.t.Fatalf("a process said %q, want %q", got, line)
	}
}

// await waits until the processes with these labels are ready.
func (f *family) await(labels ...string) {
	f.t.Helper()
	for _, label := range labels {
		for f.pids[label] == 0 {
			words := strings.Fields(f.line())
			if len(words) != 3 || words[0] != "ready" {
				f.t.Fatalf("a process said %q", words)
			}
			pid, err := strconv.Atoi(words[2])
			check(f.t, err)
			f.pids[words[1]] = pid
		}
	}
}

// kill ends the process with this label. A pid of 0 would stand for this group.
func (f *family) kill(label string) {
	f.t.Helper()
	if f.pids[label] < 2 {
		f.t.Fatalf("%s has the pid %d", label, f.pids[label])
	}
	check(f.t, unix.Kill(f.pids[label], unix.SIGKILL))
}

// end lets every process end, and reaps until none is left.
func (f *family) end() {
	_ = f.hold.Close()
	reapAll(f.t)
}

// reapAll waits for every descendant, which all come to this subreaper.
func reapAll(t *testing.T) {
	t.Helper()
	for {
		if _, err := unix.Wait4(-1, nil, 0, nil); err == unix.ECHILD {
			return
		} else if err != nil && err != unix.EINTR {
			t.Fatal(err)
		}
	}
}

// isAlone says that this process was started by alone.
var isAlone bool

// alone runs body in a process of its own that is a subreaper, for nothing makes a
// process cease to be one and all that body leaves must be found there. A sibling
// shares its standard output, stands outside its tree and must outlive it; its pid
// is TEST_SIBLING.
func alone(t *testing.T, attr *syscall.SysProcAttr, body func(t *testing.T)) {
	t.Helper()
	if isAlone {
		check(t, unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))
		body(t)
		return
	}
	outR, outW := rig.Pipe(t)
	outside := newFamily(t)
	sibling := outside.command("@signals", "sibling")
	sibling.Stdout = outW
	outside.start(sibling)
	outside.await("sibling")

	cmd := outside.command("@alone", "-test.run=^"+t.Name()+"$", "-test.v", "-test.timeout=20m")
	cmd.Env = append(os.Environ(), fmt.Sprintf("TEST_SIBLING=%d", outside.pids["sibling"]))
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles, cmd.SysProcAttr = outW, outW, nil, attr
	if err := cmd.Start(); err != nil {
		if attr != nil {
			need.That(t, false, fmt.Sprintf("the right to make a namespace (%v)", err))
		}
		t.Fatal(err)
	}
	_ = outW.Close()
	out := make(chan string)
	go func() {
		text, _ := io.ReadAll(outR)
		out <- string(text)
	}()
	err := cmd.Wait()

	// SIGUSR1 from the tree would be there before this one.
	check(t, sibling.Process.Signal(unix.SIGUSR2))
	if got := outside.line(); got != "USR2 sibling" {
		t.Errorf("the process outside the tree received %q", got)
	}
	_ = outside.hold.Close()
	if ended := sibling.Wait(); ended != nil {
		t.Errorf("the process outside the tree was ended: %v", ended)
	}
	text := <-out
	switch {
	case err != nil:
		t.Errorf("%v\n%s", err, text)
	case strings.Contains(text, "--- SKIP: "):
		t.Skip("SKIPPED, in the process of its own:\n" + text)
	case !strings.Contains(text, "--- PASS: "+t.Name()):
		t.Errorf("the test did not run:\n%s", text)
	default:
		t.Log("\n" + text)
	}
}

// ways runs a test in each of the ways in which a Tree can look and signal.
func ways(t *testing.T, test func(t *testing.T, tree *Tree)) {
	t.Helper()
	yesNo := []bool{true, false}
	for _, byChildren := range yesNo {
		for _, pidfds := range yesNo {
			for _, autoreap := range yesNo {
				t.Run(fmt.Sprintf("children=%t,pidfds=%t,autoreap=%t", byChildren, pidfds, autoreap), func(t *testing.T) {
					tree := New()
					check(t, tree.prepare())
					need.That(t, tree.byChildren, "/proc/PID/task/TID/children (CONFIG_PROC_CHILDREN)")
					fd, err := unix.PidfdOpen(os.Getpid(), 0)
					need.That(t, err == nil, "pidfd_open(2)")
					_ = unix.Close(fd)
					tree.byChildren, tree.usePidfds, tree.autoreap = byChildren, pidfds, autoreap
					test(t, tree)
					if tree.byChildren != byChildren || tree.usePidfds != pidfds || tree.autoreap != autoreap {
						t.Error("the tree was looked at in another way")
					}
					tree.release()
					_ = unix.Close(tree.Dir)
				})
			}
		}
	}
}

// release forgets everybody.
func (t *Tree) release() {
	for pid := range t.known {
		t.forget(pid)
	}
}

func look(t *testing.T, tree *Tree) map[int]Process {
	t.Helper()
	view, err := tree.Look()
	check(t, err)
	found := view.Found
	byPid := map[int]Process{}
	place := map[int]int{os.Getpid(): -1}
	for i, p := range found {
		if _, twice := byPid[p.Pid]; twice {
			t.Errorf("%d was found twice", p.Pid)
		}
		if _, ok := place[p.Parent]; !ok {
			t.Errorf("%d was found before its parent %d", p.Pid, p.Parent)
		}
		byPid[p.Pid], place[p.Pid] = p, i
	}
	return byPid
}

// mustFind asserts that exactly the processes with these labels were found.
func (f *family) mustFind(t *testing.T, found map[int]Process, labels ...string) {
	t.Helper()
	want := map[int]bool{}
	for _, label := range labels {
		want[f.pids[label]] = true
		if _, ok := found[f.pids[label]]; !ok {
			t.Errorf("%s (%d) was not found", label, f.pids[label])
		}
	}
	for pid, p := range found {
		if !want[pid] {
			t.Errorf("%d was found, and is none of %v: %+v", pid, labels, p)
		}
	}
	if t.Failed() {
		t.FailNow() // what follows is about these processes
	}
}

// zombie is a process that has ended, and whose pid stays until it is reaped.
func (f *family) zombie() Process {
	f.t.Helper()
	pid := f.start(f.command("@end")).Process.Pid
	awaitEnd(f.t, pid)
	return Process{Pid: pid, State: 'Z', Threads: 1, Name: "a zombie", kept: &kept{}}
}

// awaitEnd waits for the end of a child, and does not reap it.
func awaitEnd(t *testing.T, pid int) {
	t.Helper()
	for {
		if err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil); err != unix.EINTR {
			check(t, err)
			return
		}
	}
}

// uptime is the time since boot, in the clock of Process.Start.
func uptime(t *testing.T) time.Duration {
	t.Helper()
	var now unix.Timespec
	check(t, unix.ClockGettime(unix.CLOCK_BOOTTIME, &now))
	return time.Duration(now.Nano())
}

func TestLook(t *testing.T) {
	alone(t, nil, func(t *testing.T) {
		f := newFamily(t)
		defer f.end()
		before := uptime(t)
		f.start(f.command("@stay", "child"))
		session := f.command("@stay", "session")
		session.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		f.start(session)
		group := f.command("@stay", "group")
		group.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		f.start(group)
		f.start(f.command("@fork", "parent", "@fork", "middle", "@stay", "grandchild"))
		check(t, f.start(f.command("@double", "@stay", "daemon")).Wait())
		f.start(f.command("@headless", "headless"))
		const name = "a\nb\\) Z 1 1 1\xff"
		f.start(f.command("@named", name, "@stay", "named"))
		all := []string{"child", "session", "group", "parent", "middle", "grandchild", "daemon", "headless", "named"}
		f.await(all...)
		after := uptime(t)

		f.zombie() // which is not alive
		self, ownGroup := os.Getpid(), unix.Getpgrp()
		ownSession, err := unix.Getsid(0)
		check(t, err)

		ways(t, func(t *testing.T, tree *Tree) {
			found := look(t, tree)
			f.mustFind(t, found, all...)
			for label, want := range map[string]Process{
				"child":      {Parent: self, Group: ownGroup, Session: ownSession},
				"session":    {Parent: self, Group: f.pids["session"], Session: f.pids["session"]},
				"group":      {Parent: self, Group: f.pids["group"], Session: ownSession},
				"parent":     {Parent: self, Group: ownGroup, Session: ownSession},
				"middle":     {Parent: f.pids["parent"], Group: ownGroup, Session: ownSession},
				"grandchild": {Parent: f.pids["middle"], Group: ownGroup, Session: ownSession},
				"daemon":     {Parent: self, Group: f.pids["daemon"], Session: f.pids["daemon"]},
			} {
				p := found[f.pids[label]]
				if p.Parent != want.Parent || p.Group != want.Group || p.Session != want.Session {
					t.Errorf("%s: parent %d, group %d, session %d; want %d, %d, %d", label,
						p.Parent, p.Group, p.Session, want.Parent, want.Group, want.Session)
				}
				if p.Start < before-proc.Tick || p.Start > after {
					t.Errorf("%s started at %v, but that was between %v and %v", label, p.Start, before, after)
				}
				if p.Threads < 2 {
					t.Errorf("%s has %d threads; a Go program has more", label, p.Threads)
				}
			}
			if p := found[f.pids["headless"]]; p.State == 'Z' || p.thread == p.Pid || p.Threads < 2 {
				t.Errorf("the process without its first thread: %+v", p)
			}
			if p := found[f.pids["named"]]; p.Name != name {
				t.Errorf("%d has the name %q, want %q", p.Pid, p.Name, name)
			}
			tree.release()
			before := procfs.CountFDs(t, self)
			for range 20 {
				f.mustFind(t, look(t, tree), all...)
			}
			tree.release()
			if after := procfs.CountFDs(t, self); after > before {
				t.Errorf("%d descriptors before 20 looks, %d after", before, after)
			}
		})
	})
}

// treeOf is a Tree for a process with these standard streams, nil for closed ones.
func treeOf(t *testing.T, stdout, stderr *os.File) *Tree {
	t.Helper()
	for fd, f := range map[int]*os.File{1: stdout, 2: stderr} {
		saved, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3)
		check(t, err)
		if f == nil {
			check(t, unix.Close(fd))
		} else {
			check(t, unix.Dup3(int(f.Fd()), fd, 0))
		}
		defer func() {
			_ = unix.Dup3(saved, fd, 0)
			_ = unix.Close(saved)
		}()
	}
	return New()
}

func reopen(t *testing.T, f *os.File, mode int) *os.File {
	t.Helper()
	path := fmt.Sprintf("/proc/self/fd/%d", f.Fd())
	fd, err := unix.Open(path, mode|unix.O_CLOEXEC, 0)
	check(t, err)
	again := os.NewFile(uintptr(fd), path)
	t.Cleanup(func() { _ = again.Close() })
	return again
}

func TestHolds(t *testing.T) {
	alone(t, nil, func(t *testing.T) {
		f := newFamily(t)
		defer f.end()
		outR, outW := rig.Pipe(t)
		_, errW := rig.Pipe(t)
		_, otherW := rig.Pipe(t)
		near, far := rig.Socketpair(t)
		null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
		check(t, err)
		defer func() { _ = null.Close() }()
		file, err := os.Create(filepath.Join(t.TempDir(), "log"))
		check(t, err)
		defer func() { _ = file.Close() }()

		fifoPath := filepath.Join(t.TempDir(), "fifo")
		check(t, unix.Mkfifo(fifoPath, 0o600))
		fifo, err := os.OpenFile(fifoPath, os.O_RDWR, 0)
		check(t, err)
		defer func() { _ = fifo.Close() }()

		// Each process has these as descriptors from 5 on.
		processes := map[string][]*os.File{
			"none":                  nil,
			"stdout":                {outW},
			"stderr":                {errW},
			"both":                  {outW, errW},
			"reader":                {outR},
			"reader and writer":     {outR, outW},
			"many":                  {null, otherW, outR, file, outW, null},
			"opened for both":       {reopen(t, outR, unix.O_RDWR)},
			"opened for reading":    {reopen(t, outW, unix.O_RDONLY|unix.O_NONBLOCK)},
			"reference":             {reopen(t, outW, unix.O_PATH)},
			"socket":                {near},
			"both ends of socket":   {near, far},
			"the null device":       {null},
			"log":                   {file},
			"fifo":                  {fifo},
			"reader of one, writes": {outR, errW},
		}
		var labels []string
		label := func(name string) string { return strings.ReplaceAll(name, " ", "-") }
		for name, files := range processes {
			cmd := f.command("@stay", label(name))
			cmd.ExtraFiles = append(cmd.ExtraFiles, files...)
			f.start(cmd)
			labels = append(labels, label(name))
		}
		// The descriptors of a process whose first thread has ended are no longer to be seen where its others are.
		headless := f.command("@headless", "headless")
		headless.Stdout = outW
		f.start(headless)
		labels = append(labels, "headless")
		f.await(labels...)

		for what, c := range map[string]struct {
			stdout, stderr *os.File
			want           map[string]Streams // the rest hold nothing
		}{
			"two pipes": {outW, errW, map[string]Streams{
				"stdout": Stdout, "stderr": Stderr, "both": Stdout | Stderr, "reader and writer": Stdout,
				"many": Stdout, "opened for both": Stdout,
				"reader of one, writes": Stderr,
				"headless":              Stdout,
			}},
			"one pipe for both": {errW, errW, map[string]Streams{
				"stderr": Stdout | Stderr, "both": Stdout | Stderr, "reader of one, writes": Stdout | Stderr,
			}},
			"a pipe and a file": {file, errW, map[string]Streams{
				"stderr": Stderr, "both": Stderr, "reader of one, writes": Stderr,
			}},
			"a socket": {near, null, map[string]Streams{
				"socket": Stdout, "both ends of socket": Stdout,
			}},
			"a named pipe": {fifo, null, map[string]Streams{
				"fifo": Stdout,
			}},
			"the null device": {null, null, nil},
			"a file":          {file, file, nil},
			"closed streams":  {nil, nil, nil},
			"a closed stdout": {nil, errW, map[string]Streams{
				"stderr": Stderr, "both": Stderr, "reader of one, writes": Stderr,
			}},
		} {
			found := look(t, treeOf(t, c.stdout, c.stderr))
			f.mustFind(t, found, labels...)
			held := map[string]Streams{}
			for name, streams := range c.want {
				held[label(name)] = streams
			}
			for _, l := range labels {
				if got := found[f.pids[l]].Holds; got != held[l] {
					t.Errorf("%s: %s holds %b, want %b", what, l, got, held[l])
				}
			}
		}
		// Each process may hold a pipe without a name.
		tree := New()
		tree.streams = [2]stream{unreadable, ""}
		for _, p := range look(t, tree) {
			if p.Holds != Unknown {
				t.Errorf("%d holds %b, want %b", p.Pid, p.Holds, Unknown)
			}
		}
	})
}

func TestSignalReachesExactlyOne(t *testing.T) {
	alone(t, nil, func(t *testing.T) {
		f := newFamily(t)
		defer f.end()
		labels := []string{"first", "second", "parent", "below", "daemon"}
		f.start(f.command("@signals", "first"))
		f.start(f.command("@signals", "second"))
		f.start(f.command("@fork", "parent", "@signals", "below"))
		check(t, f.start(f.command("@double", "@signals", "daemon")).Wait())
		f.await(labels...)
		all := []string{"first", "second", "below", "daemon"}
		ways(t, func(t *testing.T, tree *Tree) {
			for _, target := range all {
				found := look(t, tree)
				f.mustFind(t, found, labels...)
				check(t, tree.Signal(found[f.pids[target]], unix.SIGUSR1))
				f.want("USR1 " + target)
				// SIGUSR1 would be there before SIGUSR2.
				for _, l := range all {
					check(t, tree.Signal(found[f.pids[l]], unix.SIGUSR2))
					f.want("USR2 " + l)
				}
			}
		})
	})
}

func TestSignalOfEnded(t *testing.T) {
	alone(t, nil, func(t *testing.T) {
		ways(t, func(t *testing.T, tree *Tree) {
			f := newFamily(t)
			defer f.end()
			f.start(f.command("@fork", "parent", "@stay", "below"))
			child := f.start(f.command("@stay", "child"))
			f.await("parent", "child", "below")
			found := look(t, tree)
			f.mustFind(t, found, "parent", "child", "below")
			for _, label := range []string{"child", "below"} {
				f.kill(label)
			}
			f.want("reaped parent")
			for _, when := range []string{"a zombie", "reaped"} {
				if when == "reaped" {
					_ = child.Wait()
				}
				for _, label := range []string{"child", "below"} {
					if err := tree.Signal(found[f.pids[label]], unix.SIGTERM); err != nil {
						t.Errorf("Signal of %s, %s: %v", label, when, err)
					}
				}
			}
		})
	})
}

// A pid that became another process's names a process that nobody meant.
func TestSignalSparesRecycledPid(t *testing.T) {
	const last = "/proc/sys/kernel/ns_last_pid"
	_, err := os.Stat(last)
	need.That(t, err == nil && os.Getuid() == 0, "root and "+last+" (CONFIG_CHECKPOINT_RESTORE)")
	// In a namespace of its own nobody else takes the pid first.
	attr := &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS}
	alone(t, attr, func(t *testing.T) {
		check(t, unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
		check(t, unix.Mount("proc", "/proc", "proc", 0, ""))
		ways(t, func(t *testing.T, tree *Tree) {
			spares := func(label string) bool {
				f := newFamily(t)
				defer f.end()
				f.start(f.command("@fork", "parent", "@stay", "below"))
				child := f.start(f.command("@stay", "child"))
				f.await("parent", "child", "below")
				found := look(t, tree)
				f.mustFind(t, found, "parent", "child", "below")
				old := found[f.pids[label]]
				f.kill(label)
				if label == "child" {
					_ = child.Wait()
					tree.Reaped(old.Pid)
				} else {
					f.want("reaped parent")
				}
				// The start tells two processes of one pid apart, to the tick.
				for uptime(t) < old.Start+2*proc.Tick {
					runtime.Gosched()
				}
				other, ok := f.recycle(old.Pid, "other")
				if !ok {
					return false
				}
				if err := tree.Signal(old, unix.SIGUSR1); err != nil {
					t.Errorf("Signal of %s: %v", label, err)
				}
				// SIGUSR1 would be there before SIGUSR2.
				check(t, unix.Kill(old.Pid, unix.SIGUSR2))
				if got := f.line(); got != "USR2 "+other {
					t.Errorf("Signal of %s reached the process that has its pid now: %q", label, got)
				}
				return true
			}
			for _, label := range []string{"child", "below"} {
				if label == "below" && !tree.usePidfds {
					continue // what has the pid now is a child of this process, and so of the tree
				}
				done := false
				for i := 0; i < 10 && !done; i++ {
					done = spares(label)
				}
				if !done {
					t.Errorf("the pid of %s was not to be had again, ten times", label)
				}
			}
		})
	})
}

// What was found out about a process is not taken for a fact about the process that has its pid now: neither if fini may
// not signal it, as a set-user-ID program's, nor without pidfds.
func TestKeptFactsAreOfOneProcess(t *testing.T) {
	const last = "/proc/sys/kernel/ns_last_pid"
	_, err := os.Stat(last)
	need.That(t, err == nil && os.Getuid() == 0, "root and "+last+" (CONFIG_CHECKPOINT_RESTORE)")
	attr := &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS}
	alone(t, attr, func(t *testing.T) {
		check(t, unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
		check(t, unix.Mount("proc", "/proc", "proc", 0, ""))
		const nobody = 65534
		for _, way := range []string{"with pidfds", "no pidfds", "not allowed to signal"} {
			t.Run(way, func(t *testing.T) {
				comesAgain := func() bool {
					f := newFamily(t)
					defer f.end()
					f.start(f.command("@fork", "parent", "@stay", "below"))
					f.await("parent", "below")
					tree := New()
					check(t, tree.prepare())
					defer tree.release()
					tree.usePidfds = way != "no pidfds"
					if way == "not allowed to signal" {
						check(t, syscall.Setresuid(nobody, nobody, 0))
						defer func() { check(t, syscall.Setresuid(0, 0, 0)) }()
					}
					old := look(t, tree)[f.pids["below"]]
					if (old.kept.pidfd >= 0) != tree.usePidfds {
						t.Errorf("its pidfd is %d", old.kept.pidfd)
					}
					check(t, syscall.Setresuid(0, 0, 0))
					f.kill("below")
					f.want("reaped parent")
					if _, ok := f.recycle(old.Pid, "other"); !ok {
						return false
					}
					if way == "not allowed to signal" {
						check(t, syscall.Setresuid(nobody, nobody, 0))
					}
					if tree.usePidfds && !old.kept.isOver() {
						t.Error("the old one counts as alive, and the other's children as its own")
					}
					if now, ok := look(t, tree)[old.Pid]; !ok || now.kept == old.kept {
						t.Errorf("found %v, %+v, want another process than %+v", ok, now, old)
					}
					return true
				}
				for range 10 {
					if comesAgain() {
						return
					}
				}
				t.Error("the pid was not to be had again, ten times")
			})
		}
	})
}

// A process is taken for a child of one that may have been reaped since, and whose pid may be another's, only if it
// has come to be this process's own.
func TestVerify(t *testing.T) {
	alone(t, nil, func(t *testing.T) {
		f := newFamily(t)
		f.start(f.command("@fork", "parent", "@stay", "below"))
		f.start(f.command("@stay", "child"))
		f.await("parent", "below", "child")
		ended := f.command("@end")
		check(t, ended.Start())
		reaped, err := unix.PidfdOpen(ended.Process.Pid, 0)
		need.That(t, err == nil, "pidfd_open(2)")
		_ = ended.Wait()
		tree := New()
		check(t, tree.prepare())
		parent := Process{Pid: f.pids["parent"], Parent: os.Getpid(), Threads: 1, kept: &kept{pidfd: -1}}
		if p, ok := tree.verify(f.pids["below"], parent); !ok || p.kept.pidfd < 0 {
			t.Errorf("a child of its parent: %+v, %v, want it with a pidfd", p, ok)
		}
		if p, ok := tree.verify(f.pids["child"], parent); !ok || p.Parent != os.Getpid() {
			t.Errorf("a child of this process by now: %+v, %v", p, ok)
		}
		parent.kept.pidfd = reaped
		if p, ok := tree.verify(f.pids["below"], parent); ok {
			t.Errorf("a child of who has the parent's pid now: %+v", p)
		}
		tree.release()
		_ = unix.Close(reaped)
		f.end()
	})
}

// recycle starts a process that has this pid, and returns its label. A thread of this process or of another may start in
// between, so it takes some tries; and if such a thread has got the pid, there is no other process that has it.
func (f *family) recycle(pid int, label string) (_ string, ok bool) {
	f.t.Helper()
	for i := range 20 {
		unique := fmt.Sprintf("%s-%d", label, i)
		cmd := f.command("@signals", unique)
		failed := make(chan error)
		onMain <- func() {
			err := os.WriteFile("/proc/sys/kernel/ns_last_pid", fmt.Append(nil, pid-1), 0)
			if err == nil {
				err = cmd.Start()
			}
			failed <- err
		}
		check(f.t, <-failed)
		if cmd.Process.Pid == pid {
			f.await(unique)
			return unique, true
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	return "", false
}

func TestKill(t *testing.T) {
	alone(t, nil, func(t *testing.T) {
		ways(t, func(t *testing.T, tree *Tree) {
			f := newFamily(t)
			labels := []string{"child", "session", "parent", "middle", "below", "daemon", "named"}
			f.start(f.command("@stay", "child"))
			session := f.command("@stay", "session")
			session.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
			f.start(session)
			f.start(f.command("@fork", "parent", "@fork", "middle", "@stay", "below"))
			check(t, f.start(f.command("@double", "@stay", "daemon")).Wait())
			f.start(f.command("@named", ") Z 0 (", "@stay", "named"))
			f.await(labels...)

			// One sweep may miss who is handed on while it lasts, so there is another
			// until nobody is left. The family's end is still to come: whoever ends
			// here was killed.
			hit := map[int]bool{}
			for empty := false; !empty; {
				pids, refused, err := tree.Kill()
				check(t, err)
				if len(refused) != 0 {
					t.Errorf("Kill was refused %v", refused)
				}
				for _, pid := range pids {
					hit[pid] = true
				}
				var pid int
				for pid = 1; pid > 0; {
					pid, err = unix.Wait4(-1, nil, unix.WNOHANG, nil)
				}
				empty = err == unix.ECHILD
			}
			want := map[int]bool{}
			for _, label := range labels {
				want[f.pids[label]] = true
			}
			if !maps.Equal(hit, want) {
				t.Errorf("Kill hit %v, want %v", hit, f.pids)
			}
			if hit, refused, err := tree.Kill(); len(hit)+len(refused) != 0 || err != nil {
				t.Errorf("the tree is empty, and Kill = %v, %v, %v", hit, refused, err)
			}
			f.mustFind(t, look(t, tree))
			if len(tree.known) > 0 {
				t.Errorf("the tree is empty, and %v are known", tree.known)
			}
			f.end()
		})
	})
}

// One call ends the rest of the command's process group, because a fork bomb outruns a walk. A group is known by a child
// in it, which was found and is not reaped. A process of another group has to be found.
func TestKillChildrenEndsTheGroup(t *testing.T) {
	alone(t, nil, func(t *testing.T) {
		tree := New()
		check(t, tree.prepare())
		f := newFamily(t)
		start := func(words ...string) int {
			cmd := f.command(words...)
			cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
			return f.start(cmd).Process.Pid
		}
		main := start("@fork", "main", "@stay", "follower")
		start("@fork", "other", "@fork", "middle", "@stay", "below")
		f.await("main", "follower", "other", "middle", "below")
		tree.Allow(nil, main)
		for _, looked := range []bool{false, true} {
			if looked {
				look(t, tree)
			}
			if tree.hasGroup() != looked {
				t.Fatalf("looked %t, and hasGroup = %t", looked, !looked)
			}
		}
		_, refused, err := tree.KillChildren()
		check(t, err)
		if len(refused) > 0 {
			t.Errorf("refused: %v", refused)
		}
		spared := time.AfterFunc(patience, func() {
			t.Error("a grandchild in the group stays")
			_ = unix.Kill(f.pids["follower"], unix.SIGKILL)
		})
		defer spared.Stop()
		for _, label := range []string{"main", "follower", "other"} {
			pid, err := unix.Wait4(f.pids[label], nil, 0, nil)
			if label != "follower" || err != unix.ECHILD { // the main child may have reaped it before it was killed itself
				check(t, err)
				tree.Reaped(pid)
			}
		}
		check(t, unix.Kill(f.pids["middle"], 0))
		if tree.hasGroup() {
			t.Error("every process of the group is reaped, and its ID counts still")
		}
		check(t, unix.Kill(f.pids["below"], 0))
		f.end()
	})
}

// A process that may not be signalled or looked into is told of, and neither is
// taken for one that has ended nor for one that holds nothing.
func TestNotAllowed(t *testing.T) {
	need.That(t, os.Getuid() == 0, "root, to start a process of another user")
	alone(t, nil, func(t *testing.T) {
		f := newFamily(t)
		_, outW := rig.Pipe(t)
		tree := treeOf(t, outW, nil)
		f.start(f.command("@stay", "child"))
		f.start(f.command("@fork", "parent", "@stay", "below"))
		f.await("child", "parent", "below")
		const nobody = 65534
		check(t, syscall.Setresuid(nobody, nobody, nobody))
		defer f.end()

		tree.Allow([]string{"env:A=b"}, 0)
		found := look(t, tree)
		f.mustFind(t, found, "child", "parent", "below")
		for _, p := range found {
			if !p.Unread || p.Allowed {
				t.Errorf("the environment of %d can't be read: %+v", p.Pid, p)
			}
			if p.Parent != os.Getpid() && p.kept.pidfd < 0 {
				t.Errorf("no pidfd tells %d from a process that gets its pid", p.Pid)
			}
			if told := tree.Details(p, []string{"PATH"}); p.Holds != Unknown || told.Variables != nil {
				t.Errorf("%d holds %b, want %b, and has %+v", p.Pid, p.Holds, Unknown, told)
			}
			if err := tree.Signal(p, unix.SIGTERM); !errors.Is(err, unix.EPERM) {
				t.Errorf("Signal of another user's process: %v, want EPERM", err)
			} else if !strings.Contains(err.Error(), strconv.Itoa(p.Pid)) {
				t.Errorf("the error does not name %d: %v", p.Pid, err)
			}
		}
		hit, refused, err := tree.Kill()
		check(t, err)
		slices.Sort(refused)
		want := []int{f.pids["child"], f.pids["parent"], f.pids["below"]}
		slices.Sort(want)
		if len(hit) != 0 || !slices.Equal(refused, want) {
			t.Errorf("Kill hit %v and was refused %v, want none and %v", hit, refused, want)
		}
		if !tree.usePidfds {
			t.Error("pidfds were given up because one process may not be signalled")
		}
	})
}

// Without /proc the children are found, and nothing is known of them but that they live.
func TestLookWithoutProc(t *testing.T) {
	need.That(t, os.Getuid() == 0, "root, to change the root directory")
	alone(t, nil, func(t *testing.T) {
		f := newFamily(t)
		child := f.start(f.command("@fork", "child", "@stay", "below")).Process.Pid
		f.start(f.command("@stay", "other"))
		f.await("child", "below", "other")
		dir, err := os.Open("/")
		check(t, err)
		defer func() { // or nobody could remove the directory
			check(t, dir.Chdir())
			check(t, unix.Chroot("."))
		}()
		check(t, unix.Chroot(t.TempDir()))
		tree := New()
		if want := [2]stream{unreadable, unreadable}; tree.streams != want {
			t.Errorf("standard output and standard error, which are pipes, are %q, want %q", tree.streams, want)
		}
		f.mustFindChildrenOnly(t, tree, child, f.pids["other"])
	})
}

func (f *family) mustFindChildrenOnly(t *testing.T, tree *Tree, want ...int) {
	t.Helper()
	tree.pidMax = slices.Max(want) + 1
	for range 2 {
		view, err := tree.Look()
		check(t, err)
		if !view.Nameless {
			t.Error("it has names")
		}
		var pids []int
		for _, p := range view.Found {
			pids = append(pids, p.Pid)
			if p.State != '?' || p.Parent != os.Getpid() || !p.Alive() {
				t.Errorf("found %+v", p)
			}
			check(t, tree.Signal(p, 0))
		}
		if !slices.Equal(pids, want) {
			t.Errorf("found %v, want %v", pids, want)
		}
	}
	hit, refused, err := tree.Kill()
	// What one of them had started is a child, too, if that one has ended before the search is there.
	below := f.pids["below"]
	others := slices.DeleteFunc(slices.Clone(hit), func(pid int) bool { return pid == below })
	atOnce := os.Getpid() == 1 // then they may have ended before they are looked for
	if err != nil || !slices.Equal(others, want) && !atOnce || len(refused) > 0 {
		t.Errorf("Kill = %v, %v, %v, want %v hit", hit, refused, err, want)
	}
	for _, pid := range want { // a zombie is none of those alive
		awaitEnd(t, pid)
	}
	view, err := tree.Look()
	check(t, err)
	for _, p := range view.Found { // what they had started comes to this process
		if slices.Contains(want, p.Pid) {
			t.Errorf("found the zombie %v", p)
		}
	}
}

// In the /proc of another PID namespace other processes have these pids.
func TestLookInForeignProc(t *testing.T) {
	attr := &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID}
	if os.Getuid() != 0 {
		attr.Cloneflags |= unix.CLONE_NEWUSER
		attr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
	}
	alone(t, attr, func(t *testing.T) {
		f := newFamily(t)
		f.start(f.command("@stay", "child"))
		f.await("child")
		f.mustFindChildrenOnly(t, New(), f.pids["child"])
	})
}

func TestCommandLine(t *testing.T) {
	alone(t, nil, func(t *testing.T) {
		f := newFamily(t)
		defer f.end()
		plain := f.command("@stay", "plain")
		f.start(plain)
		long := f.command("@stay", "long")
		for range 10 {
			long.Args = append(long.Args, strings.Repeat("x", 100<<10))
		}
		f.start(long)
		f.await("plain", "long")
		tree := New()
		found := look(t, tree)
		for _, c := range []struct {
			p    Process
			want string
		}{
			{found[f.pids["plain"]], strings.Join(plain.Args, " ")},
			{found[f.pids["long"]], strings.Join(long.Args, " ")[:4<<10]},
			{Process{Pid: 1 << 30, Name: "of nobody", kept: &kept{}}, "of nobody"},
			{f.zombie(), "a zombie"}, // which has no arguments any more
		} {
			if got := tree.CommandLine(c.p); got != c.want {
				t.Errorf("CommandLine = %.100q, want %.100q", got, c.want)
			}
		}
		if told := tree.Details(f.zombie(), []string{"PATH"}); told.Variables != nil {
			t.Errorf("a zombie has %+v", told)
		}
	})
}

// A pid that another process has got since is not signalled: without a pidfd by its parent, and at any time because what was
// known of the pid is of another process.
func TestSignalSparesWhoGotThePid(t *testing.T) {
	tree := New()
	if err := tree.prepare(); err != nil {
		t.Fatal(err)
	}
	const noParent = 1 << 22 // PID_MAX_LIMIT in proc_sys_kernel(5)
	if err := tree.send(os.Getppid(), noParent, -1, 0); err != unix.ESRCH {
		t.Errorf("no descendant: %v, want ESRCH", err)
	}
	before, now := &kept{pidfd: -1}, &kept{pidfd: -1}
	tree.known[os.Getppid()] = now
	if err := tree.Signal(Process{Pid: os.Getppid(), kept: before}, 0); err != nil || before.signaled || now.signaled {
		t.Errorf("another process with the pid: %v, signalled %v and %v", err, before.signaled, now.signaled)
	}
}
