package orphans

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/seed-126c5d8a/fini/internal/tests/check"
	"github.com/seed-126c5d8a/fini/internal/tests/need"
	"github.com/seed-126c5d8a/fini/internal/tests/procfs"
	"github.com/seed-126c5d8a/fini/internal/tests/programs"
	"github.com/seed-126c5d8a/fini/internal/tests/self"
	"github.com/seed-126c5d8a/fini/internal/tests/surroundings"
	"golang.org/x/sys/unix"
)

// This file has the trees of real processes at which the tests look. The process of the tests is the subreaper above them.

// onMain carries what has to run on the first thread. The kernel lists children by the thread that forked them, and Tree
// looks at those of the first one, which is where fini starts its command and where orphans come to.
var onMain = make(chan func())

func init() { runtime.LockOSThread() }

func TestMain(m *testing.M) {
	_ = os.Setenv("GORACE", "atexit_sleep_ms=0") // under the race detector a program sleeps for a second when it exits
	if len(os.Args) > 1 && strings.HasPrefix(os.Args[1], "@") {
		program(os.Args[1:])
	}
	surroundings.Own()
	go func() { os.Exit(m.Run()) }()
	for f := range onMain {
		f()
	}
}

// program is what a process of a family runs. Each writes lines to descriptor 3, and ends at the end of descriptor 4, which
// is at the latest when the test has ended. Any of the words can follow one of those that take further words:
//
//	@stay LABEL              say "ready LABEL PID", then "SIGUSR1 LABEL" or "SIGUSR2 LABEL" for a signal, and stay
//	@fork LABEL words...     start words, stay, and say "reaped LABEL" when they end
//	@double words...         start words in a session of its own and end
//	@session words...        make a session
//	@group words...          make a process group
//	@named NAME words...     take a name
//	@headless LABEL          end the first thread and stay
//
// Other words are those of package programs.
func program(words []string) {
	say := func(format string, args ...any) { _, _ = fmt.Fprintf(os.NewFile(3, "said"), format+"\n", args...) }
	must := func(err error) {
		if err != nil {
			say("failed: %v", err)
			os.Exit(1)
		}
	}
	ready := func() { say("ready %s %d", words[1], os.Getpid()) }
	stay := func() {
		_, _ = io.Copy(io.Discard, os.NewFile(4, "until"))
		os.Exit(0)
	}
	start := func(words ...string) *exec.Cmd {
		cmd := command(words...)
		cmd.Stdout, cmd.ExtraFiles = os.Stdout, []*os.File{os.NewFile(3, "said"), os.NewFile(4, "until")}
		must(cmd.Start())
		return cmd
	}
	switch words[0] {
	case "@stay":
		c := make(chan os.Signal, 10)
		signal.Notify(c, unix.SIGUSR1, unix.SIGUSR2)
		ready()
		go stay()
		for sig := range c {
			say("%s %s", unix.SignalName(sig.(syscall.Signal)), words[1])
		}
	case "@fork":
		// This is not the first thread: init locked that one to another goroutine.
		go func() {
			cmd := start(words[2:]...)
			ready()
			go stay()
			_ = cmd.Wait()
			say("reaped %s", words[1])
		}()
		select {}
	case "@double":
		start(append([]string{"@session"}, words[1:]...)...)
		os.Exit(0)
	case "@session":
		_, err := unix.Setsid()
		must(err)
		program(words[1:])
	case "@group":
		must(unix.Setpgid(0, 0))
		program(words[1:])
	case "@named":
		must(os.WriteFile("/proc/self/comm", []byte(words[1]), 0)) // as PR_SET_NAME does for the thread that calls it
		program(words[2:])
	case "@headless":
		go func() {
			for procfs.StatOf(os.Getpid()).State() != 'Z' {
				runtime.Gosched()
			}
			ready()
			stay()
		}()
		// Syscall, unlike RawSyscall, lets the runtime go on without this thread.
		_, _, _ = syscall.Syscall(unix.SYS_EXIT, 0, 0, 0)
	}
	programs.Run(words[0], words[1:])
}

// family is a tree of real processes below this one.
type family struct {
	t     *testing.T
	lines *check.Lines
	ends  []*os.File // of two pipes: processes write to the one, and read from the other
	hold  *os.File   // the other end of the second one
	pids  map[string]int
	cmds  []*exec.Cmd // kept, since one that is forgotten closes its pidfd some day
}

// outside shares this process's standard output, but is no descendant: what a test does must not reach it.
var outside *family

// newFamily is a family that ends with the test, or by end.
func newFamily(t *testing.T) *family {
	t.Helper()
	heard, said, err := os.Pipe()
	until, hold, err2 := os.Pipe()
	check.NoError(t, errors.Join(err, err2))
	f := &family{t, check.NewLines(t, heard), []*os.File{said, until}, hold, map[string]int{}, nil}
	if outside == nil && !inNamespace {
		outside = f
		cmd := command("@double", "@stay", "outside")
		cmd.Stdout = os.Stdout
		outside.start(cmd) // before this process is a subreaper
		return newFamily(t)
	}
	check.NoError(t, unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))
	t.Cleanup(f.end)
	return f
}

// command is a process to start; without more it has no streams.
func command(words ...string) *exec.Cmd { return exec.Command("/proc/self/exe", words...) }

// start starts a process from the first thread, with these files from descriptor 5 on, and waits until it and those below it
// are ready.
func (f *family) start(cmd *exec.Cmd, files ...*os.File) *exec.Cmd {
	f.t.Helper()
	cmd.ExtraFiles = slices.Concat(f.ends, files)
	err := make(chan error)
	onMain <- func() { err <- cmd.Start() }
	check.NoError(f.t, <-err)
	f.cmds = append(f.cmds, cmd)
	for i, word := range cmd.Args {
		switch word {
		case "@double":
			check.NoError(f.t, cmd.Wait())
		case "@stay", "@fork", "@headless":
			for label := cmd.Args[i+1]; f.pids[label] == 0; {
				var who string
				var pid int
				line, _ := f.lines.Next()
				if _, err := fmt.Sscanf(line, "ready %s %d", &who, &pid); err != nil {
					f.t.Fatalf("a process said %q; so far there are %v", line, f.pids)
				}
				f.pids[who] = pid
			}
		}
	}
	return cmd
}

// grow starts a process for each line of words.
func (f *family) grow(lines ...string) {
	f.t.Helper()
	for _, line := range lines {
		f.start(command(strings.Fields(line)...))
	}
}

// allSleep waits until all processes have nothing left to do.
func (f *family) allSleep() {
	f.t.Helper()
	for label, pid := range f.pids {
		check.Until(f.t, label+" sleeps", func() bool { return procfs.Sleeps(pid) })
	}
}

// kill ends the process with this label.
func (f *family) kill(label string) {
	f.t.Helper()
	check.MustKill(f.t, cmp.Or(f.pids[label], 1<<30), unix.SIGKILL) // 0 would stand for this group
}

// end lets every process end, and reaps until none is left: they all come to this subreaper. Nothing has reached the process
// outside.
func (f *family) end() {
	f.t.Helper()
	_ = f.hold.Close()
	for err := error(nil); err != unix.ECHILD; {
		_, err = unix.Wait4(-1, nil, 0, nil)
	}
	for _, file := range f.ends {
		_ = file.Close()
	}
	if outside == nil {
		return
	}
	outside.lines.T = f.t
	check.NoError(f.t, unix.Kill(outside.pids["outside"], unix.SIGUSR2))
	outside.lines.WantNext("SIGUSR2 outside") // SIGUSR1 would be there before this one
}

// zombie is a process that has ended, and whose pid stays until it is reaped.
func (f *family) zombie() Process {
	f.t.Helper()
	pid := f.start(exec.Command("/bin/true")).Process.Pid
	self.AwaitEnd(f.t, pid)
	return Process{Pid: pid, State: 'Z', Threads: 1, Name: "a zombie", kept: &kept{}}
}

// inNamespace says that this process was started by withOwnPids.
var inNamespace = os.Getenv("TEST_IN_NAMESPACE") != ""

// withOwnPids runs body in a process of its own, which is the first one of a PID namespace, with a /proc of the namespace. There
// nobody else takes a pid that the test wants to come again.
func withOwnPids(t *testing.T, body func(t *testing.T)) {
	t.Helper()
	const last = "/proc/sys/kernel/ns_last_pid"
	_, err := os.Stat(last)
	need.That(t, err == nil && os.Getuid() == 0, "root and "+last+" (CONFIG_CHECKPOINT_RESTORE)")
	if inNamespace {
		check.NoError(t, unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
		check.NoError(t, unix.Mount("proc", "/proc", "proc", 0, ""))
		body(t)
		return
	}
	cmd := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), "TEST_IN_NAMESPACE=1", "FINI_MUST_RUN="+surroundings.Asked("FINI_MUST_RUN"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS}
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	need.That(t, err == nil || errors.As(err, &exit), fmt.Sprintf("the right to make a namespace (%v)", err))
	switch text := string(out); {
	case err == nil && strings.Contains(text, "--- SKIP: "):
		t.Skip("SKIPPED, in the process of its own:\n" + text)
	case err != nil || !strings.Contains(text, "--- PASS: "+t.Name()):
		t.Errorf("%v\n%s", err, text)
	default:
		t.Log("\n" + text) // its rows are cases too
	}
}
