package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-126c5d8a/fini/e2e/need"
	"golang.org/x/sys/unix"
)

// What fini replaces: the init that an engine puts into a container. Each engine runs
// fini as it runs its own, and its own beside it for contrast.

// An engine runs containers.
type engine struct {
	client []string // with the flags that each call takes
	env    []string
	image  string // busybox, with no environment of its own
	fini   func(flags []string, command ...string) []string
	inside string   // where fini is in the container then
	theirs string   // the name of the engine's own init
	smoke  bool     // what each flag does is asked of the other engine
	remove []string // what ends a container and removes it
}

// TestDropInDocker runs fini where Docker mounts its docker-init: on a host's engine that
// can't be told --init-path, so the mount and the arguments are made here.
func TestDropInDocker(t *testing.T) {
	t.Parallel()
	need.That(t, dockerWorks(), "a running Docker engine, which e2e/dockerd.sh starts")
	e := &engine{client: []string{"docker"}, inside: "/sbin/docker-init", theirs: "tini", remove: []string{"rm", "-f"}}
	e.fini = func(flags []string, command ...string) []string {
		flags = append([]string{"-v", finiFile(t) + ":" + e.inside + ":ro", "--entrypoint", e.inside}, flags...)
		return append(append(flags, e.image, "--"), command...)
	}
	e.image = dockerName("base")
	load := e.command(t, "import", "-", e.image)
	load.Stdin = busyboxTar(t, needStaticBusybox(t))
	if out, err := load.CombinedOutput(); err != nil {
		t.Fatalf("docker import: %v: %s", err, out)
	}
	t.Cleanup(func() { e.must(t, "rmi", e.image) })
	parts := map[string]func(t *testing.T, e *engine){"pause": dropInPause, "terminal": dropInTerminal}
	if asInCI() {
		parts["their init"], parts["no init"] = dropInContrast, dropInNoInit
	}
	e.run(t, parts)
}

// TestDropInPodman gives fini to podman as --init-path, and as the pause process of pods.
// Everything that podman keeps is in a directory of the test's.
func TestDropInPodman(t *testing.T) {
	t.Parallel()
	need.Root(t, "for podman")
	need.Program(t, "runc")
	e := &engine{client: podmanClient(t), inside: "/run/podman-init", theirs: "catatonit", smoke: true}
	e.remove = []string{"rm", "-f", "-t", "0"} // it would stop them first, with patience
	e.fini = func(flags []string, command ...string) []string {
		flags = append([]string{"--init", "--init-path", finiFile(t)}, flags...)
		return append(append(flags, e.image), command...)
	}
	e.image = "localhost/fini-e2e:base"
	e.env = podmanConfig(t)
	load := e.command(t, "import", "-", e.image)
	load.Stdin = busyboxTar(t, needStaticBusybox(t))
	if out, err := load.CombinedOutput(); err != nil {
		t.Fatalf("podman import: %v: %s", err, out)
	}
	out, err := e.command(t, "run", "--rm", "--network", "none", e.image, "true").CombinedOutput()
	need.That(t, err == nil, fmt.Sprintf("a podman that runs containers here (%v: %s)", err, out))
	e.run(t, map[string]func(t *testing.T, e *engine){"play kube": podmanPlayKube})
}

func needStaticBusybox(t *testing.T) string {
	t.Helper()
	busybox := need.Program(t, "busybox")
	need.That(t, isStatic(busybox), "a static busybox (busybox-static)")
	return busybox
}

func finiFile(t testing.TB) string {
	t.Helper()
	path, err := filepath.Abs(finiPath)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// podmanClient is podman with a storage of its own.
func podmanClient(t *testing.T) []string {
	t.Helper()
	podman := need.Program(t, "podman")
	// Not t.TempDir: podman refuses long names of such directories.
	dir, err := os.MkdirTemp("", "fini-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// podman mounts its storage on itself. The process that cleans up behind each
		// container may be at it yet.
		until(t, "podman's directory can be removed", func() bool {
			_ = unix.Unmount(filepath.Join(dir, "root", "overlay"), unix.MNT_DETACH)
			return os.RemoveAll(dir) == nil
		})
	})
	return []string{podman, "--root", filepath.Join(dir, "root"), "--runroot", filepath.Join(dir, "run"),
		"--tmpdir", filepath.Join(dir, "tmp"), "--network-config-dir", filepath.Join(dir, "net"),
		"--volumepath", filepath.Join(dir, "volumes"), "--cgroup-manager", "cgroupfs", "--runtime", "runc"}
}

// podmanConfig is an environment in which podman finds fini under the name of catatonit,
// of which it makes the image of a pod's pause process.
func podmanConfig(t *testing.T) []string {
	t.Helper()
	dir := t.TempDir()
	binary, err := os.ReadFile(finiPath)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "catatonit"), binary, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(dir, "containers.conf")
	text := fmt.Sprintf(`
[containers]
default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]
log_driver = "k8s-file"
[engine]
lock_type = "file"
events_logger = "file"
helper_binaries_dir = [%q, "/usr/local/libexec/podman", "/usr/local/lib/podman", "/usr/libexec/podman", "/usr/lib/podman"]
`, dir)
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return append(os.Environ(), "CONTAINERS_CONF="+config)
}

// run runs what holds with every engine, and other parts.
func (e *engine) run(t *testing.T, parts map[string]func(t *testing.T, e *engine)) {
	for name, flags := range map[string][]string{
		"root":              nil,
		"all of these":      {"--user", "1000", "--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges"},
		"user":              {"--user", "1000"},
		"read-only":         {"--read-only"},
		"no capabilities":   {"--cap-drop", "ALL"},
		"no new privileges": {"--security-opt", "no-new-privileges"},
	} {
		if name != "root" && (e.smoke || name != "all of these" && !asInCI()) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			t.Run("status", func(t *testing.T) { e.status(t, flags, name == "root" && !e.smoke) })
			t.Run("stop", func(t *testing.T) { e.stop(t, flags) })
		})
	}
	for name, part := range parts {
		t.Run(name, func(t *testing.T) { t.Parallel(); part(t, e) })
	}
}

// command is the client, ended where it hangs.
func (e *engine) command(t testing.TB, args ...string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	t.Cleanup(cancel)
	args = append(e.client[1:len(e.client):len(e.client)], args...)
	cmd := exec.CommandContext(ctx, e.client[0], args...)
	cmd.Env = e.env
	cmd.WaitDelay = patience // of podman, whose conmon may hold the pipe
	return cmd
}

// must runs the client, which has to succeed, and returns its standard output.
func (e *engine) must(t testing.TB, args ...string) string {
	t.Helper()
	out, err := e.command(t, args...).Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = fmt.Errorf("%w: %s", err, exit.Stderr)
		}
		t.Fatalf("%s %q: %v", e.client[0], args, err)
	}
	return strings.TrimSpace(string(out))
}

var dropInNames atomic.Int64

// name is one that nobody else uses, and that of a container which is removed in the end.
func (e *engine) name(t testing.TB) string {
	t.Helper()
	name := fmt.Sprintf("fini-e2e-dropin-%d-%d", os.Getpid(), dropInNames.Add(1))
	t.Cleanup(func() {
		if out, err := e.command(t, append(e.remove, name)...).CombinedOutput(); err != nil {
			t.Errorf("cannot remove %s: %v: %s", name, err, out)
		}
	})
	return name
}

// A foreground is a container with the client that runs it in the foreground.
type foreground struct {
	*engine
	t        testing.TB
	name     string
	cmd      *exec.Cmd
	Out, Err *lines
}

// foreground is `run flags...`, where flags end with the image and what is behind it.
func (e *engine) foreground(t testing.TB, flags ...string) *foreground {
	t.Helper()
	g := &foreground{engine: e, t: t, name: e.name(t)}
	g.cmd = e.command(t, append([]string{"run", "--network", "none", "--name", g.name}, flags...)...)
	outR, outW := pipe(t)
	errR, errW := pipe(t)
	g.cmd.Stdout, g.cmd.Stderr = outW, errW
	if err := g.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_, _ = outW.Close(), errW.Close()
	g.Out, g.Err = newLines(t, outR), newLines(t, errR)
	return g
}

// mustEnd waits for the client's end and asserts its status. It returns all of the
// container's standard output.
func (g *foreground) mustEnd(want int) string {
	g.t.Helper()
	ended := make(chan struct{})
	go func() { _ = g.cmd.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(patience):
		g.t.Fatalf("the container has not ended; its stderr: %s", g.Err.text())
	}
	g.Out.rest()
	if got := shellStatus(g.cmd.ProcessState); got != want {
		g.Err.rest()
		g.t.Errorf("status %d, want %d; its stderr: %s", got, want, g.Err.text())
	}
	return g.Out.text()
}

func (g *foreground) exec(args ...string) string {
	g.t.Helper()
	return g.must(g.t, append([]string{"exec", g.name}, args...)...)
}

// zombies counts them in the container.
func (e *engine) zombies(t testing.TB, name string) (n int) {
	t.Helper()
	// A process may be gone before its file is opened.
	stats := e.must(t, "exec", name, "/bin/sh", "-c", "cat /proc/[0-9]*/stat 2>/dev/null || :")
	for line := range strings.Lines(stats) {
		if parseStat(line).state() == 'Z' {
			n++
		}
	}
	return n
}

// status asserts all statuses that an engine tells apart, or that of a command and of none.
func (e *engine) status(t *testing.T, flags []string, all bool) {
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
		e.foreground(t, e.fini(flags, r.command...)...).mustEnd(r.want)
	}
}

// A main child with an escapee that needs 300 ms after TERM. It says "escapee ready", and
// on TERM "main got TERM" and "escapee done".
var briefly = strings.Replace(stoppable, "sleep 1;", "sleep 0.3;", 1)

func (e *engine) stop(t *testing.T, flags []string) {
	g := e.foreground(t, e.fini(flags, "sh", "-c", make200Orphans+briefly)...)
	g.Out.want("escapee ready")
	if line := g.exec("cat", "/proc/1/cmdline"); !strings.HasPrefix(line, g.inside+"\x00--\x00sh\x00-c\x00") {
		t.Errorf("the command line of PID 1: %q", line)
	}
	until(t, "no zombie of the main child's", func() bool { return g.zombies(t, g.name) == 0 })
	g.exec("sh", "-c", make200Orphans)
	until(t, "no zombie of exec's", func() bool { return g.zombies(t, g.name) == 0 })
	g.exec("sh", "-c", "echo beside >/proc/1/fd/1")
	g.Out.want("beside")
	g.must(t, "stop", g.name) // sends SIGKILL after 10 s, which would be 137
	out := g.mustEnd(7)
	wantOnce(t, out, "main got TERM")
	wantOnce(t, out, "escapee done")
}

// Under the engine's own init the escapee is killed before it is done.
func dropInContrast(t *testing.T, e *engine) {
	g := e.foreground(t, "--init", e.image, "sh", "-c", briefly)
	select {
	case line := <-g.Out.c:
		if line != "escapee ready" {
			g.Err.rest()
			need.That(t, false, fmt.Sprintf("an engine with its own init, %s (%s)", e.theirs, g.Err.text()))
		}
	case <-time.After(patience):
		t.Fatal("no line from the container")
	}
	g.must(t, "stop", g.name)
	out := g.mustEnd(7)
	wantOnce(t, out, "main got TERM")
	if strings.Contains(out, "escapee done") {
		t.Errorf("%s let the escapee finish, so fini's doing so shows nothing", e.theirs)
	}
}

// Without any init the orphans stay, and they can be counted.
func dropInNoInit(t *testing.T, e *engine) {
	g := e.foreground(t, e.image, "sh", "-c", "echo up; exec sleep 1000")
	g.Out.want("up")
	g.exec("sh", "-c", make200Orphans)
	until(t, "200 zombies without fini", func() bool { return g.zombies(t, g.name) == 200 })
}

// fini -P is PID 1 of a namespace that another container joins.
func dropInPause(t *testing.T, e *engine) {
	joined := func(pause *foreground) *foreground {
		t.Helper()
		until(t, "the container runs", func() bool {
			out, _ := e.command(t, "inspect", "-f", "{{.State.Running}}", pause.name).Output()
			return strings.TrimSpace(string(out)) == "true"
		})
		g := e.foreground(t, "--pid", "container:"+pause.name, e.image, "sh", "-c",
			`echo "I am $$"; `+make200Orphans+"echo made; exec sleep 1000")
		if g.Out.wantPid("I am ") == 1 {
			t.Error("the container has a PID namespace of its own")
		}
		g.Out.want("made")
		return g
	}
	pause := e.foreground(t, "-v", finiFile(t)+":/fini:ro", "--entrypoint", "/fini", e.image, "-P")
	g := joined(pause)
	until(t, "no zombie beside fini -P", func() bool { return e.zombies(t, g.name) == 0 })
	e.must(t, "stop", pause.name) // sends SIGKILL after 10 s, which would be 137
	if out := pause.mustEnd(0); out != "" {
		t.Errorf("fini -P wrote %q", out)
	}
	g.mustEnd(137) // with its namespace

	g = joined(e.foreground(t, e.image, "sleep", "1000"))
	until(t, "200 zombies beside sleep", func() bool { return e.zombies(t, g.name) == 200 })
}

// A shell on a terminal has its jobs, with the client's terminal as far as its own.
func dropInTerminal(t *testing.T, e *engine) {
	name := e.name(t)
	// What is typed before the shell has set the terminal for a prompt may be lost, so each
	// prompt is waited for, and has a line of its own.
	args := append([]string{"run", "--network", "none", "--name", name, "-it", "-e", "PS1=prompt>\n"},
		e.fini(nil, "sh")...)
	l, screen, keys := onTerminal(t, e.command(t, args...))
	press := func(text string) {
		t.Helper()
		if _, err := io.WriteString(keys, text); err != nil {
			t.Fatal(err)
		}
	}
	enter := func(line string) {
		t.Helper()
		screen.want("prompt>")
		press(line + "\n")
	}
	// The shell shows what is typed, in a line that begins otherwise than the answer.
	enter("echo begin")
	screen.want("begin")
	enter("sh -c 'echo sleeping; exec sleep 1000'")
	screen.want("sleeping")
	press("\x03") // Ctrl-C
	enter("echo status $?")
	screen.want("status 130")
	// That it was continued it says when the terminal is its own: Ctrl-C before that is the shell's.
	enter(`sh -c 'trap "echo goes on" CONT; echo sleeping; while :; do sleep 1; done'`)
	screen.want("sleeping")
	press("\x1a") // Ctrl-Z
	screen.want("^Z[1]+  Stopped")
	enter("echo the prompt is back")
	screen.want("the prompt is back")
	enter("fg; echo status $?")
	screen.want("goes on")
	press("\x03")
	enter("echo and here")
	screen.want("and here")
	enter("exit 3")
	if got := l.status(); got != 3 {
		t.Errorf("status %d, want 3; screen: %s", got, screen.text())
	}
}

// A pod whose containers share a PID namespace has fini three times: as podman's pause
// process, in front of the command, and there as a pair, for it is not PID 1. podman gives
// a container of an image without a PATH none.
func podmanPlayKube(t *testing.T, e *engine) {
	pod := fmt.Sprintf("fini-e2e-pod-%d", os.Getpid())
	script := `tr '\0' '\n' </proc/$$/environ; echo environ ends; ` + make200Orphans + briefly
	kube, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": map[string]any{"name": pod},
		"spec": map[string]any{
			"shareProcessNamespace": true,
			"restartPolicy":         "Never",
			"containers": []any{map[string]any{
				"name": "one", "image": e.image, "imagePullPolicy": "Never",
				"command":      []string{"/fini", "--", "sh", "-c", script},
				"volumeMounts": []any{map[string]any{"name": "fini", "mountPath": "/fini"}},
			}},
			"volumes": []any{map[string]any{
				"name": "fini", "hostPath": map[string]any{"path": finiFile(t), "type": "File"},
			}},
		},
	})
	file := filepath.Join(t.TempDir(), "pod.yaml")
	if err == nil {
		err = os.WriteFile(file, kube, 0o644) // JSON is YAML
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.must(t, "pod", "rm", "-f", "-t", "0", pod) })
	e.must(t, "play", "kube", "--network", "none", file)
	one := pod + "-one"

	logs := func() string { return e.must(t, "logs", one) }
	until(t, "escapee ready", func() bool { return strings.Contains(logs(), "escapee ready") })
	environ, _, _ := strings.Cut(logs(), "environ ends")
	if !strings.Contains(environ, "HOSTNAME=") || strings.Contains("\n"+environ, "\nPATH=") {
		t.Errorf("this should be an environment without PATH: %q", environ)
	}
	version, err := exec.Command(finiPath, "--version").Output()
	if err != nil {
		t.Fatal(err)
	}
	if got := e.must(t, "exec", one, "/proc/1/exe", "--version"); got != strings.TrimSpace(string(version)) {
		t.Errorf("the pause process says that it is %q", got)
	}
	if got := e.must(t, "exec", one, "/bin/cat", "/proc/1/cmdline"); !strings.HasSuffix(got, "\x00-P\x00") {
		t.Errorf("the pause process runs as %q", got)
	}
	until(t, "no zombie of the main child's", func() bool { return e.zombies(t, one) == 0 })
	e.must(t, "exec", one, "/bin/sh", "-c", make200Orphans)
	until(t, "no zombie of exec's", func() bool { return e.zombies(t, one) == 0 })

	// By itself, for `pod stop` sends TERM to the pause process in the same moment, and the
	// command dies with the namespace. Each gets SIGKILL after 10 s, which would be 137.
	e.must(t, "stop", one)
	if got := e.must(t, "wait", one); got != "7" {
		t.Errorf("status %s of the command, want 7", got)
	}
	e.must(t, "pod", "stop", pod)
	infra := e.must(t, "pod", "inspect", "-f", "{{.InfraContainerID}}", pod)
	if got := e.must(t, "wait", infra); got != "0" {
		t.Errorf("status %s of the pause process, want 0", got)
	}
	wantOnce(t, logs(), "main got TERM")
	wantOnce(t, logs(), "escapee done")
}
