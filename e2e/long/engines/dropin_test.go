package engines

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/need"
	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/e2e/rig/containers"
	"github.com/seed-126c5d8a/fini/e2e/rig/pty"
)

// What fini replaces: the init that an engine puts into a container. Each engine runs
// fini as it runs its own.

// TestDropInDocker runs fini where Docker mounts its docker-init: on a host's engine that
// can't be told --init-path, so the mount and the arguments are made here.
func TestDropInDocker(t *testing.T) {
	t.Parallel()
	containers.NeedDocker(t)
	e := &containers.Engine{Client: []string{"docker"}, Inside: "/sbin/docker-init", Remove: []string{"rm", "-f"}}
	e.Fini = func(flags []string, command ...string) []string {
		flags = append([]string{"-v", containers.FiniFile(t) + ":" + e.Inside + ":ro", "--entrypoint", e.Inside}, flags...)
		return append(append(flags, e.Image, "--"), command...)
	}
	e.Image = containers.Base(t)
	runAll(e, t, map[string]func(t *testing.T, e *containers.Engine){"pause": dropInPause, "terminal": dropInTerminal, "the child alone": dropInAlone})
}

// TestDropInPodman gives fini to podman as --init-path, and as the pause process of pods.
// Everything that podman keeps is in a directory of the test's.
func TestDropInPodman(t *testing.T) {
	t.Parallel()
	need.Root(t, "for podman")
	need.Program(t, "runc")
	e := &containers.Engine{Client: containers.PodmanClient(t), Inside: "/run/podman-init", Smoke: true}
	e.Remove = []string{"rm", "-f", "-t", "0"} // it would stop them first, with patience
	e.Fini = func(flags []string, command ...string) []string {
		flags = append([]string{"--init", "--init-path", containers.FiniFile(t)}, flags...)
		return append(append(flags, e.Image), command...)
	}
	e.Image = "localhost/fini-e2e:base"
	e.Env = containers.PodmanConfig(t)
	e.Import(t, e.Image)
	out, err := e.Command(t, "run", "--rm", "--network", "none", e.Image, "true").CombinedOutput()
	need.That(t, err == nil, fmt.Sprintf("a podman that runs containers here (%v: %s)", err, out))
	runAll(e, t, map[string]func(t *testing.T, e *containers.Engine){"play kube": podmanPlayKube, "the child alone": dropInAlone})
}

// As the init of an engine, whose name it has, fini signals the main child alone, as that init does. A variable changes
// that, since an engine passes no flag.
func dropInAlone(t *testing.T, e *containers.Engine) {
	for variable, group := range map[string]bool{"FINI_SINGLE_CHILD=": false, "FINI_SINGLE_CHILD=0": true} {
		g := inForeground(e, t, e.Fini([]string{"-e", variable}, "sh", "-c", `
			sh -c 'trap "echo member got USR1" USR1; trap "echo sentinel" USR2; echo member $$; while :; do sleep 0.1; done' &
			trap "echo main got USR1" USR1
			while :; do wait; done`)...)
		member := g.Out.WantPID("member ")
		e.Must(t, "kill", "-s", "USR1", g.Name)
		g.Out.Want("main got USR1")
		g.Exec("kill", "-USR2", strconv.Itoa(member)) // the shell takes it after a USR1
		g.Out.Want("sentinel")
		if got := strings.Contains(g.Out.Text(), "member got USR1"); got != group {
			t.Errorf("%q: the group got the signal: %t, want %t", variable, got, group)
		}
		e.Must(t, "kill", g.Name)
		g.MustEnd(137)
	}
}

// fini -P is PID 1 of a namespace that another container joins.
func dropInPause(t *testing.T, e *containers.Engine) {
	joined := func(pause *foreground) *foreground {
		t.Helper()
		rig.Until(t, "the container runs", func() bool {
			out, _ := e.Command(t, "inspect", "-f", "{{.State.Running}}", pause.Name).Output()
			return strings.TrimSpace(string(out)) == "true"
		})
		g := inForeground(e, t, "--pid", "container:"+pause.Name, e.Image, "sh", "-c",
			`echo "I am $$"; `+containers.Make200Orphans+"echo made; exec sleep 1000")
		if g.Out.WantPID("I am ") == 1 {
			t.Error("the container has a PID namespace of its own")
		}
		g.Out.Want("made")
		return g
	}
	pause := inForeground(e, t, "-v", containers.FiniFile(t)+":/fini:ro", "--entrypoint", "/fini", e.Image, "-P")
	g := joined(pause)
	rig.Until(t, "no zombie beside fini -P", func() bool { return e.Zombies(t, g.Name) == 0 })
	e.Must(t, "stop", pause.Name) // sends SIGKILL in the end, which would be 137
	if out := pause.MustEnd(0); out != "" {
		t.Errorf("fini -P wrote %q", out)
	}
	g.MustEnd(137) // with its namespace

	g = joined(inForeground(e, t, e.Image, "sleep", "1000"))
	rig.Until(t, "200 zombies beside sleep", func() bool { return e.Zombies(t, g.Name) == 200 })
}

// A shell on a terminal has its jobs, with the client's terminal as far as its own.
func dropInTerminal(t *testing.T, e *containers.Engine) {
	name := e.Name(t, "dropin")
	// What is typed before the shell has set the terminal for a prompt may be lost, so each
	// prompt is waited for, and has a line of its own.
	args := append([]string{"run", "--network", "none", "--name", name, "-it", "-e", "PS1=prompt>\n"},
		e.Fini(nil, "sh")...)
	l, screen, keys := pty.Start(t, e.Command(t, args...))
	press := func(text string) {
		t.Helper()
		if _, err := io.WriteString(keys, text); err != nil {
			t.Fatal(err)
		}
	}
	// The kernel shows a key after it has sent the key's signal: before or behind what the shell then says.
	echoes := strings.NewReplacer("^C", "", "^Z", "")
	want := func(prefix string) {
		t.Helper()
		for line := ""; !strings.HasPrefix(echoes.Replace(line), prefix); {
			var ok bool
			if line, ok = screen.Next(); !ok {
				t.Fatalf("EOF before a line that begins with %q; screen: %s", prefix, screen.Text())
			}
		}
	}
	enter := func(line string) {
		t.Helper()
		want("prompt>")
		press(line + "\n")
	}
	// The shell shows what is typed, in a line that begins otherwise than the answer.
	enter("echo begin")
	want("begin")
	enter("sh -c 'echo sleeping; exec sleep 1000'")
	want("sleeping")
	press("\x03") // Ctrl-C
	enter("echo status $?")
	want("status 130")
	// That it was continued it says when the terminal is its own: Ctrl-C before that is the shell's.
	enter(`sh -c 'trap "echo goes on" CONT; echo sleeping; while :; do sleep 1; done'`)
	want("sleeping")
	press("\x1a") // Ctrl-Z
	want("[1]+  Stopped")
	enter("echo the prompt is back")
	want("the prompt is back")
	enter("fg; echo status $?")
	want("goes on")
	press("\x03")
	enter("echo and here")
	want("and here")
	enter("exit 3")
	l.MustHaveStatus(3)
}

// A pod whose containers share a PID namespace has fini three times: as podman's pause
// process, in front of the command, and there as a pair, for it is not PID 1. podman gives
// a container of an image without a PATH none.
func podmanPlayKube(t *testing.T, e *containers.Engine) {
	pod := fmt.Sprintf("fini-e2e-pod-%d", os.Getpid())
	script := `tr '\0' '\n' </proc/$$/environ; echo environ ends; ` + containers.Make200Orphans + briefly
	kube, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": map[string]any{"name": pod},
		"spec": map[string]any{
			"shareProcessNamespace": true,
			"restartPolicy":         "Never",
			"containers": []any{map[string]any{
				"name": "one", "image": e.Image, "imagePullPolicy": "Never",
				"command":      []string{"/fini", "--", "sh", "-c", script},
				"volumeMounts": []any{map[string]any{"name": "fini", "mountPath": "/fini"}},
			}},
			"volumes": []any{map[string]any{
				"name": "fini", "hostPath": map[string]any{"path": containers.FiniFile(t), "type": "File"},
			}},
		},
	})
	file := filepath.Join(t.TempDir(), "pod.yaml")
	if err == nil {
		err = os.WriteFile(file, kube, 0o644) // JSON is YAML
	}
	rig.NoError(t, err)
	t.Cleanup(func() { e.Must(t, "pod", "rm", "-f", "-t", "0", pod) })
	e.Must(t, "play", "kube", "--network", "none", file)
	one := pod + "-one"

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
	rig.Until(t, "no zombie of the main child's", func() bool { return e.Zombies(t, one) == 0 })
	e.Must(t, "exec", one, "/bin/sh", "-c", containers.Make200Orphans)
	rig.Until(t, "no zombie of exec's", func() bool { return e.Zombies(t, one) == 0 })

	// By itself, for `pod stop` sends TERM to the pause process in the same moment, and the
	// command dies with the namespace. Each gets SIGKILL after 10 s, which would be 137.
	e.Must(t, "stop", "-t", "60", one)
	if got := e.Must(t, "wait", one); got != "7" {
		t.Errorf("status %s of the command, want 7", got)
	}
	e.Must(t, "pod", "stop", "-t", "60", pod)
	infra := e.Must(t, "pod", "inspect", "-f", "{{.InfraContainerID}}", pod)
	if got := e.Must(t, "wait", infra); got != "0" {
		t.Errorf("status %s of the pause process, want 0", got)
	}
	rig.WantOnce(t, logs(), "main got TERM")
	rig.WantOnce(t, logs(), "escapee done")
}
