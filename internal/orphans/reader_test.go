package orphans

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/seed-126c5d8a/fini/internal/tests/check"
	"github.com/seed-126c5d8a/fini/internal/tests/self"
	"golang.org/x/sys/unix"
)

// A fakeProc is a directory that looks like a /proc in which some files wait: they are FIFOs.
type fakeProc struct {
	t   *testing.T
	dir string
}

func newFakeProc(t *testing.T) (f fakeProc, tree *Tree) {
	t.Helper()
	f = fakeProc{t, t.TempDir()}
	tree = New()
	tree.Dir, tree.byChildren, tree.streams = int(self.Open(t, f.dir, os.O_RDONLY).Fd()), true, [2]stream{}
	return f, tree
}

// children are some of this process's that are there, whatever the fake says of them.
func (f fakeProc) children(n int) (pids []int) {
	f.t.Helper()
	for range n {
		pid := check.Bystander(f.t).Process.Pid
		f.put(pid, "task/"+strconv.Itoa(pid)+"/children", "")
		f.put(pid, "status", statusOf(pid, os.Getpid(), "some", "S (sleeping)", 16, 1))
		f.put(pid, "stat", fmt.Sprintf("%d (some) S 7 8 9 34816 8 4194304 220 0 0 0 1 2 0 0 20 0 3 0 4711 5660672 256\n", pid))
		pids = append(pids, pid)
	}
	f.listed(pids...)
	return pids
}

// listed makes these the children of this process.
func (f fakeProc) listed(pids ...int) {
	f.t.Helper()
	f.put(os.Getpid(), "task/"+strconv.Itoa(os.Getpid())+"/children", strings.Trim(fmt.Sprint(pids), "[]")+" ")
}

func statusOf(pid, parent int, name, state string, code, threads int) string {
	return fmt.Sprintf("Name:\t%s\nState:\t%s\nTgid:\t%d\nPPid:\t%d\nUid:\t1\t2\t3\t4\nGid:\t1\t2\t3\t4\nVmExe:\t%8d kB\nThreads:\t%d\n",
		name, state, pid, parent, code, threads)
}

func (f fakeProc) put(pid int, name, text string) (path string) {
	f.t.Helper()
	return check.Put(f.t, filepath.Join(f.dir, strconv.Itoa(pid), name), text, 0o600)
}

func (f fakeProc) fifo(pid int, name string) (path string) {
	f.t.Helper()
	path = filepath.Join(f.dir, strconv.Itoa(pid), name)
	_ = os.Remove(path)
	check.NoError(f.t, unix.Mkfifo(path, 0o600))
	return path
}

// holdUp makes a file one that holds up its reader until this end of it is closed.
func (f fakeProc) holdUp(pid int, name string) (end *os.File) {
	f.t.Helper()
	return self.Open(f.t, f.fifo(pid, name), os.O_RDWR)
}

// whileRead gives a file this text, and does something before its reader gets to the end of it. The function that it returns
// waits until that was done.
func (f fakeProc) whileRead(pid int, name, text string, do func() error) (wait func()) {
	f.t.Helper()
	path, done := f.fifo(pid, name), make(chan error, 1)
	go func() {
		w, err := os.OpenFile(path, os.O_WRONLY, 0) // waits for who reads it
		_, err2 := w.WriteString(text)
		done <- errors.Join(err, err2, do(), w.Close())
	}()
	return func() {
		f.t.Helper()
		self.Open(f.t, path, os.O_RDONLY|unix.O_NONBLOCK) // or, if nobody has read it, nothing would end the wait
		check.NoError(f.t, <-done)
	}
}

// A process that holds the reader is found, with all but its details, and so are those behind it, and those of the
// next looks. When the reader is back it tells of all but the one that held it.
func TestReaderIsHeld(t *testing.T) {
	proc, tree := newFakeProc(t)
	pids := proc.children(3)
	end := proc.holdUp(pids[1], "stat")
	told := func(found map[int]Process) (told []bool) {
		for _, pid := range pids {
			p := found[pid]
			if p.State != 'S' || p.Name != "some" || p.Parent != os.Getpid() || p.User != 2 || p.PGID != unix.Getpgrp() {
				t.Errorf("found %+v", p)
			}
			told = append(told, p.Start != 0)
		}
		return told
	}
	for range 2 {
		check.Equal(t, "of whom the reader tells", told(look(t, tree)), []bool{true, false, false})
	}
	check.Equal(t, "the last one", tree.CommandLine(look(t, tree)[pids[2]]), "some")
	check.NoError(t, end.Close())
	check.Until(t, "the reader is back", func() bool { return !tree.reader.busy.Load() })
	check.Equal(t, "of whom it tells when it is back", told(look(t, tree)), []bool{true, false, true})
}

// One that is in uninterruptible sleep at the first look, as many are for a moment, has its details read soon after.
func TestDetailsAreReadAgain(t *testing.T) {
	proc, tree := newFakeProc(t)
	pid := proc.children(1)[0]
	proc.put(pid, "environ", "A=b\x00")
	later := proc.put(pid, "later", statusOf(pid, os.Getpid(), "some", "S (sleeping)", 16, 1))
	thread := "task/" + strconv.Itoa(pid) + "/status"
	wait := proc.whileRead(pid, thread, statusOf(pid, os.Getpid(), "some", "D (disk sleep)", 16, 1), func() error {
		return os.Rename(later, filepath.Join(filepath.Dir(later), thread))
	})
	check.Equal(t, "its variables", tree.Details(look(t, tree)[pid], []string{"A"}).Variables, map[string]string{"A": "b"})
	wait()
}

// One that was in uninterruptible sleep when the walk passed it is asked in the same look, if it no longer is.
func TestBrieflyStuckIsAsked(t *testing.T) {
	proc, tree := newFakeProc(t)
	proc.children(2)
	found := tree.walk()
	found[0].State = 'D' // what its status says now is what it says from the second try on
	tree.askFacts(found)
	for _, p := range found {
		check.Equal(t, "it is asked", p.Start > 0 && p.State == 'S', true)
	}
}

// A process that executes another script by the same program shows that by its command line alone.
func TestCommandLineIsReadAgain(t *testing.T) {
	proc, tree := newFakeProc(t)
	pid := proc.children(1)[0]
	for _, c := range [][2]string{{"sh\x00a\x00", "sh a"}, {"sh\x00b\x00", "sh b"}, {"", "sh b"}} { // the last time it exits
		proc.put(pid, "cmdline", c[0])
		check.Equal(t, "its command line", tree.CommandLine(look(t, tree)[pid]), c[1])
	}
}

// Facts are read once: again only if the process has executed another program, or if which streams it holds decides, and
// not at all for the first time after it was signalled, because the caller has named it by then. One that would hold the
// reader, as its status shows, is not asked.
func TestFactsAreReadAgain(t *testing.T) {
	const some, stuck = "S (sleeping)", "D (disk sleep)"
	for name, c := range map[string]struct {
		first     string // its state in the first look, which reads nothing of a process that is stuck
		code      int    // the size of its program in the first look, 0 inside execve(2)
		signalled bool
		pipes     bool
		program   string
		codeNow   int
		want      bool
	}{
		"the same program":                    {some, 16, false, false, "some", 16, false},
		"the same program, signalled":         {some, 16, true, false, "some", 16, false},
		"another name":                        {some, 16, false, false, "other", 16, true},
		"another size":                        {some, 16, false, false, "some", 20, true},
		"another name, signalled":             {some, 16, true, false, "other", 16, true},
		"only holders are stopped":            {some, 16, false, true, "some", 16, true},
		"it was stuck":                        {stuck, 16, false, false, "some", 16, true},
		"it was stuck, and was signalled":     {stuck, 16, true, false, "some", 16, false},
		"it was stuck, and holders are asked": {stuck, 16, true, true, "some", 16, false},
		"it was inside execve":                {some, 0, false, false, "some", 16, true},
	} {
		t.Run(name, func(t *testing.T) {
			proc, tree := newFakeProc(t)
			tree.Pipes = c.pipes
			pids := proc.children(2)
			pid := pids[0]
			proc.put(pid, "status", statusOf(pid, os.Getpid(), "some", c.first, c.code, 1))
			found := look(t, tree)
			p, asked := found[pid], c.first == some && c.code > 0
			if p.Start == 0 == asked || found[pids[1]].Start == 0 {
				t.Fatalf("the first look finds %+v", found)
			}
			if c.signalled {
				check.NoError(t, tree.Signal(p, 0))
			}
			proc.put(pid, "status", statusOf(pid, os.Getpid(), c.program, some, c.codeNow, 1))
			proc.listed(pid)
			before := tree.reader.steps.Load()
			look(t, tree)
			check.Equal(t, "the second look reads facts", tree.reader.steps.Load() > before, c.want)
		})
	}
}

// One of whose two threads the first has ended is in the other's state: what would have to wait for that is not read.
func TestOneThreadIsLeft(t *testing.T) {
	proc, tree := newFakeProc(t)
	pid := proc.children(1)[0]
	proc.put(pid, "status", statusOf(pid, os.Getpid(), "some", "Z (zombie)", 0, 2))
	proc.put(pid, "task/7/status", statusOf(pid, os.Getpid(), "some", "D (disk sleep)", 16, 2))
	proc.put(pid, "task/7/cmdline", "not read")
	tree.streams = [2]stream{"pipe:[1]", "pipe:[2]"}
	if p := look(t, tree)[pid]; p.State != 'D' || p.thread != 7 || p.Holds.May() != both || tree.CommandLine(p) != "some" {
		t.Errorf("found %+v", p)
	}
}

// Where the kernel lists no children, nothing of a stranger is read that may have to be waited for.
func TestStrangerIsNotWaitedFor(t *testing.T) {
	proc, tree := newFakeProc(t)
	tree.byChildren = false
	pids := proc.children(2)
	proc.put(pids[1], "status", statusOf(pids[1], pids[0], "some", "S (sleeping)", 16, 1))
	proc.put(1, "status", statusOf(1, 0, "some", "S (sleeping)", 16, 1))
	proc.holdUp(1, "stat")
	if found := look(t, tree); len(found) != 2 || found[pids[1]].Parent != pids[0] {
		t.Errorf("found %+v", found)
	}
}

// A walk that could not read everything may have missed a process.
func TestUnreadableIsMissed(t *testing.T) {
	proc, tree := newFakeProc(t)
	tree.byChildren = false
	path := proc.put(proc.children(2)[0], "status", "")
	check.NoError(t, errors.Join(os.Remove(path), os.Symlink(path, path)))
	tree.walk()
	check.Equal(t, "one may be missed", tree.missed, true)
}

// A look is still if nobody came or went meanwhile: what a process that ends has left is not missed then.
func TestStill(t *testing.T) {
	proc, tree := newFakeProc(t)
	pids := proc.children(2)
	if view := tree.Look(); view.Complete {
		t.Errorf("nobody has asked: %+v", view)
	}
	tree.Pipes = true
	if view := tree.Look(); !view.Complete {
		t.Errorf("nobody came or went: %+v", view)
	}
	// Another comes while the reader reads.
	wait := proc.whileRead(pids[1], "stat", "", func() error {
		proc.listed(pids[0], pids[1], 1)
		return nil
	})
	if view := tree.Look(); view.Complete || len(view.Found) != 2 {
		t.Errorf("one came: %+v", view)
	}
	wait()
}
