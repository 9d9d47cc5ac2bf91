// Package deadend has file systems and terminals that never answer, and leftovers that wait for them.
package deadend

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/e2e/rig/pty"
	"github.com/seed-126c5d8a/fini/internal/tests/need"
	"github.com/seed-126c5d8a/fini/internal/tests/procfs"
	"golang.org/x/sys/unix"
)

// A DeadEnd is what a leftover sits on, and the process that serves it until it is stopped.
type DeadEnd struct {
	t       *testing.T
	name    string
	Command []string // makes the leftover, and waits for a line
	server  *exec.Cmd
	given   *os.File       // what the command has as descriptor 4
	master  *os.File       // of a terminal
	Flushed *bufio.Scanner // a line for each close that the server leaves unanswered
	aborted sync.Once
}

func New(t *testing.T, name string) *DeadEnd {
	t.Helper()
	need.Root(t, "to mount a file system")
	e := &DeadEnd{t: t, name: name, Command: rig.Mode("dead-end", name, t.TempDir())}
	if strings.Contains(name, "terminal") {
		e.given, e.master = pty.Open(t)
		return e
	}
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	need.That(t, err == nil, "/dev/fuse (FUSE)")
	e.given = os.NewFile(uintptr(fd), "/dev/fuse")
	e.server = rig.CommandOf(rig.Mode("fuse", name))
	e.server.ExtraFiles = []*os.File{e.given}
	// A test that is killed leaves nobody on this machine waiting: ps(1) too reads command lines.
	e.server.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	flushed, err := e.server.StdoutPipe()
	rig.NoError(t, err)
	e.Flushed = bufio.NewScanner(flushed)
	started, over := make(chan error), make(chan bool)
	go func() {
		runtime.LockOSThread() // the signal comes when the thread that forked has ended, and other tests end theirs
		started <- e.server.Start()
		<-over
	}()
	rig.NoError(t, <-started)
	t.Cleanup(func() { e.Abort(); close(over) })
	return e
}

// Fifo returns a FIFO of the file system, whose server has been stopped since, open for reading and writing. The mount is
// seen by nobody else.
func (e *DeadEnd) Fifo() *os.File {
	e.t.Helper()
	dir, opened, over := e.t.TempDir(), make(chan error), make(chan bool)
	var fd int
	go func() {
		runtime.LockOSThread() // the thread exits with its namespace
		err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS)
		if err == nil {
			err = unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
		}
		if err == nil {
			err = unix.Mount("fini-e2e", dir, "fuse", 0, fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", e.given.Fd()))
		}
		if err == nil {
			fd, err = unix.Open(dir+"/fifo", unix.O_RDWR|unix.O_CLOEXEC, 0)
		}
		opened <- err
		<-over
	}()
	e.t.Cleanup(func() { close(over) })
	rig.NoError(e.t, <-opened)
	fifo := os.NewFile(uintptr(fd), "fifo")
	e.t.Cleanup(func() { _ = fifo.Close() })
	_ = e.given.Close()
	e.Halt()
	return fifo
}

// Halt stops the server, from which nobody gets an answer then.
func (e *DeadEnd) Halt() {
	e.t.Helper()
	rig.NoError(e.t, e.server.Process.Signal(syscall.SIGSTOP))
	rig.Until(e.t, "the server is stopped", func() bool { return strings.HasPrefix(procfs.Status(e.server.Process.Pid, "State"), "T") })
}

// Start starts a fini with the command.
func (e *DeadEnd) Start(fini *exec.Cmd) *rig.Life {
	e.t.Helper()
	fini.ExtraFiles = []*os.File{e.given}
	l := rig.StartCmd(e.t, fini)
	_ = e.given.Close()
	e.t.Cleanup(e.Abort) // before it is waited for fini
	return l
}

// Stop stops the server once the leftover of the command of a fini is ready for that.
func (e *DeadEnd) Stop(l *rig.Life, fini int, waits bool) (leftover int) {
	e.t.Helper()
	main := procfs.ChildrenOf(e.t, fini)[0]
	leftover = procfs.ChildrenOf(e.t, main)[0]
	if e.name == "executable" {
		rig.Until(e.t, "the program runs", func() bool {
			return procfs.Status(leftover, "Name") == "program" && strings.HasPrefix(procfs.Status(leftover, "State"), "S")
		})
	}
	if e.server != nil {
		e.Halt()
	}
	if e.name == "terminal that hung up" {
		_ = e.master.Close()
	}
	rig.Write(e.t, l, "go on\n")
	if waits {
		rig.Until(e.t, "the leftover waits", func() bool {
			states, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", leftover))
			for _, thread := range states {
				text, _ := os.ReadFile(thread + "/wchan")
				for _, at := range []string{"folio_wait_bit", "wait_on_page_bit", "__lock_page", "request_wait_answer", "wait_woken"} {
					if strings.HasPrefix(string(text), at) { // a compiler may append to a function's name
						return true
					}
				}
			}
			return err != nil
		})
	}
	return leftover
}

// Abort ends the server, with which the kernel fails all that waits for it.
func (e *DeadEnd) Abort() {
	e.aborted.Do(func() {
		if e.server != nil {
			_ = e.server.Process.Kill()
			_ = e.server.Wait()
		}
	})
}
