package hostile

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/e2e/rig/reports"
	"github.com/seed-126c5d8a/fini/e2e/rig/rest"
	"github.com/seed-126c5d8a/fini/internal/tests/procfs"
)

// Whatever fini forwards, reaps, stops and reports, its memory is bounded: it lives in a memory
// cgroup of 8 MiB, which its command leaves. FINI_FULL makes the storms long.
const (
	smallMemory = 8 << 20
	mostAnon    = 4000 // kB for each fini, of two
)

// anonymous is how many kB of memory with content of their own processes have.
func anonymous(pids []int) (sum int) {
	for _, pid := range pids {
		kB, _ := strconv.Atoi(strings.TrimSuffix(procfs.Status(pid, "RssAnon"), " kB"))
		sum += kB
	}
	return sum
}

// inSmallMemory runs a test as PID 1 and as a pair, without and with a report: fini has little memory, and the command, which
// says "ready" and ends with 7, has enough.
func inSmallMemory(t *testing.T, name string, flags, command []string, test func(t *testing.T, l *rig.Life, finis []int)) {
	t.Helper()
	rig.NeedPidNamespace(t)
	for _, p := range []rig.Place{rig.PID1, rig.Pair} {
		for _, report := range []bool{false, true} {
			rig.Case(t, report && !p.PID1, fmt.Sprintf("%s%s, report %v", p.Name, name, report), func(t *testing.T) {
				t.Parallel()
				h := rig.NewMemoryCgroup(t, smallMemory)
				leave := []string{"--", "/bin/sh", "-c", `echo 0 >"$0" && exec "$@"`, filepath.Join(filepath.Dir(h.Dir), "cgroup.procs")}
				args, path := slices.Concat(flags, leave, command), filepath.Join(t.TempDir(), "report")
				if report {
					args = append([]string{"--report=" + path}, args...)
				}
				l := rig.StartCmd(t, h.Around(p, nil, args...))
				l.Out.Want("ready")
				l.Caught()
				test(t, l, rest.Finis(l))
				l.MustEnd(7)
				if report {
					reports.MustHave(t, path)
				}
			})
		}
	}
}

// A storm comes in parts, after each of which fini has as much memory as after the first.
func TestMemoryIsBounded(t *testing.T) {
	t.Parallel()
	const parts = 3
	noise := 2048 // kB for each fini: the first part may not have been enough for a collection
	if rig.Full() {
		noise = 512
	}
	last, orphans := time.Duration(rig.QuickOrFull(1, 20))*500*time.Millisecond, rig.QuickOrFull(600, 50_000)
	for _, storm := range []struct {
		name    string
		command string
		part    func(t *testing.T, l *rig.Life, n int)
	}{
		{"/signals", "ignore 10; ignore 12; ignore 13; ignore 28; say ready; read; exit 7", func(_ *testing.T, l *rig.Life, _ int) {
			for end := time.Now().Add(last); time.Now().Before(end); {
				for i := range 20 { // none of which the kernel queues up
					_ = l.Cmd.Process.Signal([]syscall.Signal{10, 12, 13, 28}[i%4])
				}
			}
		}},
		{"/orphans", fmt.Sprintf(`say ready
			again: read
			next: fork parent
			wait
			loop %d next
			say part
			loop %d again
			read
			exit 7
			parent: fork orphan
			exit 0
			orphan: exit 0`, orphans-1, parts-1), func(t *testing.T, l *rig.Life, n int) {
			rig.Write(t, l, "x")
			if !rig.Await(rig.Enough+time.Duration(orphans)*10*time.Millisecond, func() bool { return strings.Count(l.Out.Text(), "part\n") == n }) {
				t.Fatalf("part %d has no end", n)
			}
		}},
	} {
		inSmallMemory(t, storm.name, nil, rig.Mode("script", storm.command), func(t *testing.T, l *rig.Life, finis []int) {
			var took []int
			var before, after size
			for n := range parts {
				storm.part(t, l, n+1)
				took = append(took, anonymous(finis))
				if n == 0 {
					before = sizeOf(t, finis)
				}
			}
			t.Logf("%d kB after each part", took)
			if took[parts-1] > min(took[0]+noise*len(finis), mostAnon*len(finis)) {
				t.Errorf("its memory grows: %d kB", took)
			}
			if !rig.Await(rig.Enough, func() bool { // a leak stays
				after = sizeOf(t, finis)
				return after.threads <= before.threads && after.fds <= before.fds
			}) {
				t.Errorf("threads and descriptors: %v, after the first part %v", after, before)
			}
			rig.Write(t, l, "x")
			rig.MustRecord(t, "fini says", l.Err.Rest())
		})
	}
}

// size is what finis have that must not grow.
type size struct{ threads, fds int }

func sizeOf(t testing.TB, finis []int) (s size) {
	t.Helper()
	for _, pid := range finis {
		threads, _ := strconv.Atoi(procfs.Status(pid, "Threads"))
		s.threads += max(threads, 6) // on a busy machine the runtime of an idle fini may have one more than its five
		s.fds += procfs.CountFDs(t, pid)
	}
	return s
}

// Twelve leftovers with 1.8 MB of arguments and environment each, which fini tells of.
func TestMemoryOfLongCommandLines(t *testing.T) {
	t.Parallel()
	const script = `big=$(head -c 131000 /dev/zero | tr '\0' x) n=0
		export A=$big B=$big C=$big D=$big E=$big F=$big G=$big
		while [ $n -lt 12 ]; do n=$((n + 1))
			setsid sh -c 'trap "" TERM; echo up; while :; do sleep 1000; done' sh $big $big $big $big $big $big $big &
		done
		echo ready; read go; exit 7`
	inSmallMemory(t, "", []string{"-v", "--linger=0", "--grace=1s"}, []string{"/bin/sh", "-c", script}, func(t *testing.T, l *rig.Life, finis []int) {
		rig.Until(t, "all leftovers are up", func() bool { return strings.Count(l.Out.Text(), "up\n") == 12 })
		before := anonymous(finis)
		rig.Write(t, l, "go\n")
		l.Err.Want("fini: killing leftover ")
		after := anonymous(finis)
		t.Logf("%d kB before, %d kB after", before, after)
		if after > mostAnon*len(finis) {
			t.Errorf("%d kB, want at most %d for each fini", after, mostAnon)
		}
	})
}
