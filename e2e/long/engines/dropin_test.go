package engines

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/e2e/rig/containers"
	"github.com/seed-126c5d8a/fini/e2e/rig/pty"
	"github.com/seed-126c5d8a/fini/internal/tests/need"
)

// What fini replaces: the init that an engine puts into a container. Each engine runs fini as it runs its own.

// A dropIn is an engine that runs fini as its init.
type dropIn struct {
	*containers.Engine
	inside string                         // where fini is in the container
	run    func(flags ...string) []string // flags of `run`, up to the image and what is behind it
}

var noRights = []string{"--user", "1000", "--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges"}

// TestDropInDocker runs fini where Docker mounts its docker-init: on a host's engine that
// can't be told --init-path, so the mount and the arguments are made here.
func TestDropInDocker(t *testing.T) {
	t.Parallel()
	e := &dropIn{Engine: dockerEngine(t), inside: "/sbin/docker-init"}
	e.Image = containers.Base(t)
	e.run = func(flags ...string) []string {
		return slices.Concat([]string{"-v", rig.Fini + ":" + e.inside + ":ro", "--entrypoint", e.inside}, flags, []string{e.Image, "--"})
	}
	e.play(t, map[string]func(t *testing.T, e *dropIn){
		"root/status":      func(t *testing.T, e *dropIn) { checkStatus(t, e, nil, allStatuses) },
		"root/stop":        func(t *testing.T, e *dropIn) { checkStop(t, e, nil) },
		"no rights/status": func(t *testing.T, e *dropIn) { checkStatus(t, e, noRights, fewStatuses) },
		"no rights/stop":   func(t *testing.T, e *dropIn) { checkStop(t, e, noRights) },
		"pause":            dropInPause,
		"sandbox":          dropInSandbox,
		"terminal":         dropInTerminal,
		"the child alone":  dropInAlone,
	})
}

// TestDropInPodman gives fini to podman as --init-path, and as the pause process of pods.
// Everything that podman keeps is in a directory of the test's.
func TestDropInPodman(t *testing.T) {
	t.Parallel()
	need.Root(t, "for podman")
	e := &dropIn{Engine: podmanEngine(t, containers.PodmanClient(t), containers.PodmanConfig(t)), inside: "/run/podman-init"}
	e.run = func(flags ...string) []string {
		return slices.Concat([]string{"--init", "--init-path", rig.Fini}, flags, []string{e.Image})
	}
	e.play(t, map[string]func(t *testing.T, e *dropIn){
		"root/status":     func(t *testing.T, e *dropIn) { checkStatus(t, e, nil, fewStatuses) },
		"root/stop":       func(t *testing.T, e *dropIn) { checkStop(t, e, nil) },
		"play kube":       podmanPlayKube,
		"sandbox":         dropInSandbox,
		"the child alone": dropInAlone,
	})
}

func (e *dropIn) play(t *testing.T, parts map[string]func(t *testing.T, e *dropIn)) {
	for name, part := range parts {
		t.Run(name, func(t *testing.T) { t.Parallel(); part(t, e) })
	}
}

// start runs a command with fini as the engine's init.
func (e *dropIn) start(t *testing.T, flags []string, command ...string) *foreground {
	t.Helper()
	return inForeground(e.Engine, t, append(e.run(flags...), command...)...)
}

// The statuses that an engine tells apart, and that of a command and of none.
var (
	fewStatuses = map[int][]string{3: {"sh", "-c", "exit 3"}, 127: {"no-such-command"}}
	allStatuses = map[int][]string{
		3: {"sh", "-c", "exit 3"}, 127: {"no-such-command"}, 0: {"true"}, 255: {"sh", "-c", "exit 255"}, 126: {"/bin/plain-text"},
		137: {"sh", "-c", "kill -KILL $$"}, 143: {"sh", "-c", "kill -TERM $$"},
	}
)

func checkStatus(t *testing.T, e *dropIn, flags []string, statuses map[int][]string) {
	for status, command := range statuses {
		e.start(t, flags, command...).MustEnd(status, status)
	}
}

// A main child with an escapee that needs 300 ms after TERM. It says "escapee ready", and
// on TERM "main got TERM" and "escapee done".
var briefly = strings.Replace(containers.Stoppable, "sleep 1;", "sleep 0.3;", 1)

func checkStop(t *testing.T, e *dropIn, flags []string) {
	g := e.start(t, flags, "sh", "-c", containers.Make200Orphans+briefly)
	g.Out.Want("escapee ready")
	if line := g.Exec("cat", "/proc/1/cmdline"); !strings.HasPrefix(line, e.inside+"\x00--\x00sh\x00-c\x00") {
		t.Errorf("the command line of PID 1: %q", line)
	}
	mustReap(t, e.Engine, g.Name)
	g.Exec("sh", "-c", "echo beside >/proc/1/fd/1")
	g.Out.Want("beside")
	g.Must(t, "stop", g.Name) // sends SIGKILL in the end, which would be 137
	out := g.MustEnd(7, 7)
	rig.WantOnce(t, out, "main got TERM")
	rig.WantOnce(t, out, "escapee done")
}

// mustReap waits until no orphan of the container's command is a zombie, and none of an exec's.
func mustReap(t *testing.T, e *containers.Engine, name string) {
	t.Helper()
	rig.Until(t, "no zombie of the main child's", func() bool { return e.Zombies(t, name) == 0 })
	e.Must(t, "exec", name, "/bin/sh", "-c", containers.Make200Orphans)
	rig.Until(t, "no zombie of exec's", func() bool { return e.Zombies(t, name) == 0 })
}

// As the init of an engine, whose name it has, fini signals the main child alone, as that init does. A variable changes
// that, since an engine passes no flag.
func dropInAlone(t *testing.T, e *dropIn) {
	for variable, group := range map[string]bool{"FINI_SINGLE_CHILD=": false, "FINI_SINGLE_CHILD=0": true} {
		g := e.start(t, []string{"-e", variable}, "sh", "-c", `
			sh -c 'trap "echo member got USR1" USR1; trap "echo sentinel" USR2; echo member $$; while :; do sleep 0.1; done' &
			trap "echo main got USR1" USR1
			while :; do wait; done`)
		member := g.Out.WantPID("member ")
		e.Must(t, "kill", "-s", "USR1", g.Name)
		g.Out.Want("main got USR1")
		g.Exec("kill", "-USR2", strconv.Itoa(member)) // the shell takes it after a USR1
		g.Out.Want("sentinel")
		if got := strings.Contains(g.Out.Text(), "member got USR1"); got != group {
			t.Errorf("%q: the group got the signal: %t, want %t", variable, got, group)
		}
		e.Must(t, "kill", g.Name)
		g.MustEnd(137, 137)
	}
}

// fini -P is PID 1 of a namespace that another container joins. Beside sleep, the zombies stay.
func dropInPause(t *testing.T, e *dropIn) {
	joined := func(flags ...string) (pause, g *foreground) {
		t.Helper()
		pause = inForeground(e.Engine, t, flags...)
		rig.Until(t, "the container runs", func() bool { return isRunning(e.Engine, t, pause.Name) })
		g = inForeground(e.Engine, t, "--pid", "container:"+pause.Name, e.Image, "sh", "-c",
			`echo "I am $$"; `+containers.Make200Orphans+"echo made; exec sleep 1000")
		if g.Out.WantPID("I am ") == 1 {
			t.Error("the container has a PID namespace of its own")
		}
		g.Out.Want("made")
		return pause, g
	}
	pause, g := joined("-v", rig.Fini+":/fini:ro", "--entrypoint", "/fini", e.Image, "-P")
	rig.Until(t, "no zombie beside fini -P", func() bool { return e.Zombies(t, g.Name) == 0 })
	e.Must(t, "stop", pause.Name) // sends SIGKILL in the end, which would be 137
	if out := pause.MustEnd(0, 0); out != "" {
		t.Errorf("fini -P wrote %q", out)
	}
	g.MustEnd(143, 143) // it came into the namespace from outside, so fini asks it

	_, g = joined(e.Image, "sleep", "1000")
	rig.Until(t, "200 zombies beside sleep", func() bool { return e.Zombies(t, g.Name) == 200 })
}

// A sandbox ends by its engine, also beside a loop of `kill 1`, and asks the call that runs.
func dropInSandbox(t *testing.T, e *dropIn) {
	for range rig.QuickOrFull(3, 20) {
		out := t.TempDir()
		g := inForeground(e.Engine, t, "-v", rig.Fini+":/fini:ro", "-v", out+":/out", "--stop-signal", "RTMIN+3", "--entrypoint", "/fini", e.Image, "-P")
		rig.Until(t, "the container runs", func() bool { return isRunning(e.Engine, t, g.Name) })
		e.Must(t, "exec", "-d", g.Name, "/fini", "--", "sh", "-c", `
			trap "echo asked >>/out/call; exit" TERM
			echo ready >/out/call
			while :; do sleep 1000 & wait; done`)
		e.Must(t, "exec", "-d", g.Name, "sh", "-c", "echo loops >/out/loop; while :; do kill 1; done")
		for _, name := range []string{"call", "loop"} {
			rig.Until(t, "it runs", func() bool { text, _ := os.ReadFile(filepath.Join(out, name)); return len(text) > 0 })
		}
		e.Must(t, "stop", "-t", "60", g.Name)
		g.MustEnd(0, 0)
		rig.Equal(t, "what the call has written", rig.ReadFile(t, filepath.Join(out, "call")), "ready\nasked\n")
	}
}

// A shell on a terminal has its jobs, with the client's terminal as far as its own.
func dropInTerminal(t *testing.T, e *dropIn) {
	// What is typed before the shell has set the terminal for a prompt may be lost, so each
	// prompt is waited for, and has a line of its own.
	args := append([]string{"run", "--network", "none", "--name", e.Name(t, "dropin"), "-it", "-e", "PS1=prompt>\n"}, e.run()...)
	l, screen, keys := pty.Start(t, e.Command(t, append(args, "sh")...))
	// The kernel shows a key after it has sent the key's signal: before or behind what the shell then says.
	echoes := strings.NewReplacer("^C", "", "^Z", "")
	for _, step := range [][2]string{ // what a line begins with that is waited for, and what is typed then
		{"prompt>", "echo begin\n"}, {"begin", ""},
		{"prompt>", "sh -c 'echo sleeping; exec sleep 1000'\n"}, {"sleeping", "\x03"},
		{"prompt>", "echo status $?\n"}, {"status 130", ""},
		// That it was continued it says when the terminal is its own: Ctrl-C before that is the shell's.
		{"prompt>", `sh -c 'trap "echo goes on" CONT; echo sleeping; while :; do sleep 1; done'` + "\n"}, {"sleeping", "\x1a"},
		{"[1]+  Stopped", ""}, {"prompt>", "echo the prompt is back\n"}, {"the prompt is back", ""},
		{"prompt>", "fg; echo status $?\n"}, {"goes on", "\x03"},
		{"prompt>", "echo and here\n"}, {"and here", ""}, {"prompt>", "exit 3\n"},
	} {
		for line, ok := "", true; !strings.HasPrefix(echoes.Replace(line), step[0]); {
			if line, ok = screen.Next(); !ok {
				t.Fatalf("EOF before a line that begins with %q; screen: %s", step[0], screen.Text())
			}
		}
		_, err := io.WriteString(keys, step[1])
		rig.NoError(t, err)
	}
	l.MustHaveStatus(3)
}

const podYAML = `
apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  shareProcessNamespace: true
  restartPolicy: Never
  containers:
  - name: one
    image: %s
    imagePullPolicy: Never
    command: [/fini, "--", sh, -c, %q]
    volumeMounts: [{name: fini, mountPath: /fini}]
  volumes: [{name: fini, hostPath: {path: %q, type: File}}]
`

// A pod whose containers share a PID namespace has fini three times: as podman's pause
// process, in front of the command, and there as a pair, for it is not PID 1. podman gives
// a container of an image without a PATH none.
func podmanPlayKube(t *testing.T, e *dropIn) {
	pod := containers.UniqueName("pod")
	one := pod + "-one"
	script := `tr '\0' '\n' </proc/$$/environ; echo environ ends; ` + containers.Make200Orphans + briefly
	file := rig.Put(t, filepath.Join(t.TempDir(), "pod.yaml"), fmt.Sprintf(podYAML, pod, e.Image, script, rig.Fini), 0o644)
	t.Cleanup(func() { e.Must(t, "pod", "rm", "-f", "-t", "0", pod) })
	e.Must(t, "play", "kube", "--network", "none", file)

	logs := func() string { return e.Must(t, "logs", one) }
	rig.Until(t, "escapee ready", func() bool { return strings.Contains(logs(), "escapee ready") })
	environ, _, _ := strings.Cut(logs(), "environ ends")
	if !strings.Contains(environ, "HOSTNAME=") || strings.Contains("\n"+environ, "\nPATH=") {
		t.Errorf("this should be an environment without PATH: %q", environ)
	}
	if got := e.Must(t, "exec", one, "/proc/1/exe", "--version"); got != strings.TrimSpace(rig.Run(t, rig.Fini, "--version")) {
		t.Errorf("the pause process says that it is %q", got)
	}
	if got := e.Must(t, "exec", one, "/bin/cat", "/proc/1/cmdline"); !strings.HasSuffix(got, "\x00-P\x00") {
		t.Errorf("the pause process runs as %q", got)
	}
	mustReap(t, e.Engine, one)

	// By itself, for `pod stop` sends TERM to the pause process in the same moment, and the
	// command dies with the namespace. Each gets SIGKILL after 10 s, which would be 137.
	e.Must(t, "stop", "-t", "60", one)
	e.Must(t, "pod", "stop", "-t", "60", pod)
	infra := e.Must(t, "pod", "inspect", "-f", "{{.InfraContainerID}}", pod)
	if got := e.Must(t, "wait", one, infra); got != "7\n0" {
		t.Errorf("statuses %q of the command and of the pause process, want 7 and 0", got)
	}
	rig.WantOnce(t, logs(), "main got TERM")
	rig.WantOnce(t, logs(), "escapee done")
}
