package orphans

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/seed-126c5d8a/fini/internal/calls"
	"github.com/seed-126c5d8a/fini/internal/proc"
	"github.com/seed-126c5d8a/fini/internal/tests/check"
	"github.com/seed-126c5d8a/fini/internal/tests/need"
	"github.com/seed-126c5d8a/fini/internal/tests/procfs"
	"github.com/seed-126c5d8a/fini/internal/tests/self"
	"golang.org/x/sys/unix"
)

// ways runs a test in each of the ways in which a Tree can look and signal.
func ways(t *testing.T, test func(t *testing.T, tree *Tree)) {
	t.Helper()
	for way := range 8 {
		byChildren, pidfds, autoreap := way&4 == 0, way&2 == 0, way&1 == 0
		t.Run(fmt.Sprintf("children=%t,pidfds=%t,autoreap=%t", byChildren, pidfds, autoreap), func(t *testing.T) {
			tree := New()
			tree.prepare()
			need.That(t, tree.byChildren, "/proc/PID/task/TID/children (CONFIG_PROC_CHILDREN)")
			fd, err := unix.PidfdOpen(os.Getpid(), 0)
			need.That(t, err == nil, "pidfd_open(2)")
			_ = unix.Close(fd)
			tree.byChildren, tree.usePidfds, tree.autoreap = byChildren, pidfds, autoreap
			test(t, tree)
			way := [3]bool{tree.byChildren, tree.usePidfds, tree.autoreap}
			check.Equal(t, "the way in which it looked", way, [3]bool{byChildren, pidfds, autoreap})
			tree.release()
			_ = unix.Close(tree.Dir)
		})
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
	view := tree.Look()
	found := map[int]Process{}
	for _, p := range view.Found {
		_, twice := found[p.Pid]
		if _, ok := found[p.Parent]; twice || !ok && p.Parent != os.Getpid() {
			t.Errorf("%d was found twice, or before its parent: %+v", p.Pid, view.Found)
		}
		found[p.Pid] = p
	}
	return found
}

// find returns what a look finds, by label: it has to be the processes with these labels, or without labels everybody.
func (f *family) find(t *testing.T, tree *Tree, labels ...string) map[string]Process {
	t.Helper()
	if labels == nil {
		labels = slices.Collect(maps.Keys(f.pids))
	}
	all, found := look(t, tree), map[string]Process{}
	f.mustBe(t, "found", slices.Collect(maps.Keys(all)), labels...)
	for _, label := range labels {
		found[label] = all[f.pids[label]]
	}
	return found
}

// killed returns whom a way to kill hits. It has to be refused nobody.
func killed(t *testing.T, kill func() (hit, refused []int)) []int {
	t.Helper()
	hit, refused := kill()
	check.Equal(t, "who refuses it", append([]int{}, refused...), []int{})
	return hit
}

// mustBe asserts that these are the pids of the processes with these labels, and of no other.
func (f *family) mustBe(t *testing.T, what string, pids []int, labels ...string) {
	t.Helper()
	want := f.pidsOf(labels)
	slices.Sort(want)
	if slices.Sort(pids); !slices.Equal(pids, want) {
		t.Fatalf("%s: %v, want %v: %q of %v", what, pids, want, labels, f.pids) // what follows is about these processes
	}
}

func (f *family) pidsOf(labels []string) (pids []int) {
	for _, label := range labels {
		pids = append(pids, f.pids[label])
	}
	return pids
}

func TestLook(t *testing.T) {
	f := newFamily(t)
	before := calls.Uptime()
	const name = "a\nb\\) Z 1 1 1\xff"
	f.start(command("@named", name, "@stay", "named"))
	f.grow("@stay child", "@session @stay session", "@group @stay group", "@fork parent @fork middle @stay grandchild",
		"@double @stay daemon", "@headless headless")
	after := calls.Uptime()
	f.zombie() // which is not alive
	self, ownGroup := os.Getpid(), unix.Getpgrp()
	ownSession, err := unix.Getsid(0)
	check.NoError(t, err)

	ways(t, func(t *testing.T, tree *Tree) {
		found := f.find(t, tree)
		for label, want := range map[string][3]int{
			"child":      {self, ownGroup, ownSession},
			"session":    {self, f.pids["session"], f.pids["session"]},
			"group":      {self, f.pids["group"], ownSession},
			"parent":     {self, ownGroup, ownSession},
			"middle":     {f.pids["parent"], ownGroup, ownSession},
			"grandchild": {f.pids["middle"], ownGroup, ownSession},
			"daemon":     {self, f.pids["daemon"], f.pids["daemon"]},
		} {
			p := found[label]
			check.Equal(t, label+": its parent, group and session", [3]int{p.Parent, p.PGID, p.Session}, want)
			if p.Start < before-proc.Tick || p.Start > after || p.Threads < 2 {
				t.Errorf("%s started between %v and %v, and has several threads: %+v", label, before, after, p)
			}
		}
		if p := found["headless"]; p.State == 'Z' || p.thread == p.Pid || p.Threads < 2 {
			t.Errorf("the process without its first thread: %+v", p)
		}
		check.Equal(t, "the name", found["named"].Name, name)
		tree.release()
		before := procfs.CountFDs(t, self)
		for range 20 {
			f.find(t, tree)
		}
		tree.release()
		check.Equal(t, "how many descriptors 20 looks have left open", max(procfs.CountFDs(t, self)-before, 0), 0)
	})
}

// treeOf is a Tree for a process with these standard streams, nil for closed ones.
func treeOf(t *testing.T, stdout, stderr *os.File) *Tree {
	t.Helper()
	defer self.PutAt(t, 1, stdout)()
	defer self.PutAt(t, 2, stderr)()
	return New()
}

func TestHolds(t *testing.T) {
	f := newFamily(t)
	again := func(file *os.File, mode int) *os.File {
		return self.Open(t, fmt.Sprintf("/proc/self/fd/%d", file.Fd()), mode)
	}
	outR, outW := check.Pipe(t)
	_, errW := check.Pipe(t)
	_, otherW := check.Pipe(t)
	near, far := check.Socketpair(t)
	null, file := self.Open(t, os.DevNull, os.O_RDWR), self.Open(t, filepath.Join(t.TempDir(), "log"), os.O_RDWR|os.O_CREATE)
	named := filepath.Join(t.TempDir(), "fifo")
	check.NoError(t, unix.Mkfifo(named, 0o600))
	fifo := self.Open(t, named, os.O_RDWR)
	for label, files := range map[string][]*os.File{
		"none":                 nil,
		"stdout":               {outW},
		"stderr":               {errW},
		"both":                 {outW, errW},
		"reader":               {outR},
		"reader-and-writer":    {outR, outW},
		"many":                 {null, otherW, outR, file, outW, null},
		"opened-for-both":      {again(outR, unix.O_RDWR)},
		"opened-for-reading":   {again(outW, unix.O_RDONLY|unix.O_NONBLOCK)},
		"reference":            {again(outW, unix.O_PATH)},
		"socket":               {near},
		"both-ends-of-socket":  {near, far},
		"the-null-device":      {null},
		"log":                  {file},
		"fifo":                 {fifo},
		"reader-of-one,writes": {outR, errW},
	} {
		f.start(command("@stay", label), files...)
	}
	// The descriptors of a process whose first thread has ended are no longer to be seen where its others are.
	f.start(command("@headless", "headless"), outW)

	type holders map[string]Streams // the rest hold nothing
	onlyStderr := holders{"stderr": Stderr, "both": Stderr, "reader-of-one,writes": Stderr}
	for what, c := range map[string]struct {
		stdout, stderr *os.File
		want           holders
	}{
		"two pipes": {outW, errW, holders{
			"stdout": Stdout, "stderr": Stderr, "both": Stdout | Stderr, "reader-and-writer": Stdout,
			"many": Stdout, "opened-for-both": Stdout, "reader-of-one,writes": Stderr, "headless": Stdout,
		}},
		"one pipe for both": {errW, errW, holders{
			"stderr": Stdout | Stderr, "both": Stdout | Stderr, "reader-of-one,writes": Stdout | Stderr,
		}},
		"a pipe and a file": {file, errW, onlyStderr},
		"a closed stdout":   {nil, errW, onlyStderr},
		"a socket":          {near, null, holders{"socket": Stdout, "both-ends-of-socket": Stdout}},
		"a named pipe":      {fifo, null, holders{"fifo": Stdout}},
		"the null device":   {null, null, nil},
		"a file":            {file, file, nil},
		"closed streams":    {nil, nil, nil},
	} {
		for label, p := range f.find(t, treeOf(t, c.stdout, c.stderr)) {
			check.Equal(t, what+": what is held by "+label, p.Holds, Holds(c.want[label]))
		}
	}
	// Each process may hold a pipe without a name.
	tree := New()
	tree.streams = [2]stream{unreadable, ""}
	for _, p := range look(t, tree) {
		held, known := p.Holds.Held()
		check.Equal(t, "what is held, and whether more may be", fmt.Sprint(held, known, p.Holds.May()), fmt.Sprint(0, false, Stdout))
	}
	if held, known := (Holding{}).Held(); held != 0 || known {
		t.Errorf("of what nobody has asked is known: %v, %t", held, known)
	}
}

// A signal reaches the process that was found, and no other. It is no error if that one has ended since.
func TestSignalReachesExactlyOne(t *testing.T) {
	ways(t, func(t *testing.T, tree *Tree) {
		f := newFamily(t)
		f.grow("@stay first", "@stay second", "@fork parent @stay below", "@double @stay daemon")
		all, found := []string{"first", "second", "below", "daemon"}, map[string]Process{}
		for _, target := range all {
			found = f.find(t, tree)
			check.NoError(t, tree.Signal(found[target], unix.SIGUSR1))
			f.lines.WantNext("SIGUSR1 " + target)
			// SIGUSR1 would be there before SIGUSR2.
			for _, l := range all {
				check.NoError(t, tree.Signal(found[l], unix.SIGUSR2))
				f.lines.WantNext("SIGUSR2 " + l)
			}
		}
		f.kill("first")
		f.kill("below")
		f.lines.WantNext("reaped parent")
		for _, when := range []string{"a zombie", "reaped"} {
			for _, label := range []string{"first", "below"} {
				check.Equal(t, label+", "+when, tree.Signal(found[label], unix.SIGTERM), nil)
			}
			_, _ = unix.Wait4(f.pids["first"], nil, 0, nil)
		}
	})
}

// A pid that became another process's names a process that nobody meant, and what was found out about the one is not taken
// for a fact about the other.
func TestSignalSparesRecycledPid(t *testing.T) {
	withOwnPids(t, func(t *testing.T) {
		ways(t, func(t *testing.T, tree *Tree) {
			for _, label := range []string{"child", "below"} {
				f, old := comesAgain(t, label, tree)
				if label == "child" || tree.usePidfds { // else what has the pid now is a child of this process, and so of the tree
					check.NoError(t, tree.Signal(old, unix.SIGUSR1))
					// SIGUSR1 would be there before SIGUSR2.
					check.NoError(t, unix.Kill(old.Pid, unix.SIGUSR2))
					f.lines.WantNext("SIGUSR2 other")
				}
				if now, found := look(t, tree)[old.Pid]; !found || now.kept == old.kept {
					t.Errorf("found %t, %+v, want another process than %+v", found, now, old)
				}
				f.end()
			}
		})
	})
}

// comesAgain ends a process that a look has found, which is a child or below one, and starts another with its pid. It takes some
// tries, because a thread of this process or of another may get the pid first.
func comesAgain(t *testing.T, label string, tree *Tree) (f *family, old Process) {
	t.Helper()
	check.Until(t, "the pid of "+label+" comes again", func() bool {
		f = newFamily(t)
		f.grow("@fork parent @stay below", "@stay child")
		old = f.find(t, tree)[label]
		f.kill(label)
		if label == "child" {
			_, _ = unix.Wait4(old.Pid, nil, 0, nil)
			tree.Reaped(old.Pid)
		} else {
			f.lines.WantNext("reaped parent")
		}
		// The start tells two processes of one pid apart, to the tick.
		for calls.Uptime() < old.Start+2*proc.Tick {
			runtime.Gosched()
		}
		onMain <- func() { _ = os.WriteFile("/proc/sys/kernel/ns_last_pid", fmt.Append(nil, old.Pid-1), 0) }
		if f.start(command("@stay", "other")).Process.Pid == old.Pid {
			return true
		}
		f.end()
		return false
	})
	return f, old
}

// A process is taken for a child of one that may have been reaped since, and whose pid may be another's, only if it
// has come to be this process's own.
func TestVerify(t *testing.T) {
	f := newFamily(t)
	f.grow("@fork parent @stay below", "@stay child")
	ended := f.zombie().Pid
	reaped, err := unix.PidfdOpen(ended, 0)
	need.That(t, err == nil, "pidfd_open(2)")
	_, _ = unix.Wait4(ended, nil, 0, nil)
	tree := New()
	tree.prepare()
	parent := Process{Pid: f.pids["parent"], Parent: os.Getpid(), Threads: 1, kept: &kept{pidfd: -1}}
	parentOf := func(label string) int {
		p, _ := tree.verify(f.pids[label], parent)
		return p.Parent
	}
	check.Equal(t, "the parent of a child of its parent", parentOf("below"), parent.Pid)
	check.Equal(t, "the parent of a child of this process by now", parentOf("child"), os.Getpid())
	parent.kept.pidfd = reaped
	check.Equal(t, "the parent of a child of who has the parent's pid now", parentOf("below"), 0)
	tree.release()
	_ = unix.Close(reaped)
}

func TestKill(t *testing.T) {
	ways(t, func(t *testing.T, tree *Tree) {
		f := newFamily(t)
		f.start(command("@named", ") Z 0 (", "@stay", "named"))
		f.grow("@stay child", "@session @stay session", "@fork parent @fork middle @stay below", "@double @stay daemon")

		// One sweep may miss who is handed on while it lasts, so there is another until nobody is left. The family's end is
		// still to come: whoever ends here was killed.
		var hit []int
		for err := error(nil); err != unix.ECHILD; _, err = unix.Wait4(-1, nil, unix.WNOHANG, nil) {
			hit = append(hit, killed(t, tree.Kill)...)
		}
		slices.Sort(hit)
		f.mustBe(t, "Kill hit", slices.Compact(hit), slices.Collect(maps.Keys(f.pids))...)
		none := [3]int{len(killed(t, tree.Kill)), len(look(t, tree)), len(tree.known)}
		check.Equal(t, "in an empty tree, how many Kill hits, are found, and are known", none, [3]int{})
	})
}

// One call ends the rest of the command's process group, because a fork bomb outruns a walk. A group is known by a child
// in it, which was found and is not reaped. A process of another group has to be found.
func TestKillChildrenEndsTheGroup(t *testing.T) {
	tree := New()
	tree.prepare()
	f := newFamily(t)
	f.grow("@group @fork main @stay follower", "@group @fork other @fork middle @stay below")
	tree.Allow(nil, f.pids["main"])
	before := tree.hasGroup()
	look(t, tree)
	check.Equal(t, "hasGroup, before a look and after it", [2]bool{before, tree.hasGroup()}, [2]bool{false, true})
	killed(t, tree.KillChildren)
	for _, label := range []string{"main", "follower", "other"} {
		check.Until(t, label+" was killed, and reaped", func() bool {
			pid, err := unix.Wait4(f.pids[label], nil, unix.WNOHANG, nil)
			return pid > 0 || err == unix.ECHILD // the main child may have reaped its own child
		})
		tree.Reaped(f.pids[label])
		check.Equal(t, "with "+label+" reaped, hasGroup", tree.hasGroup(), false)
	}
	check.NoError(t, errors.Join(unix.Kill(f.pids["middle"], 0), unix.Kill(f.pids["below"], 0)))
}

// A process of another user, which may not be signalled or looked into, is told of, and neither is taken for one that has ended
// nor for one that holds nothing.
func TestNotAllowed(t *testing.T) {
	f := newFamily(t)
	_, outW := check.Pipe(t)
	tree := treeOf(t, outW, nil)
	f.grow("@stay child", "@fork parent @stay below")
	need.That(t, os.Getuid() == 0, "root, to be another user for a while")
	const nobody = 65534
	check.NoError(t, syscall.Setresuid(nobody, nobody, 0))
	defer func() { check.NoError(t, syscall.Setresuid(0, 0, 0)) }()

	look(t, tree) // reads the facts
	tree.Allow([]string{"env:A=b"}, 0)
	stepsOfLook := func() int64 {
		before := tree.reader.steps.Load()
		look(t, tree)
		return tree.reader.steps.Load() - before
	}
	check.Equal(t, "what the first look reads, because no other try would help", stepsOfLook(), stepsOfLook())
	for _, p := range f.find(t, tree) {
		if p.Parent != os.Getpid() && p.kept.pidfd < 0 {
			t.Errorf("no pidfd tells %d from a process that gets its pid", p.Pid)
		}
		told := tree.Details(p, []string{"PATH"})
		if !p.Unread || p.Allowed || p.Holds.May() != Stdout || told.Variables != nil {
			t.Errorf("nothing of %d can be read: %+v, %+v", p.Pid, p, told)
		}
		if err := tree.Signal(p, unix.SIGTERM); !errors.Is(err, unix.EPERM) || !strings.Contains(err.Error(), strconv.Itoa(p.Pid)) {
			t.Errorf("Signal of another user's process %d: %v, want EPERM, and its pid", p.Pid, err)
		}
	}
	hit, refused := tree.Kill()
	f.mustBe(t, "Kill hit", hit)
	f.mustBe(t, "Kill was refused", refused, "child", "parent", "below")
	check.Equal(t, "though one process may not be signalled, pidfds are used", tree.usePidfds, true)
	if now, err := tree.Traffic(); err == nil || now.Sum != 0 {
		t.Errorf("Traffic: %+v, and no error names a process that may read from standard input", now)
	}
}

// Without /proc the children are found, and nothing is known of them but that they live.
func TestLookWithoutProc(t *testing.T) {
	f := newFamily(t)
	_, outW := check.Pipe(t)
	f.grow("@fork child @stay below", "@stay other")
	pids := f.pidsOf([]string{"child", "other"})
	self.WithoutRoot(t, func() {
		tree := treeOf(t, outW, outW)
		check.Equal(t, "standard output and standard error, which are pipes", tree.streams, [2]stream{unreadable, unreadable})
		tree.pidMax = slices.Max(pids) + 1
		for range 2 {
			for _, p := range f.find(t, tree, "child", "other") {
				if p.State != '?' || p.Parent != os.Getpid() || !p.Alive() {
					t.Errorf("found %+v", p)
				}
				check.NoError(t, tree.Signal(p, 0))
			}
		}
		if view := tree.Look(); !view.Nameless {
			t.Error("it has names")
		}
		// What one of them had started is a child, too, if that one has ended before the search is there.
		hit := slices.DeleteFunc(killed(t, tree.Kill), func(pid int) bool { return pid == f.pids["below"] })
		f.mustBe(t, "Kill hit", hit, "child", "other")
		for _, pid := range pids {
			self.AwaitEnd(t, pid)
			_, found := look(t, tree)[pid]
			check.Equal(t, "a look finds the zombie", found, false)
		}
	})
}

func TestCommandLine(t *testing.T) {
	f := newFamily(t)
	plain, long := command("@stay", "plain"), command("@stay", "long")
	long.Args = append(long.Args, slices.Repeat([]string{strings.Repeat("x", 100<<10)}, 10)...)
	f.start(plain)
	f.start(long)
	tree := New()
	found := f.find(t, tree)
	for want, p := range map[string]Process{
		strings.Join(plain.Args, " "):        found["plain"],
		strings.Join(long.Args, " ")[:4<<10]: found["long"],
		"of nobody":                          {Pid: 1 << 30, Name: "of nobody", kept: &kept{}},
		"a zombie":                           f.zombie(), // which has no arguments any more
	} {
		check.Equal(t, "CommandLine", tree.CommandLine(p), want)
	}
	check.Equal(t, "a zombie", tree.Details(f.zombie(), []string{"PATH"}).Variables, map[string]string(nil))
}

// A pid that another process has got since is not signalled: without a pidfd by its parent, on a kernel that may reap by itself
// also if it was a child's, and at any time because what was known of the pid is of another process.
func TestSignalSparesWhoGotThePid(t *testing.T) {
	f := newFamily(t)
	f.grow("@stay child")
	tree := New()
	tree.prepare()
	const noParent = 1 << 22 // PID_MAX_LIMIT in proc_sys_kernel(5)
	check.Equal(t, "to no descendant", tree.send(os.Getppid(), noParent, -1, 0), unix.ESRCH)
	tree.autoreap = true
	for _, pid := range []int{outside.pids["outside"], 1 << 30} {
		check.Equal(t, fmt.Sprint("SIGKILL to ", pid), tree.send(pid, tree.self, -1, unix.SIGKILL), unix.ESRCH)
	}
	for range 2 { // then a zombie, which is a child
		check.NoError(t, tree.send(f.pids["child"], tree.self, -1, unix.SIGKILL))
		self.AwaitEnd(t, f.pids["child"])
	}
	before, now := &kept{pidfd: -1}, &kept{pidfd: -1}
	tree.known[os.Getppid()] = now
	check.NoError(t, tree.Signal(Process{Pid: os.Getppid(), kept: before}, 0))
	check.Equal(t, "one or another process with the pid was signalled", before.signaled || now.signaled, false)
}
