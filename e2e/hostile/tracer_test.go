package hostile

import (
	"bufio"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/seed-126c5d8a/fini/e2e/need"
	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/e2e/rig/procfs"
)

// hang starts a tracer outside of the tree, and gives the right to end it.
func hang(t *testing.T, pid int, more ...string) (end func()) {
	t.Helper()
	argv := rig.Mode("tracer", append([]string{strconv.Itoa(pid)}, more...)...)
	cmd := exec.Command(argv[0], argv[1:]...)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	rig.NoError(t, err)
	end = sync.OnceFunc(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	t.Cleanup(end)
	line, _ := bufio.NewReader(out).ReadString('\n')
	need.That(t, line == "tracing\n", "the right to trace a process: "+line)
	return end
}

// A process that is traced is not reaped before its tracer has waited. See ptrace(2).
func TestTracerThatHangs(t *testing.T) {
	t.Parallel()
	// The bound is the grace and ten seconds. A busy machine takes some more.
	const bound = 70 * time.Second
	const gaveUp = "fini: gave up on leftovers that do not exit: ["
	flags := []string{"--grace=300ms", "--linger=0", "--"}
	rig.InPlaces(t, rig.Pair, func(t *testing.T, p rig.Place) {
		t.Parallel()
		t.Run("in the tree", func(t *testing.T) {
			t.Parallel()
			tracer := strings.Join(rig.Mode("tracer"), " ")
			l := rig.Start(t, p, append(flags, "/bin/sh", "-c", tracer+" & wait; wait")...)
			if line, _ := l.Out.Next(); line != "tracing" {
				need.That(t, false, "the right to trace a process: "+line)
			}
			rig.MustKill(t, procfs.ChildrenOf(t, l.Worker())[0], syscall.SIGKILL)
			l.MustEnd(128 + 9)
			if said := l.Err.Whole(); strings.Contains(said, "gave up") {
				t.Errorf("says %q, and the tracer was its own to end", said)
			}
		})
		for _, ends := range []string{"is killed", "is stopped by TERM"} { // 10 s each
			rig.Case(t, ends == "is killed", "outside, the main child "+ends, func(t *testing.T) {
				t.Parallel()
				l := rig.Start(t, p, append(flags, rig.Mode("signals")...)...)
				l.Out.Want("ready")
				main := procfs.ChildrenOf(t, l.Worker())[0]
				tracer := hang(t, main)
				started := time.Now()
				if ends != "is killed" {
					// The tracer keeps the signal to itself.
					l.Signal(syscall.SIGTERM)
					rig.Until(t, "the signal has come", func() bool { return procfs.StatOf(main).State() == 't' })
				}
				rig.MustKill(t, main, syscall.SIGKILL)
				l.Err.Want(gaveUp)
				if took := time.Since(started); took > bound {
					t.Errorf("took %v", took)
				}
				if p.PID1 { // whose end the kernel puts off until the tracer has waited
					tracer()
				}
				l.MustEnd(128 + 9)
				if rest := l.Err.Rest(); len(rest) > 0 {
					t.Errorf("says more: %q", rest)
				}
			})
		}
	})
	// As in strace -p of a fini, whose strace is stopped.
	for _, tt := range []struct {
		name   string
		more   []string // words for the tracer
		end    func(t *testing.T, l *rig.Life, inner int)
		status int
	}{
		{"the command ends", []string{"continue it"}, func(t *testing.T, l *rig.Life, _ int) { rig.Write(t, l, "go\n") }, 5},
		{"it is killed", nil, func(t *testing.T, _ *rig.Life, inner int) { rig.MustKill(t, inner, syscall.SIGKILL) }, 128 + 9},
		{"the outer one is killed", nil, func(_ *testing.T, l *rig.Life, _ int) { l.Signal(syscall.SIGKILL) }, 128 + 9},
	} {
		t.Run("pair/the inner fini, "+tt.name, func(t *testing.T) {
			t.Parallel()
			l := rig.Start(t, rig.Pair, append(flags, "/bin/sh", "-c", "echo ready; read go; exit 5")...)
			l.Out.Want("ready")
			l.Caught()
			inner := l.Worker()
			release := hang(t, inner, tt.more...)
			started := time.Now()
			tt.end(t, l, inner)
			l.MustHaveStatus(tt.status)
			if took := time.Since(started); took > bound {
				t.Errorf("took %v; stderr: %s", took, l.Err.Text())
			}
			if tt.name == "the outer one is killed" {
				release() // without an outer fini nobody acts in place of an inner fini that a tracer holds
			}
			rig.Until(t, "the end of the tree", func() bool { return rig.HungUp(l.Witness) })
		})
	}
}
