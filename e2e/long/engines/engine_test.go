package engines

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/e2e/rig/containers"
	"github.com/seed-126c5d8a/fini/e2e/rig/procfs"
)

// runAll runs what holds with every engine, and other parts.
func runAll(e *containers.Engine, t *testing.T, parts map[string]func(t *testing.T, e *containers.Engine)) {
	for name, flags := range map[string][]string{
		"root":      nil,
		"no rights": {"--user", "1000", "--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges"},
	} {
		if name != "root" && e.Smoke {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			t.Run("status", func(t *testing.T) { checkStatus(e, t, flags, name == "root" && !e.Smoke) })
			t.Run("stop", func(t *testing.T) { checkStop(e, t, flags) })
		})
	}
	for name, part := range parts {
		t.Run(name, func(t *testing.T) { t.Parallel(); part(t, e) })
	}
}

var dropInNames atomic.Int64

// nameOf is one that nobody else uses, and that of a container which is removed in the end.
func nameOf(e *containers.Engine, t testing.TB) string {
	t.Helper()
	name := fmt.Sprintf("fini-e2e-dropin-%d-%d", os.Getpid(), dropInNames.Add(1))
	t.Cleanup(func() {
		if out, err := e.Command(t, append(e.Remove, name)...).CombinedOutput(); err != nil {
			t.Errorf("cannot remove %s: %v: %s", name, err, out)
		}
	})
	return name
}

// A foreground is a container with the client that runs it in the foreground.
type foreground struct {
	*containers.Engine
	t        testing.TB
	Name     string
	cmd      *exec.Cmd
	Out, Err *rig.Lines
}

// inForeground is `run flags...`, where flags end with the image and what is behind it.
func inForeground(e *containers.Engine, t testing.TB, flags ...string) *foreground {
	t.Helper()
	g := &foreground{Engine: e, t: t, Name: nameOf(e, t)}
	g.cmd = e.Command(t, append([]string{"run", "--network", "none", "--stop-timeout", "60", "--name", g.Name}, flags...)...)
	outR, outW := rig.Pipe(t)
	errR, errW := rig.Pipe(t)
	g.cmd.Stdout, g.cmd.Stderr = outW, errW
	if err := g.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_, _ = outW.Close(), errW.Close()
	g.Out, g.Err = rig.NewLines(t, outR), rig.NewLines(t, errR)
	return g
}

// MustEnd waits for the client's end and asserts its status. It returns all of the
// container's standard output.
func (g *foreground) MustEnd(want int) string {
	g.t.Helper()
	ended := make(chan struct{})
	go func() { _ = g.cmd.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(rig.Patience):
		g.t.Fatalf("the container has not ended; its stderr: %s", g.Err.Text())
	}
	g.Out.Rest()
	if got := procfs.ShellStatus(g.cmd.ProcessState); got != want {
		g.Err.Rest()
		g.t.Errorf("status %d, want %d; its stderr: %s", got, want, g.Err.Text())
	}
	return g.Out.Text()
}

func (g *foreground) Exec(args ...string) string {
	g.t.Helper()
	return g.Must(g.t, append([]string{"exec", g.Name}, args...)...)
}

// zombiesOf counts them in the container.
func zombiesOf(e *containers.Engine, t testing.TB, name string) (n int) {
	t.Helper()
	// A process may be gone before its file is opened.
	stats := e.Must(t, "exec", name, "/bin/sh", "-c", "cat /proc/[0-9]*/stat 2>/dev/null || :")
	for line := range strings.Lines(stats) {
		if procfs.ParseStat(line).State() == 'Z' {
			n++
		}
	}
	return n
}

// checkStatus asserts all statuses that an engine tells apart, or that of a command and of none.
func checkStatus(e *containers.Engine, t *testing.T, flags []string, all bool) {
	type run struct {
		want    int
		command []string
	}
	runs := []run{{3, []string{"sh", "-c", "exit 3"}}, {127, []string{"no-such-command"}}}
	if all {
		runs = append(runs, run{0, []string{"true"}}, run{255, []string{"sh", "-c", "exit 255"}}, run{126, []string{"/bin/plain-text"}},
			run{137, []string{"sh", "-c", "kill -KILL $$"}}, run{143, []string{"sh", "-c", "kill -TERM $$"}})
	}
	for _, r := range runs {
		inForeground(e, t, e.Fini(flags, r.command...)...).MustEnd(r.want)
	}
}

// A main child with an escapee that needs 300 ms after TERM. It says "escapee ready", and
// on TERM "main got TERM" and "escapee done".
var briefly = strings.Replace(containers.Stoppable, "sleep 1;", "sleep 0.3;", 1)

func checkStop(e *containers.Engine, t *testing.T, flags []string) {
	g := inForeground(e, t, e.Fini(flags, "sh", "-c", containers.Make200Orphans+briefly)...)
	g.Out.Want("escapee ready")
	if line := g.Exec("cat", "/proc/1/cmdline"); !strings.HasPrefix(line, g.Inside+"\x00--\x00sh\x00-c\x00") {
		t.Errorf("the command line of PID 1: %q", line)
	}
	rig.Until(t, "no zombie of the main child's", func() bool { return zombiesOf(g.Engine, t, g.Name) == 0 })
	g.Exec("sh", "-c", containers.Make200Orphans)
	rig.Until(t, "no zombie of exec's", func() bool { return zombiesOf(g.Engine, t, g.Name) == 0 })
	g.Exec("sh", "-c", "echo beside >/proc/1/fd/1")
	g.Out.Want("beside")
	g.Must(t, "stop", g.Name) // sends SIGKILL in the end, which would be 137
	out := g.MustEnd(7)
	rig.WantOnce(t, out, "main got TERM")
	rig.WantOnce(t, out, "escapee done")
}
