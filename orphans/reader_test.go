package orphans

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// A fakeProc is a directory that looks like a /proc in which some files wait: they are FIFOs that nobody writes.
type fakeProc struct {
	t   *testing.T
	dir string
}

func newFakeProc(t *testing.T) (f fakeProc, tree *Tree) {
	t.Helper()
	f = fakeProc{t, t.TempDir()}
	fd, err := unix.Open(f.dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	check(t, err)
	// A FIFO may be waited for in any state, and here nothing else is to be waited for.
	readers.ticks = 2
	tree = New()
	tree.proc, tree.byChildren, tree.maxPidfds, tree.streams = fd, true, 10, [2]stream{}
	return f, tree
}

// child is one of this process's that is there, whatever the fake says of it.
func (f fakeProc) child() (pid int) {
	f.t.Helper()
	cmd := exec.Command("sleep", "1000")
	check(f.t, cmd.Start())
	f.t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return cmd.Process.Pid
}

func (f fakeProc) put(pid int, name, text string) {
	f.t.Helper()
	path := filepath.Join(f.dir, strconv.Itoa(pid), name)
	check(f.t, os.MkdirAll(filepath.Dir(path), 0o755))
	check(f.t, os.WriteFile(path, []byte(text), 0o600))
}

// wait makes a file one that waits; the function ends that.
func (f fakeProc) wait(pid int, name string) (end func()) {
	f.t.Helper()
	path := filepath.Join(f.dir, strconv.Itoa(pid), name)
	check(f.t, os.MkdirAll(filepath.Dir(path), 0o755))
	_ = os.Remove(path)
	check(f.t, unix.Mkfifo(path, 0o600))
	return func() {
		if w, err := os.OpenFile(path, os.O_WRONLY|unix.O_NONBLOCK, 0); err == nil {
			_ = w.Close()
		}
	}
}

func statText(pid, parent int) string {
	return strconv.Itoa(pid) + " (some) S " + strconv.Itoa(parent) + " 7 7 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 4711 0 0\n"
}

// A process whose files wait is found, as one of which nothing else is known, beside the others; and so are
// its children. With too many of them nothing is read, until one of the readers comes back.
func TestReaderIsLeftBehind(t *testing.T) {
	for _, timer := range []bool{true, false} {
		t.Run("timer="+strconv.FormatBool(timer), func(t *testing.T) {
			alone(t, nil, func(t *testing.T) {
				if !timer {
					readers.once.Do(func() {})
					go readers.watchdog(readers.timer)
				}
				proc, tree := newFakeProc(t)
				self, stuck, below, well := os.Getpid(), proc.child(), proc.child(), proc.child()
				proc.put(self, "task/"+strconv.Itoa(self)+"/children", strconv.Itoa(stuck)+" "+strconv.Itoa(well)+" ")
				proc.put(stuck, "task/"+strconv.Itoa(stuck)+"/children", strconv.Itoa(below)+" ")
				proc.put(below, "task/"+strconv.Itoa(below)+"/children", "")
				proc.put(well, "task/"+strconv.Itoa(well)+"/children", "")
				proc.put(stuck, "comm", "hangs\n")
				proc.put(below, "stat", statText(below, stuck))
				proc.put(well, "stat", statText(well, self))
				end := proc.wait(stuck, "stat")

				found := look(t, tree)
				if p := found[stuck]; p.State != '?' || p.Name != "hangs" || p.Parent != self || !p.Alive() {
					t.Errorf("the stuck one is %+v", p)
				}
				if found[below].Parent != stuck || found[well].Name != "some" || len(found) != 3 {
					t.Errorf("found %+v", found)
				}
				if lost := readers.lost.Load(); lost != 1 {
					t.Errorf("%d readers were left behind, want 1", lost)
				}
				if got := tree.CommandLine(found[stuck]); got != "hangs" {
					t.Errorf("the stuck one is called %q", got)
				}

				endWell := proc.wait(well, "stat")
				if found := look(t, tree); len(found) != 3 && readers.lost.Load() < mostLost {
					t.Errorf("found %+v", found)
				}
				if lost := readers.lost.Load(); lost != mostLost {
					t.Errorf("%d readers were left behind, want %d", lost, mostLost)
				}
				if found := look(t, tree); found[stuck].State != '?' || found[well].State != '?' || found[below].State != '?' {
					t.Errorf("without a reader these were found: %+v", found)
				}
				tree.Reaped(stuck)
				if tree.stuck[stuck] != 0 || tree.stuck[well] == 0 {
					t.Errorf("stuck are %v", tree.stuck)
				}
				end()
				endWell()
				for readers.lost.Load() != 0 {
					end()
					endWell()
				}
				if p := look(t, tree)[stuck]; p.State != '?' {
					t.Errorf("it is back, and %+v", p)
				}
			})
		})
	}
}

// Where the kernel lists no children, nothing of a stranger is read that may have to be waited for.
func TestStrangerIsNotWaitedFor(t *testing.T) {
	alone(t, nil, func(t *testing.T) {
		proc, tree := newFakeProc(t)
		tree.byChildren = false
		self, well, below, stranger := os.Getpid(), proc.child(), proc.child(), 1
		for pid, parent := range map[int]int{well: self, below: well, stranger: 0} {
			proc.put(pid, "status", "Name:\tsome\nState:\tS (sleeping)\nPPid:\t"+strconv.Itoa(parent)+"\nTracerPid:\t0\n")
			proc.put(pid, "stat", statText(pid, parent))
		}
		defer proc.wait(stranger, "stat")()
		if found := look(t, tree); len(found) != 2 || found[below].Parent != well || found[well].Name != "some" {
			t.Errorf("found %+v", found)
		}
		if lost := readers.lost.Load(); lost != 0 {
			t.Errorf("%d readers were left behind", lost)
		}
	})
}

func TestWaits(t *testing.T) {
	if waits(1 << 30) {
		t.Error("a thread that is not there waits")
	}
	if waits(unix.Gettid()) {
		t.Error("a thread that runs waits")
	}
}

// Once a reader was left behind, the looks that follow need no more threads, also on a busy machine: the table of
// processes may be full.
func TestLooksNeedNoMoreThreads(t *testing.T) {
	alone(t, nil, func(t *testing.T) {
		runtime.GOMAXPROCS(1)
		runtime.LockOSThread()
		proc, tree := newFakeProc(t)
		stuck := proc.child()
		proc.put(os.Getpid(), "task/"+strconv.Itoa(os.Getpid())+"/children", strconv.Itoa(stuck)+" ")
		end := proc.wait(stuck, "stat")
		tree.OnLost = func() {}
		look(t, tree)
		if lost := readers.lost.Load(); lost != 1 {
			t.Fatalf("%d readers were left behind", lost)
		}
		for range 3 * runtime.NumCPU() {
			busy := exec.Command("/bin/sh", "-c", "while :; do :; done")
			check(t, busy.Start())
			defer func() { _ = busy.Process.Kill(); _ = busy.Wait() }()
		}
		threads := func() int {
			entries, err := os.ReadDir("/proc/self/task")
			check(t, err)
			return len(entries)
		}
		before := threads()
		for range 3000 {
			look(t, tree)
		}
		if after := threads(); after > before+1 { // one while another is coming to rest
			t.Errorf("%d threads before, %d after", before, after)
		}
		end()
	})
}
