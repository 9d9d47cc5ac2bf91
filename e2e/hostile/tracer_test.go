package hostile

import (
	"bufio"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/internal/tests/need"
	"github.com/seed-126c5d8a/fini/internal/tests/procfs"
)

// hang starts a tracer outside of the tree, and gives the right to end it.
func hang(t *testing.T, pid int, more ...string) (end func()) {
	t.Helper()
	cmd := rig.CommandOf(rig.Mode("tracer", append([]string{strconv.Itoa(pid)}, more...)...))
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
				release := hang(t, main)
				if ends != "is killed" {
					// The tracer keeps the signal to itself.
					l.Signal(syscall.SIGTERM)
					rig.Until(t, "the signal has come", func() bool { return procfs.StatOf(main).State() == 't' })
				}
				rig.MustKill(t, main, syscall.SIGKILL)
				l.Err.Want("fini: gave up on leftovers that do not exit: [")
				if p.PID1 { // whose end the kernel puts off until the tracer has waited
					release()
				}
				l.MustEnd(128 + 9)
				rig.MustRecord(t, "fini says more", l.Err.Rest())
			})
		}
	})
	// As in strace -p of a fini, whose strace is stopped.
	for _, tt := range []struct {
		name   string
		more   []string // words for the tracer
		status int
	}{
		{"the command ends", []string{"continue it"}, 5},
		{"it is killed", nil, 128 + 9},
		{"the outer one is killed", nil, 128 + 9},
	} {
		t.Run("pair/the inner fini, "+tt.name, func(t *testing.T) {
			t.Parallel()
			l := rig.Start(t, rig.Pair, append(flags, "/bin/sh", "-c", "echo ready; read go; exit 5")...)
			l.Out.Want("ready")
			l.Caught()
			inner := l.Worker()
			release := hang(t, inner, tt.more...)
			switch tt.name {
			case "the command ends":
				rig.Write(t, l, "go\n")
			case "it is killed":
				rig.MustKill(t, inner, syscall.SIGKILL)
			case "the outer one is killed":
				l.Signal(syscall.SIGKILL)
			}
			l.MustHaveStatus(tt.status)
			if tt.name == "the outer one is killed" {
				release() // without an outer fini nobody acts in place of an inner fini that a tracer holds
			}
			rig.Until(t, "the end of the tree", func() bool { return rig.HungUp(l.Witness) })
		})
	}
}
