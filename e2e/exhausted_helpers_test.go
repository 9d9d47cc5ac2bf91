package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/need"
)

// The programs that exhaust something are scripts: a Go program would be the first victim
// of a full process table.

// filler waits for a line, forks until the kernel refuses, says "full" and the number of its
// children, and ends with 7 after SIGTERM, before which it fills the table once more. The
// words of its command line:
//
//	orphans    most of the children are orphans, which are fini's
//	replace    kills one of these after the other and forks another in its place, which
//	           can only be had after fini has reaped the one; then says "replaced"
//	stubborn   the children ignore SIGTERM
//	bombs      each child forks too, for as long as it lives
//	sessions   each child leads a session of its own
//	immortal   the filler ignores SIGTERM too
const filler = `
import os, signal, sys, time
words, children, orphans = sys.argv[1:], 0, []

def say(text):
    os.write(1, (text + "\n").encode())

def sleep():
    if "bombs" in words:
        while True:
            try:
                if os.fork() == 0:
                    continue
            except OSError:
                time.sleep(.005)
    while True:
        time.sleep(1000)

def child():
    signal.signal(signal.SIGTERM, signal.SIG_IGN if "stubborn" in words else signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    if "sessions" in words:
        os.setsid()
    sleep()

def fill():
    global children
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    pids = []
    while True:
        try:
            pid = os.fork()
        except OSError:
            children += len(pids)
            return pids
        if pid == 0:
            child()
        pids.append(pid)

def asked(*_):
    say("asked")
    if "immortal" in words:
        return
    fill()
    say("full again")
    os._exit(7)

signal.signal(signal.SIGTERM, asked)
say("ready")
sys.stdin.readline()
if "orphans" in words:
    r, w = os.pipe()
    parent = os.fork()
    if parent == 0:
        os.write(w, " ".join(map(str, fill())).encode())
        os._exit(0)
    os.close(w)
    while text := os.read(r, 65536):
        orphans += map(int, text.split())
        break
    os.waitpid(parent, 0)
fill()
if "replace" in words:
    for orphan in orphans[:20]:
        os.kill(orphan, signal.SIGKILL)
        while not fill():
            pass
    say("replaced")
say("full %d" % (children + len(orphans)))
signal.pthread_sigmask(signal.SIG_SETMASK, [])
while True:
    time.sleep(0.01) # not for ever: a signal may come just before it, which Python then acts on after it
`

// fill is the command line of the filler.
func fill(words ...string) []string {
	return append([]string{"python3", "-I", "-S", "-c", filler}, words...)
}

// newLimited makes a cgroup with room for so many processes and threads.
func newLimited(t testing.TB, most int) *cgroup {
	t.Helper()
	h := newCgroup(t)
	h.limit("pids.max", strconv.Itoa(most))
	return h
}

// limit writes to a file of the cgroup.
func (c *cgroup) limit(file, value string) {
	c.t.Helper()
	err := os.WriteFile(filepath.Join(c.dir, file), []byte(value), 0)
	need.That(c.t, err == nil, fmt.Sprintf("a cgroup with %s (%v)", file, err))
}

// newMemoryCgroup is newCgroup, with room for so many bytes, and for no more on a swap device.
func newMemoryCgroup(t testing.TB, bytes int) *cgroup {
	t.Helper()
	const root, file = "/sys/fs/cgroup/memory", "memory.limit_in_bytes" // version 1
	limit := strconv.Itoa(bytes)
	if _, err := os.Stat(filepath.Join(root, file)); err != nil {
		h := newCgroup(t)
		h.limit("memory.max", limit)
		if _, err := os.Stat(filepath.Join(h.dir, "memory.swap.max")); err == nil {
			h.limit("memory.swap.max", "0")
		}
		return h
	}
	h := newCgroupBelow(t, root)
	h.limit(file, limit)
	const both = "memory.memsw.limit_in_bytes"
	if _, err := os.Stat(filepath.Join(h.dir, both)); err == nil {
		h.limit(both, limit)
	}
	return h
}

// oneVictim repeats a life until the kernel has killed no more than one process in it for memory. It takes one for gone
// a moment before it has that one's memory back, and if somebody wants some just then, it kills another, fini say.
func oneVictim(live func() (*cgroup, *life)) (h *cgroup, l *life) {
	for range 5 {
		h, l = live()
		if l.status(); h.oomKills() <= 1 {
			break
		}
	}
	return h, l
}

// oomKills is how many processes of the cgroup the kernel has killed for memory.
func (c *cgroup) oomKills() (n int) {
	c.t.Helper()
	for _, file := range []string{"memory.events", "memory.oom_control"} {
		text, _ := os.ReadFile(filepath.Join(c.dir, file))
		if _, rest, ok := strings.Cut(string(text), "\noom_kill "); ok {
			if _, err := fmt.Sscan(rest, &n); err != nil {
				c.t.Fatal(err)
			}
			return n
		}
	}
	c.t.Fatal("the kernel does not say how many processes it has killed for memory")
	return 0
}

// around is fini in place p with these arguments, in the cgroup, where prefix is what executes
// it: a program that sets limits, say.
func (c *cgroup) around(p place, prefix []string, args ...string) *exec.Cmd {
	argv := c.wrap(slices.Concat(prefix, []string{finiPath}, p.flags(), args)...)
	if !p.pid1 {
		return exec.Command(argv[0], argv[1:]...)
	}
	cmd := exec.Command("/proc/self/exe", append([]string{"@pid1"}, argv...)...)
	asPID1(cmd)
	return cmd
}

// kill ends what is alive in the cgroup.
func (c *cgroup) kill() {
	for _, pid := range c.alive() {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}

// mustBeEmpty asserts that nothing of the cgroup is alive, now.
func (c *cgroup) mustBeEmpty() {
	c.t.Helper()
	if names := c.names(); len(names) > 0 {
		c.t.Errorf("alive in the cgroup: %q", names)
	}
}

// tasks counts the threads of processes.
func tasks(t testing.TB, pids []int) (n int) {
	t.Helper()
	for _, pid := range pids {
		entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
		if err != nil {
			t.Fatal(err)
		}
		n += len(entries)
	}
	return n
}

// mustNotAbort asserts that the Go runtime has not ended a fini.
func mustNotAbort(t testing.TB, stderr string) {
	t.Helper()
	if aborted(stderr) {
		t.Errorf("the runtime has aborted: %s", stderr)
	}
}

func aborted(stderr string) bool {
	for _, word := range []string{"runtime:", "fatal error", "panic:", "goroutine "} {
		if strings.Contains(stderr, word) {
			return true
		}
	}
	return false
}
