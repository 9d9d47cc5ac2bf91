package hostile

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/e2e/rig/procfs"
	"github.com/seed-126c5d8a/fini/e2e/rig/reports"
	"github.com/seed-126c5d8a/fini/e2e/rig/rest"
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

// A memoryStorm is something that comes in parts, after each of which fini has as much memory as
// after the first.
type memoryStorm struct {
	name    string
	command []string
	part    func(t *testing.T, l *rig.Life) (how string)
}

func memoryStorms(t *testing.T) []memoryStorm {
	t.Helper()
	last, orphans := time.Duration(rig.QuickOrFull(1, 20))*500*time.Millisecond, rig.QuickOrFull(1500, 50_000)
	return []memoryStorm{
		{
			name:    "signals",
			command: rig.Mode("script", "ignore 10; ignore 12; ignore 13; ignore 28; say ready; read; exit 7"),
			part: func(_ *testing.T, l *rig.Life) string {
				n := 0
				for end := time.Now().Add(last); time.Now().Before(end); n += 20 {
					for i := range 20 { // none of which the kernel queues up
						_ = l.Cmd.Process.Signal([]syscall.Signal{10, 12, 13, 28}[i%4])
					}
				}
				return fmt.Sprint(n, " signals")
			},
		},
		{
			name: "orphans",
			command: rig.Mode("script", fmt.Sprintf(`say ready
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
				orphan: exit 0`, orphans-1, parts-1)),
			part: func(t *testing.T, l *rig.Life) string {
				rig.Write(t, l, "x")
				wantLate(l, t, "part", time.Duration(orphans)*10*time.Millisecond)
				return fmt.Sprint(orphans, " orphans")
			},
		},
	}
}

const parts = 3

// inSmallMemory starts fini where there is little, and the command where there is enough.
func inSmallMemory(t *testing.T, p rig.Place, flags, command []string) *rig.Life {
	t.Helper()
	h := rig.NewMemoryCgroup(t, smallMemory)
	leave := []string{"--", "/bin/sh", "-c", `echo 0 >"$0" && exec "$@"`, filepath.Join(filepath.Dir(h.Dir), "cgroup.procs")}
	return rig.StartCmd(t, h.Around(p, nil, append(append(flags, leave...), command...)...))
}

func TestMemoryIsBounded(t *testing.T) {
	t.Parallel()
	noise := 2048 // kB for each fini: the first part may not have been enough for a collection
	if rig.Full() {
		noise = 512
	}
	rig.NeedPidNamespace(t)
	for _, p := range []rig.Place{rig.PID1, rig.Pair} {
		for _, s := range memoryStorms(t) {
			for _, report := range []bool{false, true} {
				// The one place without a report is quick, and the other one with it.
				rig.Case(t, report != p.PID1, fmt.Sprintf("%s/%s, report %v", p.Name, s.name, report), func(t *testing.T) {
					t.Parallel()
					var flags []string
					if report {
						flags = append(flags, "--report="+filepath.Join(t.TempDir(), "report"))
					}
					l := inSmallMemory(t, p, flags, s.command)
					l.Out.Want("ready")
					l.Caught()
					finis := rest.Finis(l)
					var took []int
					sizes := sizesOf(l)
					for part := range parts {
						how := s.part(t, l)
						took = append(took, anonymous(finis))
						if part == 0 {
							sizes = sizesOf(l)
						}
						t.Logf("%d kB after %s more", took[part], how)
					}
					if took[parts-1] > min(took[0]+noise*len(finis), mostAnon*len(finis)) {
						t.Errorf("its memory grows: %d kB", took)
					}
					var after [2]size
					if !rig.Await(rig.Enough, func() bool { // a leak stays
						after = sizesOf(l)
						return after[0].within(sizes[0]) && after[1].within(sizes[1])
					}) {
						t.Errorf("threads and descriptors: %v, after the first part %v", after, sizes)
					}
					rig.Write(t, l, "x")
					l.MustEnd(7)
					if said := l.Err.Whole(); said != "" {
						t.Errorf("says %q", said)
					}
				})
			}
		}
	}
}

// Twelve leftovers with 1.8 MB of arguments and environment each, which fini tells of.
func TestMemoryOfLongCommandLines(t *testing.T) {
	t.Parallel()
	rig.NeedPidNamespace(t)
	const (
		many   = 12
		script = `big=$(head -c 131000 /dev/zero | tr '\0' x) n=0
			export A=$big B=$big C=$big D=$big E=$big F=$big G=$big
			while [ $n -lt 12 ]; do n=$((n + 1))
				setsid sh -c 'trap "" TERM; echo up; while :; do sleep 1000; done' sh $big $big $big $big $big $big $big &
			done
			read go; exit 7`
	)
	for _, p := range []rig.Place{rig.PID1, rig.Pair} {
		for _, report := range []bool{false, true} {
			rig.Case(t, !report && !p.PID1, fmt.Sprintf("%s, report %v", p.Name, report), func(t *testing.T) {
				t.Parallel()
				flags := []string{"-v", "--linger=0", "--grace=1s"}
				path := filepath.Join(t.TempDir(), "report")
				if report {
					flags = append(flags, "--report="+path)
				}
				l := inSmallMemory(t, p, flags, []string{"/bin/sh", "-c", script})
				for range many {
					l.Out.Want("up")
				}
				l.Caught()
				finis := rest.Finis(l)
				before := anonymous(finis)
				rig.Write(t, l, "go\n")
				l.Err.Want("fini: killing leftover ")
				after := anonymous(finis)
				t.Logf("%d kB before, %d kB after", before, after)
				if after > mostAnon*len(finis) {
					t.Errorf("%d kB, want at most %d for each fini", after, mostAnon)
				}
				l.MustEnd(7)
				if report {
					reports.MustHave(t, path)
				}
			})
		}
	}
}

// size is what a fini takes that must not grow.
type size struct{ threads, fds int }

func sizeOf(t testing.TB, pid int) size {
	t.Helper()
	threads, _ := strconv.Atoi(procfs.Status(pid, "Threads"))
	return size{threads, procfs.CountFDs(t, pid)}
}

// within reports whether s is no more than another. On a busy machine the runtime of an idle fini may have
// one thread more than its five.
func (s size) within(o size) bool { return s.threads <= max(o.threads, 6) && s.fds <= o.fds }

// sizesOf are those of fini, or of both of the pair.
func sizesOf(l *rig.Life) [2]size {
	l.T.Helper()
	return [2]size{sizeOf(l.T, l.PID()), sizeOf(l.T, l.Worker())}
}

// wantLate waits longer than the patience for a line.
func wantLate(l *rig.Life, t testing.TB, want string, long time.Duration) {
	t.Helper()
	select {
	case line := <-l.Out.C:
		if line != want {
			t.Fatalf("%q instead of %q", line, want)
		}
	case <-time.After(rig.Patience + long):
		t.Fatalf("no line %q", want)
	}
}
