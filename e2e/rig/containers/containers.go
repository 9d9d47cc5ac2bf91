package containers

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seed-126c5d8a/fini/e2e/need"
	"github.com/seed-126c5d8a/fini/e2e/rig"
)

// A volume is a directory that a container has as /volume. In it are the scripts, and what is
// left of their work; and a witness, which each process of the case holds.
type volume struct {
	t       testing.TB
	dir     string
	Witness *os.File
}

var volumeFiles = map[string]string{
	// The engines' images have no users but by these.
	"passwd": "root:x:0:0::/:/bin/sh\napp:x:1000:1000::/:/bin/sh\n",
	"group":  "root:x:0:\napp:x:1000:\n",

	"saved": "",
	// Asked to end, it needs a while to save its work. What it starts meanwhile ignores the
	// TERM that each leftover gets.
	"saver": `
		trap 'trap "" TERM; echo asked >>/volume/saved; sleep 0.3; echo "saved by $(id -u)" >>/volume/saved; exit' TERM
		echo saver ready
		while :; do sleep 1000 & wait; done`,
	"stubborn": `
		trap "" TERM
		echo stubborn ready
		while :; do sleep 1000; done`,

	// A command with a saver in a session of its own. It says which signal it got, and
	// ends by the one that END names.
	"main": `
		exec 9>/volume/witness
		for s in HUP INT QUIT USR1 USR2 WINCH TERM 37; do trap "echo got $s" $s; done
		trap "echo the end; exit 7" ${END:-TERM}
		setsid sh /volume/saver &
		while :; do sleep 1000 & wait; done`,
	// One that takes bytes.
	"copy": `
		exec 9>/volume/witness
		setsid sh /volume/saver &
		exec cat`,
	// One that takes all memory, when it is told to.
	"eater": `
		exec 9>/volume/witness
		setsid sh /volume/saver &
		read line
		exec tail /dev/zero`,
	// One that leaves two leftovers of another user.
	"leaver": `
		exec 9>/volume/witness
		su app -c "setsid sh /volume/saver & setsid sh /volume/stubborn &"
		read line
		exit 5`,
	// Says its pid and becomes a wrapper with what it wraps.
	"wrapper": `
		exec 9>/volume/witness
		echo wrapper $$
		exec "$@"`,
	"both": `
		setsid sh /volume/stubborn &
		. /volume/one`,
	"one": `
		setsid sh /volume/saver &
		while :; do sleep 1000 & wait; done`,
	"inner": `
		for d in /proc/[0-9]*; do
			read -r _ name _ above rest <$d/stat && read -r _ parent rest </proc/$above/stat &&
			case $name$parent in "(reaper)(fini)") echo ${d#/proc/};; esac
		done 2>/dev/null
		true`,
}

func NewVolume(t testing.TB) *volume {
	t.Helper()
	// Not t.TempDir, whose parent another user can't look into.
	dir, err := os.MkdirTemp("", "fini-volume-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	fifo := filepath.Join(dir, "witness")
	err = os.Chmod(dir, 0o755)
	for name, text := range volumeFiles {
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644)
		}
	}
	if err == nil {
		err = syscall.Mkfifo(fifo, 0o600)
	}
	for _, name := range []string{"saved", "witness"} {
		if err == nil {
			err = os.Chmod(filepath.Join(dir, name), 0o666)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	// With a reader that does not wait for a writer.
	witness, err := os.OpenFile(fifo, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = witness.Close() })
	return &volume{t, dir, witness}
}

// With is flags of `run` which give a container this volume, and its users.
func (y *volume) With(flags ...string) []string {
	return append([]string{"-v", y.dir + ":/volume", "-v", filepath.Join(y.dir, "passwd") + ":/etc/passwd:ro",
		"-v", filepath.Join(y.dir, "group") + ":/etc/group:ro"}, flags...)
}

func (y *volume) Saved() string {
	y.t.Helper()
	text, err := os.ReadFile(filepath.Join(y.dir, "saved"))
	if err != nil {
		y.t.Fatal(err)
	}
	return string(text)
}

// MustBeLeft asserts that this work was saved, and that nobody of the case is alive.
func (y *volume) MustBeLeft(saved string) {
	y.t.Helper()
	if got := y.Saved(); got != saved {
		y.t.Errorf("saved was %q, want %q", got, saved)
	}
	if rig.HeldOpen(y.Witness) {
		y.t.Error("a process of the case is alive")
	}
}

// MustBeHeld asserts that the case has not let go of the witness before it ends.
func (y *volume) MustBeHeld() {
	y.t.Helper()
	if rig.HungUp(y.Witness) {
		y.t.Fatal("nobody holds the witness")
	}
}

// A DockerRun is the client of a `docker run -i --rm`, and what the engine says of the
// container, which may outlive the client or be gone before it.
type DockerRun struct {
	*rig.Life
	Name   string
	events *rig.Lines
}

// StartRun is `docker run -i --rm flags...`, where flags end with the image and what is
// behind it.
func StartRun(t testing.TB, flags ...string) *DockerRun {
	t.Helper()
	c := &Container{t: t, Name: rig.DockerName("client")}
	t.Cleanup(func() {
		_ = rig.DockerCommand(t, "rm", "-f", c.Name).Run()
		rig.Until(t, "the container is removed", func() bool { return isGone(t, c.Name) })
	})
	// The engine remembers what was before the client has asked.
	events, _ := c.Follow("events", "--since", strconv.FormatInt(time.Now().Unix(), 10),
		"--filter", "container="+c.Name, "--filter", "event=die", "--filter", "event=destroy",
		"--format", "{{.Action}} {{.Actor.Attributes.exitCode}}")
	args := append([]string{"run", "-i", "--rm", "--network", "none", "--name", c.Name}, flags...)
	return &DockerRun{rig.StartCmd(t, rig.DockerCommand(t, args...)), c.Name, events}
}

func isGone(t testing.TB, name string) bool {
	t.Helper()
	return rig.DockerCommand(t, "inspect", name).Run() != nil
}

// MustBeGone waits for the container's end and its removal, and asserts its status, which
// need not be the client's.
func (r *DockerRun) MustBeGone(want int) {
	r.T.Helper()
	if got := r.events.Want("die "); got != strconv.Itoa(want) {
		r.T.Errorf("status %s of the container, want %d; stderr: %s", got, want, r.Err.Text())
	}
	r.events.Want("destroy ")
	if !isGone(r.T, r.Name) {
		r.T.Error("the container is destroyed and can be inspected")
	}
}

func (r *DockerRun) Send(text string) {
	r.T.Helper()
	if err := r.Stdin.(*os.File).SetWriteDeadline(time.Now().Add(rig.Patience)); err != nil {
		r.T.Fatal(err)
	}
	if _, err := r.Stdin.Write([]byte(text)); err != nil {
		r.T.Fatalf("cannot write to the client: %v", err)
	}
}

// dockerTop counts the processes in a container, as the engine lists those of its cgroup.
func dockerTop(t testing.TB, name string) int {
	t.Helper()
	out, err := rig.DockerCommand(t, "top", name, "-o", "pid").Output()
	if err != nil { // which has to be because the container has ended, and may be gone
		running, _ := rig.DockerCommand(t, "inspect", "-f", "{{.State.Running}}", name).Output()
		if strings.TrimSpace(string(running)) == "true" {
			t.Fatalf("docker top: %v", err)
		}
	}
	return max(0, strings.Count(string(out), "\n")-1) // without the heading
}

// Wrapped is what `docker run` takes for a command in a column of the table. What stands
// for tini there is the engine's own init, which is tini.
func Wrapped(t testing.TB, image string, wrap, flags []string, command ...string) []string {
	t.Helper()
	flags = append([]string{"--entrypoint", command[0]}, flags...)
	switch {
	case wrap == nil:
	case filepath.Base(wrap[0]) == "tini":
		needDockerInit(t, image)
		flags = append(flags, "--init")
	default:
		flags[1] = "/fini"
		return append(append(append(flags, image), wrap[1:]...), command...)
	}
	return append(append(flags, image), command[1:]...)
}

func needDockerInit(t testing.TB, image string) {
	t.Helper()
	run := rig.DockerCommand(t, "run", "--rm", "--network", "none", "--init", "--entrypoint", "true", image)
	out, err := run.CombinedOutput()
	need.That(t, err == nil, fmt.Sprintf("an engine with its own init, tini (%v: %s)", err, out))
}

// Outcome watches the client's output and the container from now on, which is the moment
// after the fault, and counts what is there in the end.
func (r *DockerRun) Outcome(limit time.Duration) (o rig.Outcome) {
	r.T.Helper()
	start := time.Now()
	deadline := time.After(limit)
	// This also ends where there is no such container any more.
	wait, _ := (&Container{t: r.T, Name: r.Name}).Follow("wait", r.Name)
	for out, ended := r.Out.C, wait.C; out != nil || ended != nil; {
		select {
		case _, open := <-out:
			if !open {
				o.Eof, out = time.Since(start), nil
			}
		case _, open := <-ended:
			if !open {
				ended = nil
			}
		case <-deadline:
			o.Never, out, ended = out != nil, nil, nil
		}
	}
	o.Survivors = dockerTop(r.T, r.Name)
	return o
}

// UntilSaid waits until a container has written a line this often, in all its lives.
func (c *Container) UntilSaid(line string, times int) {
	c.t.Helper()
	rig.Until(c.t, fmt.Sprintf("%d times %q", times, line), func() bool {
		return strings.Count(Docker(c.t, "logs", c.Name)+"\n", line+"\n") >= times
	})
}

// beside is a `docker exec` into a container that runs two processes: an init, for which
// nobody's orphan stays a zombie, and a sleep.
type beside struct {
	*rig.Life
	Y       *volume
	Name    string
	Wrapper string // the pid that began as the exec's
}

func StartBeside(t testing.TB, image, user string, command []string) *beside {
	t.Helper()
	tini := need.Program(t, "tini-static")
	y := NewVolume(t)
	c := StartContainer(t, y.With("-v", tini+":/tini:ro", "--entrypoint", "/tini", image, "sleep", "1000")...)
	rig.Until(t, "the container runs", func() bool { return dockerTop(t, c.Name) == 2 })
	args := append([]string{"exec", "-u", user, c.Name, "sh", "/volume/wrapper"}, command...)
	b := &beside{Life: rig.StartCmd(t, rig.DockerCommand(t, args...)), Y: y, Name: c.Name}
	b.Wrapper = b.Out.Want("wrapper ")
	return b
}

// More is how many processes are in the container beside those two.
func (b *beside) More() int { return dockerTop(b.T, b.Name) - 2 }

// Outcome watches the exec's output, and what it has brought into the container, from
// now on.
func (b *beside) Outcome(limit time.Duration) (o rig.Outcome) {
	start := time.Now()
	deadline := time.After(limit)
	for out := b.Out.C; out != nil; {
		select {
		case _, open := <-out:
			if !open {
				o.Eof, out = time.Since(start), nil
			}
		case <-deadline:
			o.Never, out = true, nil
		}
	}
	rig.Poll(time.Until(start.Add(limit)), func() bool { return b.More() == 0 })
	o.Survivors = b.More()
	return o
}

// RootlessPodman is podman for a user that nobody has made, with all that it keeps in a
// directory of that user's; and fini where that user can read it.
func RootlessPodman(t *testing.T, uid int) (e *rig.Engine, fini string) {
	t.Helper()
	// Not t.TempDir, whose parent another user can't look into.
	dir, err := os.MkdirTemp("", "fini-")
	if err != nil {
		t.Fatal(err)
	}
	in := func(name string) string { return filepath.Join(dir, name) }
	fini = in("fini")
	binary, err := os.ReadFile(rig.Fini)
	if err == nil {
		err = os.WriteFile(fini, binary, 0o755)
	}
	if err == nil {
		err = os.WriteFile(in("containers.conf"), []byte(`
[containers]
default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]
log_driver = "k8s-file"
[engine]
lock_type = "file"
events_logger = "file"
`), 0o644)
	}
	for _, name := range []string{"home", "run", ""} {
		if err == nil && name != "" {
			err = os.Mkdir(in(name), 0o700)
		}
		if err == nil {
			err = os.Chown(in(name), uid, uid)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	id := strconv.Itoa(uid)
	e = &rig.Engine{
		// The user may not be allowed into the directory that the tests run in.
		Client: []string{"env", "-C", "/", "setpriv", "--reuid=" + id, "--regid=" + id, "--clear-groups", "--",
			need.Program(t, "podman"), "--root", in("root"), "--runroot", in("runroot"),
			"--cgroup-manager", "cgroupfs", "--runtime", "runc"},
		Env: []string{"PATH=" + os.Getenv("PATH"), "HOME=" + in("home"), "XDG_RUNTIME_DIR=" + in("run"),
			"CONTAINERS_CONF=" + in("containers.conf")},
		Image:  "localhost/fini-e2e:base",
		Remove: []string{"rm", "-f", "-t", "0"},
	}
	t.Cleanup(func() {
		e.Must(t, "system", "migrate") // ends the process that keeps the user's namespaces
		rig.Until(t, "podman's directory can be removed", func() bool { return os.RemoveAll(dir) == nil })
	})
	e.Import(t, NeedStaticBusybox(t))
	out, err := e.Command(t, "run", "--rm", "--network", "none", e.Image, "true").CombinedOutput()
	need.That(t, err == nil, fmt.Sprintf("a podman that runs containers without root (%v: %s)", err, out))
	return e, fini
}
