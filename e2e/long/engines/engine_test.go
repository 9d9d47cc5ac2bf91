package engines

import (
	"strings"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/e2e/rig/containers"
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

// A foreground is a container with the client that runs it in the foreground.
type foreground struct {
	*rig.Life
	*containers.Engine
	Name string
}

// inForeground is `run flags...`, where flags end with the image and what is behind it.
func inForeground(e *containers.Engine, t testing.TB, flags ...string) *foreground {
	t.Helper()
	name := e.Name(t, "dropin")
	cmd := e.Command(t, append([]string{"run", "--network", "none", "--stop-timeout", "60", "--name", name}, flags...)...)
	return &foreground{rig.StartCmd(t, cmd), e, name}
}

// MustEnd waits for the client's end and asserts its status. It returns all of the
// container's standard output.
func (g *foreground) MustEnd(want int) string {
	g.T.Helper()
	out := g.Out.Whole()
	g.MustHaveStatus(want)
	return out
}

func (g *foreground) Exec(args ...string) string {
	g.T.Helper()
	return g.Must(g.T, append([]string{"exec", g.Name}, args...)...)
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
	rig.Until(t, "no zombie of the main child's", func() bool { return g.Zombies(t, g.Name) == 0 })
	g.Exec("sh", "-c", containers.Make200Orphans)
	rig.Until(t, "no zombie of exec's", func() bool { return g.Zombies(t, g.Name) == 0 })
	g.Exec("sh", "-c", "echo beside >/proc/1/fd/1")
	g.Out.Want("beside")
	g.Must(t, "stop", g.Name) // sends SIGKILL in the end, which would be 137
	out := g.MustEnd(7)
	rig.WantOnce(t, out, "main got TERM")
	rig.WantOnce(t, out, "escapee done")
}
