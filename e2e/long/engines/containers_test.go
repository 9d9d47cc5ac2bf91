package engines

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/seed-126c5d8a/fini/e2e/need"
	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/e2e/rig/containers"
)

func TestMain(m *testing.M) { rig.Main(m) }

// What people do to containers, and what happens to them: the client goes away, the
// container is stopped, killed, paused, restarted, or runs out of memory, and what runs in
// it has changed to another user.

// TestContainers does it under Docker. It is one test so that the images are built once.
func TestContainers(t *testing.T) {
	t.Parallel()
	need.That(t, rig.DockerWorks(), "a running Docker engine, which e2e/dockerd.sh starts")
	image := containers.BuildExample(t, containers.NeedStaticBusybox(t)).Whole
	for _, part := range []struct {
		name string
		run  func(t *testing.T, image string)
	}{
		{"table", containersTable},
		{"saved work", containersSavedWork},
		{"out of memory", containersOutOfMemory},
		{"pause", containersPause},
		{"timeout while paused", containersTimeoutWhilePaused},
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
			clientRow(t, image, "stdin closed", 143, func(r *containers.DockerRun) { _ = r.Stdin.Close() })
		},
		"client TERMed": func(t *testing.T) {
			clientRow(t, image, "client TERMed", 143, func(r *containers.DockerRun) { r.Signal(syscall.SIGTERM) })
		},
		"client killed": func(t *testing.T) {
			clientRow(t, image, "client killed", 137, func(r *containers.DockerRun) { r.Signal(syscall.SIGKILL) })
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
func clientRow(t *testing.T, image, name string, status int, end func(*containers.DockerRun)) {
	const server = `setsid sleep 1000 & echo ready; while :; do sleep 1000 & wait; done`
	rig.InColumns(t, "`docker run -i`, "+name, []string{"-i"}, func(t *testing.T, wrap []string) rig.Outcome {
		r := containers.StartRun(t, containers.Wrapped(t, image, wrap, nil, "sh", "-c", server)...)
		r.Out.Want("ready")
		end(r)
		if !isFini(wrap) {
			return r.Outcome(rig.Window)
		}
		o := r.Outcome(rig.Patience)
		if !o.Never && o.Survivors == 0 {
			r.MustBeGone(143)
			if got := r.Status(); got != status {
				t.Errorf("status %d of the client, want %d", got, status)
			}
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
			y := containers.NewVolume(t)
			c := containers.StartContainer(t, containers.Wrapped(t, image, tt.wrap, y.With(tt.flags...), tt.command...)...)
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
		y := containers.NewVolume(t)
		// -i keeps stdin open, and without a client nothing comes on it.
		c := containers.StartContainer(t, y.With("-i", "-m", "32m", "--memory-swap", "32m", "--cgroupns="+namespace, image, "sh", "/volume/eater")...)
		c.Out.Want("saver ready")
		y.MustBeHeld()
		attach := rig.DockerCommand(t, "attach", c.Name)
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
	y := containers.NewVolume(t)
	r := containers.StartRun(t, y.With(image, "sh", "/volume/copy")...)
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
	if got := r.Status(); got != 143 {
		t.Errorf("status %d, want 143; stderr: %s", got, r.Err.Text())
	}
	if rest := r.Out.Rest(); len(rest) > 0 {
		t.Errorf("more came out than went in: %q", rest)
	}
	r.MustBeGone(143)
	y.MustBeLeft(savedBy(0))
}

// fini's clock goes on while the container is paused: a timeout that has run out by then
// takes effect at once. The container has to be paused before.
func containersTimeoutWhilePaused(t *testing.T, image string) {
	const timeout = 40 * time.Second
	y := containers.NewVolume(t)
	r := containers.StartRun(t, y.With("-e", "FINI_TIMEOUT="+timeout.String(), image, "sh", "/volume/copy")...)
	r.Out.Want("saver ready")
	started := time.Now()
	y.MustBeHeld()
	containers.Docker(t, "pause", r.Name)
	rig.Until(t, "the timeout has run out", func() bool { return time.Since(started) > timeout })
	if got := y.Saved(); got != "" {
		t.Fatalf("the container is paused, and the saver was asked: %q", got)
	}
	unpaused := time.Now()
	containers.Docker(t, "unpause", r.Name)
	rig.Until(t, "the saver is asked", func() bool { return y.Saved() != "" })
	// A clock that had stood still would need nearly all of the timeout.
	if took := time.Since(unpaused); took > timeout/2 {
		t.Errorf("the timeout took effect %v after the container went on", took)
	}
	if got := r.Status(); got != 124 {
		t.Errorf("status %d, want 124; stderr: %s", got, r.Err.Text())
	}
	r.Out.Rest()
	r.MustBeGone(124)
	y.MustBeLeft(savedBy(0))
}

// `docker restart` ends one life as `docker stop` does, and begins another. SIGKILL of PID 1 leaves nobody time, and
// nothing that keeps the container from being started again.
func containersRestart(t *testing.T, image string) {
	for how, saved := range map[string]string{"restart": savedBy(0), "kill": ""} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			y := containers.NewVolume(t)
			c := containers.StartContainer(t, y.With(image, "sh", "/volume/main")...)
			c.Out.Want("saver ready")
			y.MustBeHeld()
			containers.Docker(t, how, c.Name)
			if how == "kill" {
				c.MustEnd(137)
				y.MustBeLeft("")
				containers.Docker(t, "start", c.Name)
			}
			c.UntilSaid("saver ready", 2)
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
			y := containers.NewVolume(t)
			r := containers.StartRun(t, append(y.With(tt.flags...), image, "sh", "/volume/leaver")...)
			wantAll(r.Out, "saver ready", "stubborn ready")
			y.MustBeHeld()
			r.Send("go\n")
			r.Out.Rest()
			if got := r.Status(); got != 5 {
				t.Errorf("status %d, want 5", got)
			}
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
				b := containers.StartBeside(t, image, who.user, append([]string{"/fini", "--grace=20s", "--"}, who.run...))
				wantAll(b.Out, "saver ready", "stubborn ready")
				b.Y.MustBeHeld()
				pid := b.Wrapper
				if which == "inner" {
					pid = containers.Docker(t, "exec", b.Name, "sh", "/volume/inner")
				}
				containers.Docker(t, "exec", b.Name, "kill", "-KILL", pid)
				if got := b.Status(); got != 137 {
					t.Errorf("status %d, want 137", got)
				}
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
	rig.InColumns(t, name, nil, func(t *testing.T, wrap []string) rig.Outcome {
		command := []string{"su", "app", "-c", "exec sh /volume/one"}
		if wrap != nil { // as it is called in the container
			command = append(append([]string{"/" + filepath.Base(wrap[0])}, wrap[1:]...), command...)
		}
		b := containers.StartBeside(t, image, "0", command)
		b.Out.Want("saver ready")
		containers.Docker(t, "exec", b.Name, "kill", "-KILL", b.Wrapper)
		if !isFini(wrap) {
			return b.Outcome(rig.Window)
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
	e, fini := containers.RootlessPodman(t, 54321)
	for name, run := range map[string]func(t *testing.T, e *rig.Engine, fini string){
		"stop":          rootlessStop,
		"client killed": rootlessClientKilled,
	} {
		t.Run(name, func(t *testing.T) { t.Parallel(); run(t, e, fini) })
	}
}

// As under Docker: what needs a while to save its work has it under fini alone.
func rootlessStop(t *testing.T, e *rig.Engine, fini string) {
	for init, saved := range map[string]string{fini: savedBy(0), "": ""} {
		y := containers.NewVolume(t)
		flags := []string{"--init"} // podman's own is catatonit
		if init != "" {
			flags = append(flags, "--init-path", init)
		}
		g := e.Foreground(t, y.With(append(flags, e.Image, "sh", "/volume/main")...)...)
		g.Out.Want("saver ready")
		y.MustBeHeld()
		g.Must(t, "stop", g.Name) // sends SIGKILL in the end, which would be 137
		rig.WantOnce(t, g.MustEnd(7), "the end")
		y.MustBeLeft(saved)
	}
}

// podman's client is not the container's parent, and nothing but the end of stdin tells
// the container that it is gone.
func rootlessClientKilled(t *testing.T, e *rig.Engine, fini string) {
	y := containers.NewVolume(t)
	name := e.Name(t)
	args := y.With("-v", fini+":/fini:ro", "--entrypoint", "/fini",
		e.Image, "-i", "--grace=20s", "--", "sh", "/volume/main")
	l := rig.StartCmd(t, e.Command(t, append([]string{"run", "--network", "none", "--name", name, "-i"}, args...)...))
	l.Out.Want("saver ready")
	y.MustBeHeld()
	l.Signal(syscall.SIGKILL)
	if got := l.Status(); got != 137 {
		t.Errorf("status %d of the client, want 137", got)
	}
	if got := e.Must(t, "wait", name); got != "7" {
		t.Errorf("status %s of the container, want 7", got)
	}
	y.MustBeLeft(savedBy(0))
}
