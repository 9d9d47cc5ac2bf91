package orphans

import (
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/seed-126c5d8a/fini/internal/tests/check"
	"github.com/seed-126c5d8a/fini/internal/tests/need"
	"github.com/seed-126c5d8a/fini/internal/tests/procfs"
)

// A survey begins with those without a child and ends with those that have one, and tells of each what it does.
func TestSurvey(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	need.That(t, err == nil, "the loopback")
	socket, err := l.(*net.TCPListener).File()
	check.NoError(t, err)
	defer func() { _, _ = l.Close(), socket.Close() }()
	f := newFamily(t)
	f.grow("@fork wrapper @fork inner @stay leaf", "@double @fork pair @stay one", "@headless headless")
	server := command("@stay", "server")
	server.Env = append(os.Environ(), "FINI_TEST=a test")
	f.start(server, socket)
	for label, pid := range f.pids {
		check.Until(t, label+" sleeps", func() bool { return label == "headless" || procfs.Sleeps(pid) })
	}

	labels := map[int]string{}
	for label, pid := range f.pids {
		labels[pid] = label
	}
	order := func(seen []Activity) (names []string) {
		for _, a := range seen {
			names = append(names, labels[a.Pid])
		}
		return names
	}
	var tree *Tree
	var seen []Activity
	var more int
	check.Until(t, "the survey has had time for all", func() bool { // on a busy machine it may not
		tree = New()
		seen, more = tree.Survey(100, []string{"FINI_TEST", "NONE"})
		return len(seen) == 7 && !slices.ContainsFunc(seen, func(a Activity) bool { return a.CPU < 0 })
	})
	check.Equal(t, "how many more", more, 0)
	leaves, wrappers := order(seen)[:4], order(seen)[4:]
	slices.Sort(leaves)
	slices.Sort(wrappers)
	check.Equal(t, "the leaves", leaves, []string{"headless", "leaf", "one", "server"})
	check.Equal(t, "the wrappers", wrappers, []string{"inner", "pair", "wrapper"})
	for _, a := range seen {
		label := labels[a.Pid]
		isServer := label == "server"
		want := []string{}
		if isServer {
			want = []string{l.Addr().String()}
		}
		if !strings.Contains(a.CommandLine+" ", " "+label+" ") || a.State != 'S' && label != "headless" || a.Start == 0 || (a.Variables["FINI_TEST"] == "a test") != isServer ||
			!slices.Equal(a.Listens, want) {
			t.Errorf("%s: %+v", label, a)
		}
	}
	seen, more = tree.Survey(2, nil)
	if names := order(seen); more != 5 || len(names) != 2 || slices.ContainsFunc(names, func(name string) bool { return slices.Contains(wrappers, name) }) {
		t.Errorf("two of them are %q and %d more", names, more)
	}
	// A survey spoils nothing for a look.
	check.Equal(t, "the next look", len(f.find(t, tree)), 7)
}

// Whoever can't be read, or holds up the reader, is told of by name. The survey goes on, and so does what comes after it.
func TestSurveyOfStuckProcesses(t *testing.T) {
	f, tree := newFakeProc(t)
	pids := f.children(4)
	f.put(pids[0], "status", statusOf(pids[0], os.Getpid(), "dead-end", "D (disk sleep)", 16, 1))
	f.put(pids[0], "task/"+strconv.Itoa(pids[0])+"/status", statusOf(pids[0], os.Getpid(), "dead-end", "D (disk sleep)", 16, 1))
	for _, pid := range pids[1:] {
		f.put(pid, "task/"+strconv.Itoa(pid)+"/status", statusOf(pid, os.Getpid(), "some", "S (sleeping)", 16, 1))
		f.put(pid, "cmdline", "some\x00words\x00")
	}
	f.put(pids[1], "task/"+strconv.Itoa(pids[1])+"/status", statusOf(pids[1], os.Getpid(), "some", "R (running)", 16, 1))
	end := f.holdUp(pids[2], "stat")
	seen, more := tree.Survey(10, nil)
	var got []string
	for _, a := range seen {
		got = append(got, string(a.State)+" "+a.CommandLine)
	}
	check.Equal(t, "what is seen", got, []string{"D dead-end", "R some words", "S some", "S some"})
	check.Equal(t, "how many more", more, 0)
	check.Equal(t, "the CPU time of one that could be read", seen[1].CPU, 30*time.Millisecond)
	_ = os.Remove(end.Name())
	f.put(pids[2], "stat", "2 (some) S 7 8 9 34816 8 4194304 220 0 0 0 1 2 0 0 20 0 3 0 4711 5660672 256\n")
	_ = end.Close()
	check.Until(t, "the reader is back", func() bool { return !tree.reader.busy.Load() })
	view := tree.Look()
	for _, p := range view.Found[1:] {
		check.Equal(t, "when it started", p.Start, 47110*time.Millisecond)
	}
}
