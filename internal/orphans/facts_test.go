package orphans

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/seed-126c5d8a/fini/internal/proc"
	"github.com/seed-126c5d8a/fini/internal/tests/check"
	"golang.org/x/sys/unix"
)

func TestDescends(t *testing.T) {
	f := newFamily(t)
	f.grow("@fork parent @fork middle @stay below", "@double @stay daemon")
	tree, childrenOnly := New(), New()
	childrenOnly.childrenOnly = true
	for pid, want := range map[int][2]bool{ // with and without /proc
		f.pids["parent"]: {true, true}, f.pids["daemon"]: {true, true},
		f.pids["middle"]: {true, false}, f.pids["below"]: {true, false},
		os.Getpid(): {}, os.Getppid(): {}, outside.pids["outside"]: {}, 1: {}, 0: {}, -1: {}, 1 << 30: {},
	} {
		got := [2]bool{tree.Descends(pid), childrenOnly.Descends(pid)}
		check.Equal(t, fmt.Sprintf("Descends(%d), with and without /proc", pid), got, want)
	}
}

// Children from before this process became what it is are not of the tree, nor is what they start.
func TestEarlier(t *testing.T) {
	for _, way := range []string{"with pidfds", "no pidfds", "children only"} {
		t.Run(way, func(t *testing.T) {
			childrenOnly := way == "children only"
			f := newFamily(t)
			f.grow("@fork early @stay below")
			tree := New()
			tree.childrenOnly, tree.usePidfds = childrenOnly, way != "no pidfds"
			check.Equal(t, "none is noted: OnlyInherited", tree.OnlyInherited(), false)
			tree.SetInherited([]int{f.pids["early"], 1 << 30, os.Getppid()}, !childrenOnly)
			check.Equal(t, "there is nobody else: OnlyInherited", tree.OnlyInherited(), true)
			f.grow("@stay late")
			check.Equal(t, "there is somebody else: OnlyInherited", tree.OnlyInherited(), false)
			f.find(t, tree, "late")
			// Without /proc every child counts.
			for label, want := range map[string]bool{"early": childrenOnly, "below": false, "late": true} {
				check.Equal(t, "Descends: "+label, tree.Descends(f.pids[label]), want)
			}
			f.mustBe(t, "Kill hit", killed(t, tree.Kill), "late")
			check.NoError(t, errors.Join(unix.Kill(f.pids["early"], 0), unix.Kill(f.pids["below"], 0)))

			// Its pid is another's once it was reaped.
			f.kill("early")
			_, _ = unix.Wait4(f.pids["early"], nil, 0, nil)
			tree.Reaped(f.pids["early"])
			_, noted := tree.inherited[f.pids["early"]]
			check.Equal(t, "one that was reaped is noted", noted, false)
			// What it has left is not of the tree either, but who has that pid with another start is.
			_, found := look(t, tree)[f.pids["below"]]
			check.Equal(t, "Look finds a child of the early one", found && !childrenOnly, false)
		})
	}
}

// The contract of CLONE_AUTOREAP: nobody is told of the end of such an orphan, and its pid is free with it.
func TestAutoreap(t *testing.T) {
	f := newFamily(t)
	cmd := command("@autoreap")
	cmd.Stdin = f.ends[1]
	_ = f.start(cmd).Wait()
	if cmd.ProcessState.ExitCode() != 5 {
		t.Logf("NOT TESTED: Linux %s has no CLONE_AUTOREAP", proc.Release())
		return
	}
	tree := New()
	found := look(t, tree)
	if len(found) != 1 {
		t.Fatalf("found %+v, want the orphan", found)
	}
	for pid, p := range found {
		if p.Parent != os.Getpid() || !tree.autoreap || p.kept.pidfd < 0 {
			t.Errorf("it is signalled by its pid: %+v", p)
		}
		check.NoError(t, tree.Signal(p, unix.SIGKILL))
		for unix.Kill(pid, 0) != unix.ESRCH {
			runtime.Gosched()
		}
		_, err := unix.Wait4(-1, nil, unix.WNOHANG, nil)
		check.Equal(t, "wait4", err, unix.ECHILD)
		check.NoError(t, tree.Signal(p, unix.SIGKILL)) // it has ended, which is no error
		check.Equal(t, "whom KillChildren hits", killed(t, tree.KillChildren), []int(nil))
	}
}

func TestAlive(t *testing.T) {
	alive := func(states string, threads int) (are string) {
		for _, state := range states {
			if (Process{State: byte(state), Threads: threads}).Alive() {
				are += string(state)
			}
		}
		return are
	}
	check.Equal(t, "those alive with one thread", alive("RSDTtIZX", 1), "RSDTtI")
	check.Equal(t, "those alive with none", alive("ZX", 0), "")
	check.Equal(t, "those alive of which only the first thread has ended", alive("Z", 2), "Z")
}

func TestEnviron(t *testing.T) {
	files, dir, long := filesIn(unix.AT_FDCWD), t.TempDir(), strings.Repeat("x", 20000)
	names := []string{"FIRST", "TWICE", "LONG", "EMPTY", "LAST", "NONE"}
	for text, want := range map[string]map[string]string{
		"FIRST=a=b\x00XFIRST=no\x00FIRSTX=no\x00TWICE=1\x00TWICE=2\x00NONE\x00=odd\x00\x00EMPTY=\x00LONG=" + long + "\x00LAST=\xff z\x00": {
			"FIRST": "a=b", "TWICE": "1", "EMPTY": "", "LONG": long[:maxValue], "LAST": "\xff z"},
		strings.Repeat("f="+long+"\x00", 20) + "LAST=is not read\x00": {},
		"": {},
	} {
		check.Put(t, dir+"/environ", text, 0o600)
		if got, err := files.environ(dir, names); err != nil || !maps.Equal(got, want) {
			t.Errorf("%.40q: %.100q, %v", text, got, err)
		}
	}
}
