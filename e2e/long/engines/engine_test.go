package engines

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/e2e/rig/containers"
	"github.com/seed-126c5d8a/fini/internal/tests/need"
)

func TestMain(m *testing.M) { rig.MainOfOthers(m) }

func dockerEngine(t *testing.T) *containers.Engine {
	t.Helper()
	containers.NeedDocker(t)
	return &containers.Engine{Client: []string{"docker"}, Remove: []string{"rm", "-f"}}
}

// podmanEngine is podman with a busybox.
func podmanEngine(t *testing.T, client, env []string) *containers.Engine {
	t.Helper()
	need.Program(t, "runc")
	// Without -t it would stop what it removes first, with patience.
	e := &containers.Engine{Client: client, Env: env, Image: "localhost/fini-e2e:base", Remove: []string{"rm", "-f", "-t", "0"}}
	e.Import(t, e.Image)
	out, err := e.Command(t, "run", "--rm", "--network", "none", e.Image, "true").CombinedOutput()
	need.That(t, err == nil, fmt.Sprintf("a podman that runs containers here (%v: %s)", err, out))
	return e
}

// rootlessPodman is podman for a user that nobody has made, with all that it keeps in a
// directory of that user's; and fini where that user can read it.
func rootlessPodman(t *testing.T, uid int) (e *containers.Engine, fini string) {
	t.Helper()
	need.Root(t, "to become a user without rights")
	need.Program(t, "setpriv")
	// Not t.TempDir, whose parent another user can't look into.
	dir, err := os.MkdirTemp("", "fini-")
	rig.NoError(t, err)
	in := func(name string) string { return filepath.Join(dir, name) }
	fini = rig.Put(t, in("fini"), rig.ReadFile(t, rig.Fini), 0o755)
	rig.Put(t, in("containers.conf"), containers.PodmanConf, 0o644)
	id := strconv.Itoa(uid)
	rig.Run(t, "install", "-d", "-m", "700", "-o", id, "-g", id, dir, in("home"), in("run"))
	t.Cleanup(func() {
		e.Must(t, "system", "migrate") // ends the process that keeps the user's namespaces
		rig.Until(t, "podman's directory can be removed", func() bool { return os.RemoveAll(dir) == nil })
	})
	return podmanEngine(t,
		// The user may not be allowed into the directory that the tests run in.
		[]string{"env", "-C", "/", "setpriv", "--reuid=" + id, "--regid=" + id, "--clear-groups", "--",
			need.Program(t, "podman"), "--root", in("root"), "--runroot", in("runroot"), "--cgroup-manager", "cgroupfs", "--runtime", "runc"},
		[]string{"PATH=" + os.Getenv("PATH"), "HOME=" + in("home"), "XDG_RUNTIME_DIR=" + in("run"), "CONTAINERS_CONF=" + in("containers.conf")},
	), fini
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
	name := e.Name(t, "foreground")
	cmd := e.Command(t, append([]string{"run", "--network", "none", "--stop-timeout", "60", "--name", name}, flags...)...)
	return &foreground{rig.StartCmd(t, cmd), e, name}
}

// MustEnd waits for the end of the client, and for that of the container, which may outlive it, and asserts the status of
// each. It returns all of the container's standard output.
func (g *foreground) MustEnd(client, container int) string {
	g.T.Helper()
	out := g.Out.Whole()
	g.MustHaveStatus(client)
	if got := g.Must(g.T, "wait", g.Name); got != strconv.Itoa(container) {
		g.T.Errorf("status %s of the container, want %d; stderr: %s", got, container, g.Err.Text())
	}
	return out
}

func (g *foreground) Exec(args ...string) string {
	g.T.Helper()
	return g.Must(g.T, append([]string{"exec", g.Name}, args...)...)
}

func (g *foreground) Send(text string) {
	g.T.Helper()
	rig.NoError(g.T, g.Stdin.(*os.File).SetWriteDeadline(time.Now().Add(rig.Patience)))
	rig.Write(g.T, g.Life, text)
}

// countIn counts the processes in a container, as the engine lists those of its cgroup.
func countIn(e *containers.Engine, t testing.TB, name string) int {
	t.Helper()
	out, err := e.Command(t, "top", name, "-o", "pid").Output()
	if err != nil && isRunning(e, t, name) { // otherwise it has to be because the container has ended
		t.Fatalf("docker top: %v", err)
	}
	return max(0, strings.Count(string(out), "\n")-1) // without the heading
}

func isRunning(e *containers.Engine, t testing.TB, name string) bool {
	t.Helper()
	out, _ := e.Command(t, "inspect", "-f", "{{.State.Running}}", name).Output()
	return strings.TrimSpace(string(out)) == "true"
}

// wrapped is what `run` takes for a command in a column of the table. What stands
// for tini there is the engine's own init, which is tini.
func wrapped(e *containers.Engine, t testing.TB, wrap, flags []string, command ...string) []string {
	t.Helper()
	if wrap != nil && filepath.Base(wrap[0]) == "tini" {
		out, err := e.Command(t, "run", "--rm", "--network", "none", "--init", "--entrypoint", "true", e.Image).CombinedOutput()
		need.That(t, err == nil, fmt.Sprintf("an engine with its own init, tini (%v: %s)", err, out))
		flags = append([]string{"--init"}, flags...)
	} else if wrap != nil {
		command = slices.Concat([]string{"/fini"}, wrap[1:], command)
	}
	return slices.Concat([]string{"--entrypoint", command[0]}, flags, []string{e.Image}, command[1:])
}
