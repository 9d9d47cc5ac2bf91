package engines

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/e2e/rig/columns"
	"github.com/seed-126c5d8a/fini/e2e/rig/containers"
	"github.com/seed-126c5d8a/fini/internal/tests/need"
)

// What people do to containers, and what happens to them: the client goes away, the
// container is stopped, killed, paused, restarted, or runs out of memory, and what runs in
// it has changed to another user.

// A saversCase is a container whose command has a saver in a session of its own. What needs a while to save its work has it
// under fini alone.
type saversCase struct {
	name    string
	wrap    []string // what the command runs under; nil for nothing
	flags   []string // of `run`
	command string   // in shell
	do      func(t *testing.T, g *foreground, y *volume)
	client  int // the client's status
	status  int // the container's
	saved   string
	once    []string // each a line of the command's
	says    []string // of fini
}

// savedBy is what a saver leaves that was asked once and had its time, as this user.
func savedBy(uid int) string { return fmt.Sprintf("asked\nsaved by %d\n", uid) }

// startSaver starts a container, and returns when its saver is ready.
func startSaver(t *testing.T, e *containers.Engine, wrap, flags []string, command string) (*foreground, *volume) {
	t.Helper()
	y := newVolume(t)
	g := inForeground(e, t, wrapped(e, t, wrap, y.With(flags...), "sh", "-c", command)...)
	g.Out.Want("saver ready")
	y.MustBeHeld()
	return g, y
}

func runSavers(t *testing.T, e *containers.Engine, cases []saversCase) {
	for _, tt := range cases {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g, y := startSaver(t, e, tt.wrap, tt.flags, tt.command)
			tt.do(t, g, y)
			out := g.MustEnd(tt.client, tt.status)
			for _, line := range tt.once {
				rig.WantOnce(t, out, line)
			}
			y.MustBeLeft(tt.saved)
			mustSay(t, g.Err.Whole(), tt.says...)
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

var inFini = []string{"/fini", "--"}

// TestContainers does it under Docker. It is one test so that the images are built once.
func TestContainers(t *testing.T) {
	t.Parallel()
	e := dockerEngine(t)
	e.Image = containers.BuildExample(t).Whole
	quit, rtmin := []string{"--stop-signal", "QUIT", "-e", "END=3"}, []string{"--stop-signal", "SIGRTMIN+3", "-e", "END=37"}
	const asApp, leaver = "exec su app -c '" + saverMain + "'", holds + "su app -c '" + hasSaver + stubborn + "'; read line; exit 5"
	patient := []string{"-i", "-e", "FINI_ORPHANS_GRACE=20s"}
	unable := []string{"-i", "-e", "FINI_GRACE=1s", "--cap-drop", "ALL", "--cap-add", "SETUID", "--cap-add", "SETGID"}
	twice := []string{"got HUP", "the end"}
	runSavers(t, e, []saversCase{
		// `docker stop` asks the command by the container's stop signal, and fini asks what the command has left, by TERM.
		// Without fini it is killed with PID 1. Signals go through `su` too.
		{"saved work/without", nil, nil, saverMain, hupAndStop, 7, 7, "", twice, nil},
		{"saved work/docker-init", []string{"tini"}, nil, saverMain, hupAndStop, 7, 7, "", twice, nil},
		{"saved work/fini", inFini, nil, saverMain, hupAndStop, 7, 7, savedBy(0), twice, nil},
		{"saved work/stop signal QUIT", inFini, quit, saverMain, hupAndStop, 7, 7, savedBy(0), twice, nil},
		{"saved work/stop signal RTMIN+3", inFini, rtmin, saverMain, hupAndStop, 7, 7, savedBy(0), twice, nil},
		{"saved work/another user", inFini, nil, asApp, hupAndStop, 7, 7, savedBy(1000), twice, nil},
		{"pause", inFini, []string{"-i"}, holds + hasSaver + "exec cat", pauseTwice, 143, 143, savedBy(0), nil, nil},
		// Under the capabilities that Docker gives, root may signal another user's process and not look at its descriptors:
		// fini finds what belongs to the command by descent. Without CAP_KILL root can't end another user's leftovers: fini
		// says so, keeps the status, and does not wait for ever. Its own end ends the container.
		{"another user's leftovers/may be signalled", inFini, patient, leaver, leave, 5, 5, savedBy(1000), nil,
			[]string{"stopping leftover", "(sh /volume/saver)", "killing leftover"}},
		{"another user's leftovers/no right to kill", inFini, unable, leaver, leave, 5, 5, "", nil,
			[]string{"cannot signal", "(sh): operation not permitted", "gave up on leftovers"}},
	})
	for name, part := range map[string]func(t *testing.T, e *containers.Engine){
		"table":          containersTable,
		"out of memory":  containersOutOfMemory,
		"restart":        containersRestart,
		"wrapper killed": containersWrapperKilled,
	} {
		t.Run(name, func(t *testing.T) { t.Parallel(); part(t, e) })
	}
}

// TestContainersRootless makes a user without any right run podman, which maps that user alone to root, and has no cgroup to
// look into. podman's own init is catatonit. Its client is not the container's parent, and nothing but the end of stdin tells
// the container that the client is gone.
func TestContainersRootless(t *testing.T) {
	t.Parallel()
	e, fini := rootlessPodman(t, 54321)
	stop := func(t *testing.T, g *foreground, _ *volume) { g.Must(t, "stop", g.Name) }
	once, patient := []string{"the end"}, []string{"/fini", "-i", "--grace=20s", "--orphans-grace=20s", "--"}
	runSavers(t, e, []saversCase{
		{"stop", nil, []string{"--init", "--init-path", fini}, saverMain, stop, 7, 7, savedBy(0), once, nil},
		{"stop under catatonit", nil, []string{"--init"}, saverMain, stop, 7, 7, "", once, nil},
		{"client killed", patient, []string{"-i", "-v", fini + ":/fini:ro"}, saverMain,
			func(_ *testing.T, g *foreground, _ *volume) { g.Signal(syscall.SIGKILL) }, 137, 7, savedBy(0), nil, nil},
	})
}

func hupAndStop(t *testing.T, g *foreground, y *volume) {
	g.Must(t, "kill", "-s", "HUP", g.Name)
	g.Out.Want("got HUP")
	if got := y.Saved(); got != "" {
		t.Errorf("the leftover was asked to end while the command runs: %q", got)
	}
	g.Must(t, "stop", g.Name) // sends SIGKILL in the end, which would be 137
}

func leave(_ *testing.T, g *foreground, _ *volume) { g.Send("go\n") }

// What comes while the container is paused is there when it goes on: bytes, and the
// signal of a `docker stop`.
func pauseTwice(t *testing.T, g *foreground, _ *volume) {
	g.Must(t, "pause", g.Name)
	var text strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&text, "line %d of what came while the container was paused\n", i)
	}
	g.Send(text.String())
	g.Must(t, "unpause", g.Name)
	for line := range strings.Lines(text.String()) {
		if got, _ := g.Out.Next(); got+"\n" != line {
			t.Fatalf("%q, want %q", got, line)
		}
	}
	g.Must(t, "pause", g.Name)
	g.Must(t, "stop", g.Name)
	if rest := g.Out.Rest(); len(rest) > 0 {
		t.Errorf("more came out than went in: %q", rest)
	}
}

// The kernel kills the command for its memory. fini outlives that, says it, wherever its cgroup is mounted, gives the
// rest its time and passes the status on.
func containersOutOfMemory(t *testing.T, e *containers.Engine) {
	need.That(t, e.Must(t, "info", "-f", "{{.MemoryLimit}}") == "true", "an engine that can limit memory")
	for _, namespace := range []string{"host", "private"} {
		for again := 1; ; again++ {
			g, y := startSaver(t, e, inFini, []string{"-i", "-m", "32m", "--memory-swap", "32m", "--cgroupns=" + namespace},
				holds+hasSaver+"read line; exec tail /dev/zero")
			g.Send("eat\n")
			g.MustEnd(137, 137)
			rig.Until(t, "the engine knows of the kernel's kill", func() bool {
				return e.Must(t, "inspect", "-f", "{{.State.OOMKilled}}", g.Name) == "true"
			})
			said := g.Err.Whole()
			if (strings.Contains(said, "the command was killed by SIGKILL") && y.Saved() == savedBy(0)) || again == 10 {
				mustSay(t, said, "the command was killed by SIGKILL; the kernel killed a process for memory", "fini: stopping leftover")
				y.MustBeLeft(savedBy(0))
				break
			}
			t.Logf("TRIED AGAIN: the kernel killed another process too, before the memory of the first was free")
		}
	}
}

// `docker restart` ends one life as `docker stop` does, and begins another. SIGKILL of PID 1 leaves nobody time, and
// nothing that keeps the container from being started again.
func containersRestart(t *testing.T, e *containers.Engine) {
	for how, saved := range map[string]string{"restart": savedBy(0), "kill": ""} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			g, y := startSaver(t, e, inFini, nil, saverMain)
			e.Must(t, how, g.Name)
			if how == "kill" {
				g.MustEnd(137, 137)
				y.MustBeLeft("")
				e.Must(t, "start", g.Name)
			}
			logs := func() string { return e.Must(t, "logs", g.Name) }
			rig.Until(t, "it is ready again", func() bool { return strings.Count(logs(), "saver ready") == 2 })
			y.MustBeHeld()
			if got := y.Saved(); got != saved {
				t.Errorf("the first life saved %q", got)
			}
			e.Must(t, "stop", g.Name)
			if got := e.Must(t, "wait", g.Name); got != "7" {
				t.Errorf("status %s, want 7", got)
			}
			if n, lives := strings.Count(logs(), "the end"), strings.Count(saved, "saved")+1; n != lives {
				t.Errorf("the command was asked %d times, want %d", n, lives)
			}
			y.MustBeLeft(saved + savedBy(0))
		})
	}
}

// containersTable fills in the table's rows. The client of `docker run -i` goes away, or closes stdin, and the server does not
// care for the end of stdin.
func containersTable(t *testing.T, e *containers.Engine) {
	const server = `setsid sleep 1000 & echo ready; while :; do sleep 1000 & wait; done`
	for _, tt := range []struct {
		name   string
		client int
		end    func(*foreground)
	}{
		{"stdin closed", 143, func(g *foreground) { _ = g.Stdin.Close() }},
		{"client TERMed", 143, func(g *foreground) { g.Signal(syscall.SIGTERM) }},
		{"client killed", 137, func(g *foreground) { g.Signal(syscall.SIGKILL) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			columns.Run(t, "`docker run -i`, "+tt.name, []string{"-i"}, func(t *testing.T, wrap []string) columns.Outcome {
				g := inForeground(e, t, wrapped(e, t, wrap, []string{"-i"}, "sh", "-c", server)...)
				g.Out.Want("ready")
				tt.end(g)
				o := columns.Watch(wrap, g.Out, func() int { return countIn(e, t, g.Name) })
				if columns.UnderFini(wrap) && !o.Never && o.Survivors == 0 {
					g.MustEnd(tt.client, 143)
				}
				return o
			})
		})
	}
	t.Run("wrapper killed", func(t *testing.T) {
		t.Parallel()
		const name = "`docker exec`, another user's tree, wrapper killed"
		columns.Run(t, name, nil, func(t *testing.T, wrap []string) columns.Outcome {
			command := []string{"su", "app", "-c", hasSaver + stays}
			if wrap != nil { // as it is called in the container
				command = slices.Concat([]string{"/" + filepath.Base(wrap[0])}, wrap[1:], command)
			}
			b := startBeside(t, e, "0", command)
			b.Out.Want("saver ready")
			e.Must(t, "exec", b.Name, "kill", "-KILL", b.Wrapper)
			o := columns.Watch(wrap, b.Out, b.More)
			if columns.UnderFini(wrap) {
				b.Y.MustBeLeft(savedBy(1000))
			}
			return o
		})
	})
}

// Within a container a wrapper is not PID 1, and nobody but itself ends what it has
// started: each of the pair ends another user's tree too when the other is killed.
func containersWrapperKilled(t *testing.T, e *containers.Engine) {
	for _, who := range []struct {
		name, user string
		uid        int
		run        []string
	}{
		{"of root, with another user's tree", "0", 1000, []string{"su", "app", "-c", stubborn + hasSaver + stays}},
		{"of another user", "1000", 1000, []string{"sh", "-c", stubborn + hasSaver + stays}},
	} {
		for _, which := range []string{"outer", "inner"} {
			t.Run(which+" "+who.name, func(t *testing.T) {
				t.Parallel()
				b := startBeside(t, e, who.user, append([]string{"/fini", "--grace=20s", "--orphans-grace=20s", "--"}, who.run...))
				b.Out.Want("saver ready")
				b.Y.MustBeHeld()
				pid := b.Wrapper
				if which == "inner" {
					pid = e.Must(t, "exec", b.Name, "pidof", "reaper")
				}
				e.Must(t, "exec", b.Name, "kill", "-KILL", pid)
				b.MustHaveStatus(137)
				b.Out.Rest()
				rig.Until(t, "the case's last process is gone", func() bool { return rig.HungUp(b.Y.Witness) })
				b.Y.MustBeLeft(savedBy(who.uid))
				rig.Until(t, "nothing is left", func() bool { return b.More() == 0 })
			})
		}
	}
}

// beside is a `docker exec` into a container that runs two processes: an init, for which
// nobody's orphan stays a zombie, and a sleep.
type beside struct {
	*rig.Life
	Y       *volume
	Name    string
	Wrapper string     // the pid that began as the exec's
	More    func() int // how many processes are in the container beside those two
}

func startBeside(t *testing.T, e *containers.Engine, user string, command []string) *beside {
	t.Helper()
	tini := need.Program(t, "tini-static")
	y := newVolume(t)
	c := containers.StartContainer(t, y.With("-v", tini+":/tini:ro", "--entrypoint", "/tini", e.Image, "sleep", "1000")...)
	more := func() int { return countIn(e, t, c.Name) - 2 }
	rig.Until(t, "the container runs", func() bool { return more() == 0 })
	args := append([]string{"exec", "-u", user, c.Name, "sh", "-c", holds + `echo wrapper $$; exec "$@"`, "sh"}, command...)
	b := &beside{rig.StartCmd(t, e.Command(t, args...)), y, c.Name, "", more}
	b.Wrapper = b.Out.Want("wrapper ")
	return b
}

// A volume is a directory that a container has as /volume. In it are the scripts, and what is
// left of their work; and a witness, which each process of the case holds.
type volume struct {
	t       *testing.T
	dir     string
	Witness *os.File
}

// Asked to end, a saver needs a while to save its work. What it starts meanwhile ignores the TERM that each leftover gets.
const saver = `
	trap 'trap "" TERM; echo asked >>/volume/saved; sleep 0.3; echo "saved by $(id -u)" >>/volume/saved; exit' TERM
	echo saver ready
	while :; do sleep 1000 & wait; done`

// What commands are made of.
const (
	holds    = `exec 9>/volume/witness; `
	hasSaver = `setsid sh /volume/saver & `
	stays    = `while :; do sleep 1000 & wait; done`
	stubborn = `(trap "" TERM; setsid sleep 1000 &); ` // ignores TERM, as its parent does
)

// saverMain says which signal it got, and ends by the one that END names.
const saverMain = holds + `
	for s in HUP INT QUIT USR1 USR2 WINCH TERM 37; do trap "echo got $s" $s; done
	trap "echo the end; exit 7" ${END:-TERM}
	` + hasSaver + stays

func newVolume(t *testing.T) *volume {
	t.Helper()
	// Not t.TempDir, whose parent another user can't look into.
	dir, err := os.MkdirTemp("", "fini-volume-")
	rig.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	rig.Put(t, filepath.Join(dir, "saver"), saver, 0o644)
	rig.Run(t, "sh", "-ec", `cd "$1"; chmod 755 .; mkfifo -m 666 witness; >saved; chmod 666 saved`, "sh", dir)
	// With a reader that does not wait for a writer.
	witness, err := os.OpenFile(filepath.Join(dir, "witness"), os.O_RDONLY|syscall.O_NONBLOCK, 0)
	rig.NoError(t, err)
	t.Cleanup(func() { _ = witness.Close() })
	return &volume{t, dir, witness}
}

// With is flags of `run` which give a container this volume.
func (y *volume) With(flags ...string) []string {
	return append([]string{"-v", y.dir + ":/volume"}, flags...)
}

func (y *volume) Saved() string {
	y.t.Helper()
	return rig.ReadFile(y.t, filepath.Join(y.dir, "saved"))
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
