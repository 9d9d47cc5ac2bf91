package engines

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/seed-126c5d8a/fini/e2e/need"
	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/e2e/rig/columns"
	"github.com/seed-126c5d8a/fini/e2e/rig/containers"
)

func TestMain(m *testing.M) { rig.Main(m) }

// What people do to containers, and what happens to them: the client goes away, the
// container is stopped, killed, paused, restarted, or runs out of memory, and what runs in
// it has changed to another user.

// TestContainers does it under Docker. It is one test so that the images are built once.
func TestContainers(t *testing.T) {
	t.Parallel()
	containers.NeedDocker(t)
	image := containers.BuildExample(t).Whole
	for _, part := range []struct {
		name string
		run  func(t *testing.T, image string)
	}{
		{"table", containersTable},
		{"saved work", containersSavedWork},
		{"out of memory", containersOutOfMemory},
		{"pause", containersPause},
		{"restart", containersRestart},
		{"another user's leftovers", containersOtherUser},
		{"wrapper killed", containersWrapperKilled},
	} {
		t.Run(part.name, func(t *testing.T) {
			t.Parallel()
			part.run(t, image)
		})
	}
}

// savedBy is what a saver leaves that was asked once and had its time, as this user.
func savedBy(uid int) string { return fmt.Sprintf("asked\nsaved by %d\n", uid) }

// wantAll reads lines up to the last of these, which come in any order.
func wantAll(l *rig.Lines, want ...string) {
	l.T.Helper()
	for len(want) > 0 {
		line, ok := l.Next()
		if !ok {
			l.T.Fatalf("EOF before %q; so far: %q", want, l.Text())
		}
		want = slices.DeleteFunc(want, func(w string) bool { return w == line })
	}
}

// containersTable fills in the table's rows. Together, for what they do most is wait.
func containersTable(t *testing.T, image string) {
	rows := map[string]func(t *testing.T){
		"wrapper killed": func(t *testing.T) { wrapperKilledRow(t, image) },
		"stdin closed": func(t *testing.T) {
			clientRow(t, image, "stdin closed", 143, func(r *dockerRun) { _ = r.Stdin.Close() })
		},
		"client TERMed": func(t *testing.T) {
			clientRow(t, image, "client TERMed", 143, func(r *dockerRun) { r.Signal(syscall.SIGTERM) })
		},
		"client killed": func(t *testing.T) {
			clientRow(t, image, "client killed", 137, func(r *dockerRun) { r.Signal(syscall.SIGKILL) })
		},
	}
	var all sync.WaitGroup
	for name, row := range rows {
		all.Go(func() { t.Run(name, row) })
	}
	all.Wait()
}

// The client of `docker run -i` goes away, or closes stdin, and the server does not care
// for the end of stdin. status is the client's.
func clientRow(t *testing.T, image, name string, status int, end func(*dockerRun)) {
	const server = `setsid sleep 1000 & echo ready; while :; do sleep 1000 & wait; done`
	columns.Run(t, "`docker run -i`, "+name, []string{"-i"}, func(t *testing.T, wrap []string) columns.Outcome {
		r := startRun(t, wrapped(t, image, wrap, nil, "sh", "-c", server)...)
		r.Out.Want("ready")
		end(r)
		if !isFini(wrap) {
			return r.Outcome(columns.Window)
		}
		o := r.Outcome(rig.Patience)
		if !o.Never && o.Survivors == 0 {
			r.MustBeGone(143)
			r.MustHaveStatus(status)
		}
		return o
	})
}

func isFini(wrap []string) bool { return wrap != nil && wrap[0] == rig.Fini }

// `docker stop` asks the command by the container's stop signal, and fini asks what the command has left, by TERM.
// Without fini what needs a while to save its work is killed with PID 1. Signals go through `su` too.
func containersSavedWork(t *testing.T, image string) {
	fini := []string{"fini", "--"}
	for _, tt := range []struct {
		name, saved string
		wrap, flags []string
		command     []string
	}{
		{"without", "", nil, nil, []string{"sh", "/volume/main"}},
		{"docker-init", "", []string{"tini"}, nil, []string{"sh", "/volume/main"}},
		{"fini", savedBy(0), fini, nil, []string{"sh", "/volume/main"}},
		{"stop signal QUIT", savedBy(0), fini, []string{"--stop-signal", "QUIT", "-e", "END=3"}, []string{"sh", "/volume/main"}},
		{"stop signal RTMIN+3", savedBy(0), fini, []string{"--stop-signal", "SIGRTMIN+3", "-e", "END=37"}, []string{"sh", "/volume/main"}},
		{"another user", savedBy(1000), fini, nil, []string{"su", "app", "-c", "exec sh /volume/main"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			y := newVolume(t)
			c := containers.StartContainer(t, wrapped(t, image, tt.wrap, y.With(tt.flags...), tt.command...)...)
			c.Out.Want("saver ready")
			y.MustBeHeld()
			containers.Docker(t, "kill", "-s", "HUP", c.Name)
			c.Out.Want("got HUP")
			if got := y.Saved(); got != "" {
				t.Errorf("the leftover was asked to end while the command runs: %q", got)
			}
			containers.Docker(t, "stop", c.Name) // sends SIGKILL in the end, which would be 137
			out := c.MustEnd(7)
			rig.WantOnce(t, out, "got HUP")
			rig.WantOnce(t, out, "the end")
			y.MustBeLeft(tt.saved)
		})
	}
}

// The kernel kills the command for its memory. fini outlives that, says it, wherever its cgroup is mounted, gives the
// rest its time and passes the status on.
func containersOutOfMemory(t *testing.T, image string) {
	limited := containers.Docker(t, "info", "-f", "{{.MemoryLimit}}")
	need.That(t, limited == "true", "an engine that can limit memory")
	namespaces, again := []string{"host", "private"}, 0
	for len(namespaces) > 0 {
		namespace := namespaces[0]
		y := newVolume(t)
		// -i keeps stdin open, and without a client nothing comes on it.
		c := containers.StartContainer(t, y.With("-i", "-m", "32m", "--memory-swap", "32m", "--cgroupns="+namespace, image, "sh", "/volume/eater")...)
		c.Out.Want("saver ready")
		y.MustBeHeld()
		attach := containers.Client(t, "attach", c.Name)
		attach.Stdin = strings.NewReader("eat\n")
		_ = attach.Run() // has the container's status
		c.MustEnd(137)
		rig.Until(t, "the engine knows of the kernel's kill", func() bool {
			return containers.Docker(t, "inspect", "-f", "{{.State.OOMKilled}}", c.Name) == "true"
		})
		said := c.Err.Whole()
		if again++; (!strings.Contains(said, "the command was killed by SIGKILL") || y.Saved() != savedBy(0)) && again < 10 {
			t.Logf("TRIED AGAIN: the kernel killed another process too, before the memory of the first was free")
			continue
		}
		namespaces = namespaces[1:]
		mustSay(t, said, "the command was killed by SIGKILL; the kernel killed a process for memory", "fini: stopping leftover")
		y.MustBeLeft(savedBy(0))
	}
}

// What comes while the container is paused is there when it goes on: bytes, and the
// signal of a `docker stop`.
func containersPause(t *testing.T, image string) {
	y := newVolume(t)
	r := startRun(t, y.With(image, "sh", "/volume/copy")...)
	r.Out.Want("saver ready")
	y.MustBeHeld()
	containers.Docker(t, "pause", r.Name)
	var text strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&text, "line %d of what came while the container was paused\n", i)
	}
	r.Send(text.String())
	containers.Docker(t, "unpause", r.Name)
	for line := range strings.Lines(text.String()) {
		if got, _ := r.Out.Next(); got+"\n" != line {
			t.Fatalf("%q, want %q", got, line)
		}
	}

	containers.Docker(t, "pause", r.Name)
	containers.Docker(t, "stop", r.Name)
	r.MustHaveStatus(143)
	if rest := r.Out.Rest(); len(rest) > 0 {
		t.Errorf("more came out than went in: %q", rest)
	}
	r.MustBeGone(143)
	y.MustBeLeft(savedBy(0))
}

// `docker restart` ends one life as `docker stop` does, and begins another. SIGKILL of PID 1 leaves nobody time, and
// nothing that keeps the container from being started again.
func containersRestart(t *testing.T, image string) {
	for how, saved := range map[string]string{"restart": savedBy(0), "kill": ""} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			y := newVolume(t)
			c := containers.StartContainer(t, y.With(image, "sh", "/volume/main")...)
			c.Out.Want("saver ready")
			y.MustBeHeld()
			containers.Docker(t, how, c.Name)
			if how == "kill" {
				c.MustEnd(137)
				y.MustBeLeft("")
				containers.Docker(t, "start", c.Name)
			}
			untilSaid(c, "saver ready", 2)
			y.MustBeHeld()
			if got := y.Saved(); got != saved {
				t.Errorf("the first life saved %q", got)
			}
			containers.Docker(t, "stop", c.Name)
			if n, lives := strings.Count(c.MustEnd(7), "the end"), strings.Count(saved, "saved")+1; n != lives {
				t.Errorf("the command was asked %d times, want %d", n, lives)
			}
			y.MustBeLeft(saved + savedBy(0))
		})
	}
}

// Under the capabilities that Docker gives, root may signal another user's process and not look at its descriptors: fini
// finds what belongs to the command by descent. Without CAP_KILL root can't end another user's leftovers: fini says so,
// keeps the status, and does not wait for ever. Its own end ends the container.
func containersOtherUser(t *testing.T, image string) {
	for _, tt := range []struct {
		name, saved string
		flags, says []string
	}{
		{"may be signalled", savedBy(1000), []string{"-e", "FINI_GRACE=20s"},
			[]string{"stopping leftover", "(sh /volume/saver)", "(sh /volume/stubborn)", "killing leftover"}},
		{"no right to kill", "", []string{"-e", "FINI_GRACE=1s", "--cap-drop", "ALL", "--cap-add", "SETUID", "--cap-add", "SETGID"},
			[]string{"cannot signal", "(sh): operation not permitted", "gave up on leftovers"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			y := newVolume(t)
			r := startRun(t, append(y.With(tt.flags...), image, "sh", "/volume/leaver")...)
			wantAll(r.Out, "saver ready", "stubborn ready")
			y.MustBeHeld()
			r.Send("go\n")
			r.Out.Rest()
			r.MustHaveStatus(5)
			r.MustBeGone(5)
			y.MustBeLeft(tt.saved)
			mustSay(t, r.Err.Whole(), tt.says...)
		})
	}
}

func mustSay(t *testing.T, said string, want ...string) {
	t.Helper()
	for _, part := range want {
		if !strings.Contains(said, part) {
			t.Errorf("fini did not say %q but:\n%s", part, said)
		}
	}
}

// Within a container a wrapper is not PID 1, and nobody but itself ends what it has
// started: each of the pair ends another user's tree too when the other is killed.
func containersWrapperKilled(t *testing.T, image string) {
	for _, who := range []struct {
		name, user string
		uid        int
		run        []string
	}{
		{"of root, with another user's tree", "0", 1000, []string{"su", "app", "-c", "exec sh /volume/both"}},
		{"of another user", "1000", 1000, []string{"sh", "/volume/both"}},
	} {
		for _, which := range []string{"outer", "inner"} {
			t.Run(which+" "+who.name, func(t *testing.T) {
				t.Parallel()
				b := startBeside(t, image, who.user, append([]string{"/fini", "--grace=20s", "--"}, who.run...))
				wantAll(b.Out, "saver ready", "stubborn ready")
				b.Y.MustBeHeld()
				pid := b.Wrapper
				if which == "inner" {
					pid = containers.Docker(t, "exec", b.Name, "sh", "/volume/inner")
				}
				containers.Docker(t, "exec", b.Name, "kill", "-KILL", pid)
				b.MustHaveStatus(137)
				b.Out.Rest()
				rig.Until(t, "the case's last process is gone", func() bool { return rig.HungUp(b.Y.Witness) })
				b.Y.MustBeLeft(savedBy(who.uid))
				rig.Until(t, "nothing is left", func() bool { return b.More() == 0 })
			})
		}
	}
}

func wrapperKilledRow(t *testing.T, image string) {
	const name = "`docker exec`, another user's tree, wrapper killed"
	columns.Run(t, name, nil, func(t *testing.T, wrap []string) columns.Outcome {
		command := []string{"su", "app", "-c", "exec sh /volume/one"}
		if wrap != nil { // as it is called in the container
			command = append(append([]string{"/" + filepath.Base(wrap[0])}, wrap[1:]...), command...)
		}
		b := startBeside(t, image, "0", command)
		b.Out.Want("saver ready")
		containers.Docker(t, "exec", b.Name, "kill", "-KILL", b.Wrapper)
		if !isFini(wrap) {
			return b.Outcome(columns.Window)
		}
		o := b.Outcome(rig.Patience)
		b.Y.MustBeLeft(savedBy(1000))
		return o
	})
}

// TestContainersRootless makes a user without any right run podman, which maps that user
// alone to root, and has no cgroup to look into.
func TestContainersRootless(t *testing.T) {
	t.Parallel()
	need.Root(t, "to become a user without rights")
	need.Program(t, "runc")
	need.Program(t, "setpriv")
	e, fini := rootlessPodman(t, 54321)
	for name, run := range map[string]func(t *testing.T, e *containers.Engine, fini string){
		"stop":          rootlessStop,
		"client killed": rootlessClientKilled,
	} {
		t.Run(name, func(t *testing.T) { t.Parallel(); run(t, e, fini) })
	}
}

// As under Docker: what needs a while to save its work has it under fini alone.
func rootlessStop(t *testing.T, e *containers.Engine, fini string) {
	for init, saved := range map[string]string{fini: savedBy(0), "": ""} {
		y := newVolume(t)
		flags := []string{"--init"} // podman's own is catatonit
		if init != "" {
			flags = append(flags, "--init-path", init)
		}
		g := inForeground(e, t, y.With(append(flags, e.Image, "sh", "/volume/main")...)...)
		g.Out.Want("saver ready")
		y.MustBeHeld()
		g.Must(t, "stop", g.Name) // sends SIGKILL in the end, which would be 137
		rig.WantOnce(t, g.MustEnd(7), "the end")
		y.MustBeLeft(saved)
	}
}

// podman's client is not the container's parent, and nothing but the end of stdin tells
// the container that it is gone.
func rootlessClientKilled(t *testing.T, e *containers.Engine, fini string) {
	y := newVolume(t)
	l := inForeground(e, t, y.With("-i", "-v", fini+":/fini:ro", "--entrypoint", "/fini",
		e.Image, "-i", "--grace=20s", "--", "sh", "/volume/main")...)
	l.Out.Want("saver ready")
	y.MustBeHeld()
	l.Signal(syscall.SIGKILL)
	l.MustHaveStatus(137) // of the client
	if got := e.Must(t, "wait", l.Name); got != "7" {
		t.Errorf("status %s of the container, want 7", got)
	}
	y.MustBeLeft(savedBy(0))
}

// A DockerRun is the client of a `docker run -i --rm`, and what the engine says of the
// container, which may outlive the client or be gone before it.
type dockerRun struct {
	*rig.Life
	Name   string
	events *rig.Lines
}

// startRun is `docker run -i --rm flags...`, where flags end with the image and what is
// behind it.
func startRun(t testing.TB, flags ...string) *dockerRun {
	t.Helper()
	c := &containers.Container{T: t, Name: containers.UniqueName("client")}
	t.Cleanup(func() {
		_ = containers.Client(t, "rm", "-f", c.Name).Run()
		rig.Until(t, "the container is removed", func() bool { return isGone(t, c.Name) })
	})
	// The engine remembers what was before the client has asked.
	events, _ := c.Follow("events", "--since", strconv.FormatInt(time.Now().Unix(), 10),
		"--filter", "container="+c.Name, "--filter", "event=die", "--filter", "event=destroy",
		"--format", "{{.Action}} {{.Actor.Attributes.exitCode}}")
	args := append([]string{"run", "-i", "--rm", "--network", "none", "--name", c.Name}, flags...)
	return &dockerRun{rig.StartCmd(t, containers.Client(t, args...)), c.Name, events}
}

func isGone(t testing.TB, name string) bool {
	t.Helper()
	return containers.Client(t, "inspect", name).Run() != nil
}

// MustBeGone waits for the container's end and its removal, and asserts its status, which
// need not be the client's.
func (r *dockerRun) MustBeGone(want int) {
	r.T.Helper()
	if got := r.events.Want("die "); got != strconv.Itoa(want) {
		r.T.Errorf("status %s of the container, want %d; stderr: %s", got, want, r.Err.Text())
	}
	r.events.Want("destroy ")
	if !isGone(r.T, r.Name) {
		r.T.Error("the container is destroyed and can be inspected")
	}
}

func (r *dockerRun) Send(text string) {
	r.T.Helper()
	rig.NoError(r.T, r.Stdin.(*os.File).SetWriteDeadline(time.Now().Add(rig.Patience)))
	if _, err := r.Stdin.Write([]byte(text)); err != nil {
		r.T.Fatalf("cannot write to the client: %v", err)
	}
}

// dockerTop counts the processes in a container, as the engine lists those of its cgroup.
func dockerTop(t testing.TB, name string) int {
	t.Helper()
	out, err := containers.Client(t, "top", name, "-o", "pid").Output()
	if err != nil { // which has to be because the container has ended, and may be gone
		running, _ := containers.Client(t, "inspect", "-f", "{{.State.Running}}", name).Output()
		if strings.TrimSpace(string(running)) == "true" {
			t.Fatalf("docker top: %v", err)
		}
	}
	return max(0, strings.Count(string(out), "\n")-1) // without the heading
}

// wrapped is what `docker run` takes for a command in a column of the table. What stands
// for tini there is the engine's own init, which is tini.
func wrapped(t testing.TB, image string, wrap, flags []string, command ...string) []string {
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
	run := containers.Client(t, "run", "--rm", "--network", "none", "--init", "--entrypoint", "true", image)
	out, err := run.CombinedOutput()
	need.That(t, err == nil, fmt.Sprintf("an engine with its own init, tini (%v: %s)", err, out))
}

// Outcome watches the client's output and the container from now on, which is the moment
// after the fault, and counts what is there in the end.
func (r *dockerRun) Outcome(limit time.Duration) columns.Outcome {
	return columns.Watch(limit, r.Out, func() int { return dockerTop(r.T, r.Name) })
}

// untilSaid waits until a container has written a line this often, in all its lives.
func untilSaid(c *containers.Container, line string, times int) {
	c.T.Helper()
	rig.Until(c.T, fmt.Sprintf("%d times %q", times, line), func() bool {
		return strings.Count(containers.Docker(c.T, "logs", c.Name)+"\n", line+"\n") >= times
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

func startBeside(t testing.TB, image, user string, command []string) *beside {
	t.Helper()
	tini := need.Program(t, "tini-static")
	y := newVolume(t)
	c := containers.StartContainer(t, y.With("-v", tini+":/tini:ro", "--entrypoint", "/tini", image, "sleep", "1000")...)
	rig.Until(t, "the container runs", func() bool { return dockerTop(t, c.Name) == 2 })
	args := append([]string{"exec", "-u", user, c.Name, "sh", "/volume/wrapper"}, command...)
	b := &beside{Life: rig.StartCmd(t, containers.Client(t, args...)), Y: y, Name: c.Name}
	b.Wrapper = b.Out.Want("wrapper ")
	return b
}

// More is how many processes are in the container beside those two.
func (b *beside) More() int { return dockerTop(b.T, b.Name) - 2 }

// Outcome watches the exec's output, and what it has brought into the container, from now on.
func (b *beside) Outcome(limit time.Duration) columns.Outcome {
	return columns.Watch(limit, b.Out, b.More)
}

// rootlessPodman is podman for a user that nobody has made, with all that it keeps in a
// directory of that user's; and fini where that user can read it.
func rootlessPodman(t *testing.T, uid int) (e *containers.Engine, fini string) {
	t.Helper()
	// Not t.TempDir, whose parent another user can't look into.
	dir, err := os.MkdirTemp("", "fini-")
	rig.NoError(t, err)
	in := func(name string) string { return filepath.Join(dir, name) }
	fini = rig.Put(t, in("fini"), rig.ReadFile(t, rig.Fini), 0o755)
	rig.Put(t, in("containers.conf"), containers.PodmanConf, 0o644)
	for _, name := range []string{"home", "run", ""} {
		if err == nil && name != "" {
			err = os.Mkdir(in(name), 0o700)
		}
		if err == nil {
			err = os.Chown(in(name), uid, uid)
		}
	}
	rig.NoError(t, err)
	id := strconv.Itoa(uid)
	e = &containers.Engine{
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
	e.Import(t, e.Image)
	out, err := e.Command(t, "run", "--rm", "--network", "none", e.Image, "true").CombinedOutput()
	need.That(t, err == nil, fmt.Sprintf("a podman that runs containers without root (%v: %s)", err, out))
	return e, fini
}
