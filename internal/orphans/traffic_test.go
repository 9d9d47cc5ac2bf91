package orphans

import (
	"os"
	"testing"

	"github.com/seed-126c5d8a/fini/internal/tests/check"
	"github.com/seed-126c5d8a/fini/internal/tests/self"
	"golang.org/x/sys/unix"
)

func TestParseIO(t *testing.T) {
	for text, want := range map[string]uint64{
		"rchar: 1\nwchar: 20\nsyscr: 300\nsyscw: 4000\nread_bytes: 50000\nwrite_bytes: 0\ncancelled_write_bytes: 0\n": 4321,
		"rchar: 18446744073709551615\nwchar: 1\nsyscr: 1\nsyscw: 1\n":                                                 2,
		"rchar: 1\nwchar: 1\nsyscr: 1\n": 0,
		"":                               0,
	} {
		if sum, ok := parseIO([]byte(text)); ok != (want != 0) || ok && sum != want {
			t.Errorf("%q: %d, %t, want %d", text, sum, ok, want)
		}
	}
}

// What a process reads or writes counts if its descriptor 0 is this process's, and only then.
func TestTraffic(t *testing.T) {
	f := newFamily(t)
	stdin, _ := check.Pipe(t)
	other, _ := check.Pipe(t)
	tree := New()
	defer self.PutAt(t, 0, stdin)()
	for label, from := range map[string]*os.File{"server": stdin, "beside": other} {
		cmd := command("@stay", label)
		cmd.Stdin = from
		// Or its runtime reads, once in a second in which it does something, how much CPU its cgroup may use.
		cmd.Env = append(os.Environ(), "GOMAXPROCS=2")
		f.start(cmd)
	}
	traffic := func() uint64 {
		t.Helper()
		// The kernel counts what a process has written after others can read it.
		f.allSleep()
		now, err := tree.Traffic()
		check.NoError(t, err)
		check.Equal(t, "one of them is in a system call for which a reader would wait", now.Busy, false)
		return now.Sum
	}
	still := traffic()
	check.NoError(t, unix.Kill(f.pids["beside"], unix.SIGUSR1))
	f.lines.WantNext("SIGUSR1 beside")
	check.Equal(t, "the sum when a process with another standard input has moved", traffic(), still)
	check.NoError(t, unix.Kill(f.pids["server"], unix.SIGUSR1))
	f.lines.WantNext("SIGUSR1 server")
	if now := traffic(); now == still || still == 0 {
		t.Errorf("the server wrote a line, and the sum is %d, was %d", now, still)
	}
}
