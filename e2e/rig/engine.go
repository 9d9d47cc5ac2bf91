package rig

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// An engine runs containers.
type Engine struct {
	Client []string // with the flags that each call takes
	Env    []string
	Image  string // busybox, with no environment of its own
	Fini   func(flags []string, command ...string) []string
	Inside string   // where fini is in the container then
	Smoke  bool     // what each flag does is asked of the other engine
	Remove []string // what ends a container and removes it
}

// Run runs what holds with every engine, and other parts.
func (e *Engine) Run(t *testing.T, parts map[string]func(t *testing.T, e *Engine)) {
	for name, flags := range map[string][]string{
		"root":      nil,
		"no rights": {"--user", "1000", "--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges"},
	} {
		if name != "root" && e.Smoke {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			t.Run("status", func(t *testing.T) { e.status(t, flags, name == "root" && !e.Smoke) })
			t.Run("stop", func(t *testing.T) { e.stop(t, flags) })
		})
	}
	for name, part := range parts {
		t.Run(name, func(t *testing.T) { t.Parallel(); part(t, e) })
	}
}

// Command is the client, ended where it hangs.
func (e *Engine) Command(t testing.TB, args ...string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*Patience)
	t.Cleanup(cancel)
	args = append(e.Client[1:len(e.Client):len(e.Client)], args...)
	cmd := exec.CommandContext(ctx, e.Client[0], args...)
	cmd.Env = e.Env
	cmd.WaitDelay = Patience // of podman, whose conmon may hold the pipe
	return cmd
}

// Must runs the client, which has to succeed, and returns its standard output.
func (e *Engine) Must(t testing.TB, args ...string) string {
	t.Helper()
	out, err := e.Command(t, args...).Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = fmt.Errorf("%w: %s", err, exit.Stderr)
		}
		t.Fatalf("%s %q: %v", e.Client[0], args, err)
	}
	return strings.TrimSpace(string(out))
}

// Import makes the engine's image of a busybox.
func (e *Engine) Import(t *testing.T, busybox string) {
	t.Helper()
	load := e.Command(t, "import", "-", e.Image)
	load.Stdin = BusyboxTar(t, busybox)
	if out, err := load.CombinedOutput(); err != nil {
		t.Fatalf("%s import: %v: %s", e.Client[0], err, out)
	}
}

var dropInNames atomic.Int64

// Name is one that nobody else uses, and that of a container which is removed in the end.
func (e *Engine) Name(t testing.TB) string {
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
type Foreground struct {
	*Engine
	t        testing.TB
	Name     string
	cmd      *exec.Cmd
	Out, Err *Lines
}

// Foreground is `run flags...`, where flags end with the image and what is behind it.
func (e *Engine) Foreground(t testing.TB, flags ...string) *Foreground {
	t.Helper()
	g := &Foreground{Engine: e, t: t, Name: e.Name(t)}
	g.cmd = e.Command(t, append([]string{"run", "--network", "none", "--stop-timeout", "60", "--name", g.Name}, flags...)...)
	outR, outW := Pipe(t)
	errR, errW := Pipe(t)
	g.cmd.Stdout, g.cmd.Stderr = outW, errW
	if err := g.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_, _ = outW.Close(), errW.Close()
	g.Out, g.Err = NewLines(t, outR), NewLines(t, errR)
	return g
}

// MustEnd waits for the client's end and asserts its status. It returns all of the
// container's standard output.
func (g *Foreground) MustEnd(want int) string {
	g.t.Helper()
	ended := make(chan struct{})
	go func() { _ = g.cmd.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(Patience):
		g.t.Fatalf("the container has not ended; its stderr: %s", g.Err.Text())
	}
	g.Out.Rest()
	if got := ShellStatus(g.cmd.ProcessState); got != want {
		g.Err.Rest()
		g.t.Errorf("status %d, want %d; its stderr: %s", got, want, g.Err.Text())
	}
	return g.Out.Text()
}

func (g *Foreground) Exec(args ...string) string {
	g.t.Helper()
	return g.Must(g.t, append([]string{"exec", g.Name}, args...)...)
}

// Zombies counts them in the container.
func (e *Engine) Zombies(t testing.TB, name string) (n int) {
	t.Helper()
	// A process may be gone before its file is opened.
	stats := e.Must(t, "exec", name, "/bin/sh", "-c", "cat /proc/[0-9]*/stat 2>/dev/null || :")
	for line := range strings.Lines(stats) {
		if ParseStat(line).State() == 'Z' {
			n++
		}
	}
	return n
}

// status asserts all statuses that an engine tells apart, or that of a command and of none.
func (e *Engine) status(t *testing.T, flags []string, all bool) {
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
		e.Foreground(t, e.Fini(flags, r.command...)...).MustEnd(r.want)
	}
}

// A main child with an escapee that needs 300 ms after TERM. It says "escapee ready", and
// on TERM "main got TERM" and "escapee done".
var Briefly = strings.Replace(Stoppable, "sleep 1;", "sleep 0.3;", 1)

func (e *Engine) stop(t *testing.T, flags []string) {
	g := e.Foreground(t, e.Fini(flags, "sh", "-c", Make200Orphans+Briefly)...)
	g.Out.Want("escapee ready")
	if line := g.Exec("cat", "/proc/1/cmdline"); !strings.HasPrefix(line, g.Inside+"\x00--\x00sh\x00-c\x00") {
		t.Errorf("the command line of PID 1: %q", line)
	}
	Until(t, "no zombie of the main child's", func() bool { return g.Zombies(t, g.Name) == 0 })
	g.Exec("sh", "-c", Make200Orphans)
	Until(t, "no zombie of exec's", func() bool { return g.Zombies(t, g.Name) == 0 })
	g.Exec("sh", "-c", "echo beside >/proc/1/fd/1")
	g.Out.Want("beside")
	g.Must(t, "stop", g.Name) // sends SIGKILL in the end, which would be 137
	out := g.MustEnd(7)
	WantOnce(t, out, "main got TERM")
	WantOnce(t, out, "escapee done")
}
