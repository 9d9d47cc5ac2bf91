package rig

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/seed-126c5d8a/fini/internal/tests/check"
	"github.com/seed-126c5d8a/fini/internal/tests/procfs"
)

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
	NoError(t, cmd.Start())
	for _, f := range []*os.File{outW, errW, inR, witW} {
		_ = f.Close()
	}
	l.Out, l.Err = NewLines(t, outR), NewLines(t, errR)
	l.Out.Beside = l.Err
	t.Cleanup(func() {
		_ = inW.Close()
		_ = cmd.Process.Kill()
		l.Wait()
		if t.Failed() {
			l.killSurvivors()
		}
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

// Worker is the pid of the fini whose main child is the command: the inner one of a
// pair.
func (l *Life) Worker() int {
	l.T.Helper()
	pid := l.PID()
	var children []int
	Until(l.T, "fini's child", func() bool {
		children = procfs.ChildrenOf(l.T, pid)
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
		fini, _ := os.Readlink(fmt.Sprintf("/proc/%s/exe", procfs.Status(pid, "PPid")))
		ignored := procfs.Status(pid, "SigIgn")
		inner = own != "" && own == fini && (procfs.MaskHas(ignored, 33) || ignored == "") // gVisor shows no mask
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
	if procfs.Status(os.Getpid(), "SigIgn") == "" {
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
		if _, mask, ok := strings.Cut(string(text), "sigmask:\t"); ok && procfs.MaskHas(strings.TrimSpace(mask), syscall.SIGUSR1) {
			return true
		}
	}
	return procfs.MaskHas(procfs.Status(pid, "SigIgn"), 33)
}

// Status waits for fini's end and returns its exit status as a shell gives it.
func (l *Life) Status() int {
	l.T.Helper()
	ended := make(chan struct{})
	go func() { l.Wait(); close(ended) }()
	if !check.Closed(ended) {
		l.T.Fatalf("fini %d has not ended; its stderr: %s", l.PID(), l.Err.Text())
	}
	return procfs.ShellStatus(l.Cmd.ProcessState)
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
		l.T.Errorf("fini is gone and of its tree %v is alive, and is killed now; stderr: %s", holders(l.Witness), l.Err.Text())
		l.killSurvivors()
	}
}

// killSurvivors kills what a failed test has left, which would otherwise keep its streams open, and run on.
func (l *Life) killSurvivors() {
	_ = Await(Enough, func() bool {
		for _, pid := range holders(l.Witness) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		return HungUp(l.Witness)
	})
}

// HeldOpen reports whether a process that is no child of this one has the other end of a pipe open. A
// child has it if a test beside this one is starting that: execve(2) lets go of its parent, and so of the
// lock, before it closes what is close-on-exec; and in a user namespace the lock is let go of even sooner.
func HeldOpen(f *os.File) bool {
	if HungUp(f) {
		return false
	}
	return len(holders(f)) > 0 || !Await(Enough, func() bool { return HungUp(f) })
}

// holders are the processes that HeldOpen asks for.
func holders(f *os.File) (pids []int) {
	link, _ := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
	links, _ := filepath.Glob("/proc/[0-9]*/fd/*")
	for _, name := range links {
		pid, _ := strconv.Atoi(strings.Split(name, "/")[2])
		if pid == os.Getpid() || procfs.StatOf(pid).Number(4) == os.Getpid() {
			continue
		}
		if to, _ := os.Readlink(name); to == link {
			pids = append(pids, pid)
		}
	}
	return pids
}

func Write(t testing.TB, l *Life, text string) {
	t.Helper()
	if _, err := l.Stdin.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
}

// Ask runs fini to its end and returns its status, stdout and stderr.
func Ask(t testing.TB, cmd *exec.Cmd) (status int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	Complete(t, cmd)
	return procfs.ShellStatus(cmd.ProcessState), out.String(), errs.String()
}
