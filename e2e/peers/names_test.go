package peers

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/internal/tests/need"
)

// called is a fini under another name, as a symbolic link or an engine calls it.
func called(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(rig.Fini, args...)
	cmd.Args[0] = name
	return cmd
}

// Under the name of an init that signals its child alone, fini does that too, unless it is told otherwise.
func TestCalledByAnotherName(t *testing.T) {
	t.Parallel()
	type row struct {
		what, name, flags, variable string
		group                       bool
	}
	rows := []row{
		{"fini", "fini", "", "", true},
		{"fini -c", "fini", "-c", "", false},
		{"fini in a folder called tini", "/opt/tini/fini", "-g", "FINI_SINGLE_CHILD=1", true},
		{"tini -g", "tini", "-g", "", true},
		{"tini and a variable", "tini", "-s", "FINI_SINGLE_CHILD=0", true},
		{"tini as one process", "tini", "--no-shield", "", false},
	}
	for _, name := range []string{"/usr/bin/tini", "/sbin/docker-init", "/run/podman-init", "catatonit"} {
		rows = append(rows, row{what: filepath.Base(name), name: name})
	}
	for _, tt := range rows {
		t.Run(tt.what, func(t *testing.T) {
			t.Parallel()
			said := filepath.Join(t.TempDir(), "said")
			mode := strings.Join(rig.Mode("signals"), " ")
			cmd := called(tt.name, append(strings.Fields(tt.flags), "--", "/bin/sh", "-c",
				mode+` >"$0" & until grep -q ready "$0"; do sleep 0.01; done; echo member $!; exec `+mode, said)...)
			cmd.Env = append(os.Environ(), tt.variable)
			l := rig.StartCmd(t, cmd)
			member := l.Out.WantPID("member ")
			l.Out.Want("ready ")
			l.Signal(syscall.SIGUSR1)
			l.Out.Want("signal 10")
			rig.MustKill(t, member, syscall.SIGUSR2) // which comes after what went to the group
			rig.Until(t, "the member says so", func() bool {
				text := rig.ReadFile(t, said) // two of its threads may tell it of the two, in any order
				return strings.Contains(text, "signal 12") && (!tt.group || strings.Contains(text, "signal 10"))
			})
			if !tt.group && strings.Contains(rig.ReadFile(t, said), "signal 10") {
				t.Error("the whole group got the signal")
			}
			_ = syscall.Kill(member, syscall.SIGKILL) // which outlives a fini without a shield
			l.Signal(syscall.SIGKILL)
		})
	}
}

// Celery finishes the task in hand when its master alone gets SIGTERM. A worker process that gets SIGTERM too loses it.
func TestCeleryUnderTheNameOfTini(t *testing.T) {
	t.Parallel()
	const python = "/usr/bin/python3"
	need.That(t, exec.Command(python, "-c", "import celery").Run() == nil, "Celery (python3-celery)")
	dir := t.TempDir()
	rig.Put(t, filepath.Join(dir, "app.py"), `
import os, time
from celery import Celery
app = Celery("app", broker="filesystem://")
app.conf.broker_transport_options = {"data_folder_in": "queue", "data_folder_out": "queue"}
@app.task
def slow():
    os.write(1, b"task begins\n")
    while not os.path.exists("go"):
        time.sleep(0.05)
    os.write(1, b"task ends\n")
`, 0o644)
	rig.NoError(t, os.Mkdir(filepath.Join(dir, "queue"), 0o755))
	send := exec.Command(python, "-m", "celery", "-A", "app", "call", "app.slow")
	send.Dir = dir
	rig.Succeed(t, send)
	cmd := called("/usr/bin/tini", "-s", "--", python, "-m", "celery", "-A", "app", "worker", "--concurrency=1", "--without-gossip", "--without-mingle")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "C_FORCE_ROOT=1")
	l := rig.StartCmd(t, cmd)
	l.Out.Want("task begins")
	l.Signal(syscall.SIGTERM)
	rig.Until(t, "a warm shutdown", func() bool { return strings.Contains(l.Out.Text()+l.Err.Text(), "Warm shutdown") })
	rig.Put(t, filepath.Join(dir, "go"), "", 0o644)
	l.Out.Want("task ends")
	l.MustEnd(0)
}

// gunicorn answers the request in hand when its master alone gets SIGHUP.
func TestGunicornUnderTheNameOfTini(t *testing.T) {
	t.Parallel()
	gunicorn := need.Program(t, "gunicorn")
	dir := t.TempDir()
	rig.Put(t, filepath.Join(dir, "app.py"), `
import os, time
os.write(2, b"a worker takes signals\n")
def app(environ, start_response):
    os.write(1, b"request begins\n")
    while not os.path.exists("go"):
        time.sleep(0.05)
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"answered"]
`, 0o644)
	cmd := called("docker-init", "--", gunicorn, "--bind=127.0.0.1:0", "--graceful-timeout=300", "--timeout=300", "app:app")
	cmd.Dir = dir
	l := rig.StartCmd(t, cmd)
	var address []string
	rig.Until(t, "its address", func() bool {
		address = regexp.MustCompile(`Listening at: (http://[0-9.:]+)`).FindStringSubmatch(l.Err.Text())
		return address != nil
	})
	client := rig.StartCmd(t, exec.Command(need.Program(t, "curl"), "--silent", "--noproxy", "*", address[1]))
	l.Out.Want("request begins")
	l.Signal(syscall.SIGHUP)
	rig.Until(t, "a reload", func() bool { return strings.Contains(l.Err.Text(), "Handling signal: hup") })
	rig.Put(t, filepath.Join(dir, "go"), "", 0o644)
	if got := client.Out.Whole(); got != "answered" {
		t.Errorf("the request in hand got %q", got)
	}
	// A worker that is still starting loses a SIGTERM, with any init.
	rig.Until(t, "the new worker", func() bool { return strings.Count(l.Err.Text(), "a worker takes signals") == 2 })
	l.Signal(syscall.SIGTERM)
	l.MustEnd(0)
}
