package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/seed-126c5d8a/fini/e2e/need"
)

// What people do to containers, and what happens to them: the client goes away, the
// container is stopped, killed, paused, restarted, or runs out of memory, and what runs in
// it has changed to another user.

// TestContainers does it under Docker. It is one test so that the images are built once.
func TestContainers(t *testing.T) {
	t.Parallel()
	need.That(t, dockerWorks(), "a running Docker engine, which e2e/dockerd.sh starts")
	image := buildExample(t, needStaticBusybox(t)).whole
	for _, part := range []struct {
		name string
		run  func(t *testing.T, image string)
	}{
		{"table", containersTable},
		{"saved work", containersSavedWork},
		{"signals", containersSignals},
		{"stop signal", containersStopSignal},
		{"clean-up", containersCleanUp},
		{"kill and start", containersKillAndStart},
		{"out of memory", containersOutOfMemory},
		{"pause", containersPause},
		{"timeout while paused", containersTimeoutWhilePaused},
		{"restart", containersRestart},
		{"restart policy", containersRestartPolicy},
		{"another user's leftovers", containersOtherUser},
		{"no right to kill", containersNoRightToKill},
		{"statuses of su", containersStatusesOfSu},
		{"signals to su", containersSignalsToSu},
		{"wrapper killed", containersWrapperKilled},
	} {
		t.Run(part.name, func(t *testing.T) {
			t.Parallel()
			part.run(t, image)
		})
	}
}

// A volume is a directory that a container has as /volume. In it are the scripts, and what is
// left of their work; and a witness, which each process of the case holds.
type volume struct {
	t       testing.TB
	dir     string
	witness *os.File
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
			case $name$parent in "(fini)(fini)") echo ${d#/proc/};; esac
		done 2>/dev/null
		true`,
	// Says the status that each end of a command has. $1 is the wrapper, $2 runs a line.
	"statuses": `
		for end in "exit 0" "exit 7" "exit 255" 'kill -TERM $$' 'kill -KILL $$' no-such-command /bin/plain-text; do
			$1 $2 "$end" 2>&1
			echo "$end: $?"
		done`,
}

func newVolume(t testing.TB) *volume {
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

// with is flags of `run` which give a container this volume, and its users.
func (y *volume) with(flags ...string) []string {
	return append([]string{"-v", y.dir + ":/volume", "-v", filepath.Join(y.dir, "passwd") + ":/etc/passwd:ro",
		"-v", filepath.Join(y.dir, "group") + ":/etc/group:ro"}, flags...)
}

func (y *volume) saved() string {
	y.t.Helper()
	text, err := os.ReadFile(filepath.Join(y.dir, "saved"))
	if err != nil {
		y.t.Fatal(err)
	}
	return string(text)
}

// savedBy is what a saver leaves that was asked once and had its time, as this user.
func savedBy(uid int) string { return fmt.Sprintf("asked\nsaved by %d\n", uid) }

// mustBeLeft asserts that this work was saved, and that nobody of the case is alive.
func (y *volume) mustBeLeft(saved string) {
	y.t.Helper()
	if got := y.saved(); got != saved {
		y.t.Errorf("saved was %q, want %q", got, saved)
	}
	if heldOpen(y.witness) {
		y.t.Error("a process of the case is alive")
	}
}

// mustBeHeld asserts that the case has not let go of the witness before it ends.
func (y *volume) mustBeHeld() {
	y.t.Helper()
	if hungUp(y.witness) {
		y.t.Fatal("nobody holds the witness")
	}
}

// A dockerRun is the client of a `docker run -i --rm`, and what the engine says of the
// container, which may outlive the client or be gone before it.
type dockerRun struct {
	*life
	name   string
	events *lines
}

// startRun is `docker run -i --rm flags...`, where flags end with the image and what is
// behind it.
func startRun(t testing.TB, flags ...string) *dockerRun {
	t.Helper()
	c := &container{t: t, name: dockerName("client")}
	t.Cleanup(func() {
		_ = dockerCommand(t, "rm", "-f", c.name).Run()
		until(t, "the container is removed", func() bool { return isGone(t, c.name) })
	})
	// The engine remembers what was before the client has asked.
	events, _ := c.follow("events", "--since", strconv.FormatInt(time.Now().Unix(), 10),
		"--filter", "container="+c.name, "--filter", "event=die", "--filter", "event=destroy",
		"--format", "{{.Action}} {{.Actor.Attributes.exitCode}}")
	args := append([]string{"run", "-i", "--rm", "--network", "none", "--name", c.name}, flags...)
	return &dockerRun{startCmd(t, dockerCommand(t, args...)), c.name, events}
}

func isGone(t testing.TB, name string) bool {
	t.Helper()
	return dockerCommand(t, "inspect", name).Run() != nil
}

// mustBeGone waits for the container's end and its removal, and asserts its status, which
// need not be the client's.
func (r *dockerRun) mustBeGone(want int) {
	r.t.Helper()
	if got := r.events.want("die "); got != strconv.Itoa(want) {
		r.t.Errorf("status %s of the container, want %d; stderr: %s", got, want, r.Err.text())
	}
	r.events.want("destroy ")
	if !isGone(r.t, r.name) {
		r.t.Error("the container is destroyed and can be inspected")
	}
}

func (r *dockerRun) send(text string) {
	r.t.Helper()
	if err := r.Stdin.(*os.File).SetWriteDeadline(time.Now().Add(patience)); err != nil {
		r.t.Fatal(err)
	}
	if _, err := r.Stdin.Write([]byte(text)); err != nil {
		r.t.Fatalf("cannot write to the client: %v", err)
	}
}

// dockerTop counts the processes in a container, as the engine lists those of its cgroup.
func dockerTop(t testing.TB, name string) int {
	t.Helper()
	out, err := dockerCommand(t, "top", name, "-o", "pid").Output()
	if err != nil { // which has to be because the container has ended, and may be gone
		running, _ := dockerCommand(t, "inspect", "-f", "{{.State.Running}}", name).Output()
		if strings.TrimSpace(string(running)) == "true" {
			t.Fatalf("docker top: %v", err)
		}
	}
	return max(0, strings.Count(string(out), "\n")-1) // without the heading
}

// wantAll reads lines up to the last of these, which come in any order.
func wantAll(l *lines, want ...string) {
	l.t.Helper()
	for len(want) > 0 {
		line, ok := l.next()
		if !ok {
			l.t.Fatalf("EOF before %q; so far: %q", want, l.text())
		}
		want = slices.DeleteFunc(want, func(w string) bool { return w == line })
	}
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
	run := dockerCommand(t, "run", "--rm", "--network", "none", "--init", "--entrypoint", "true", image)
	out, err := run.CombinedOutput()
	need.That(t, err == nil, fmt.Sprintf("an engine with its own init, tini (%v: %s)", err, out))
}

// containersTable fills in the table's rows. Together, for what they do most is wait.
func containersTable(t *testing.T, image string) {
	rows := map[string]func(t *testing.T){
		"wrapper killed": func(t *testing.T) { wrapperKilledRow(t, image) },
		"stdin closed": func(t *testing.T) {
			clientRow(t, image, "stdin closed", 143, func(r *dockerRun) { _ = r.Stdin.Close() })
		},
		"client TERMed": func(t *testing.T) {
			clientRow(t, image, "client TERMed", 143, func(r *dockerRun) { r.signal(syscall.SIGTERM) })
		},
		"client killed": func(t *testing.T) {
			clientRow(t, image, "client killed", 137, func(r *dockerRun) { r.signal(syscall.SIGKILL) })
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
	inColumns(t, "`docker run -i`, "+name, []string{"-i"}, func(t *testing.T, wrap []string) outcome {
		r := startRun(t, wrapped(t, image, wrap, nil, "sh", "-c", server)...)
		r.Out.want("ready")
		end(r)
		if !isFini(wrap) {
			return r.outcome(window)
		}
		o := r.outcome(patience)
		if !o.never && o.survivors == 0 {
			r.mustBeGone(143)
			if got := r.status(); got != status {
				t.Errorf("status %d of the client, want %d", got, status)
			}
		}
		return o
	})
}

func isFini(wrap []string) bool { return wrap != nil && wrap[0] == finiPath }

// outcome watches the client's output and the container from now on, which is the moment
// after the fault, and counts what is there in the end.
func (r *dockerRun) outcome(limit time.Duration) (o outcome) {
	r.t.Helper()
	start := time.Now()
	deadline := time.After(limit)
	// This also ends where there is no such container any more.
	wait, _ := (&container{t: r.t, name: r.name}).follow("wait", r.name)
	for out, ended := r.Out.c, wait.c; out != nil || ended != nil; {
		select {
		case _, open := <-out:
			if !open {
				o.eof, out = time.Since(start), nil
			}
		case _, open := <-ended:
			if !open {
				ended = nil
			}
		case <-deadline:
			o.never, out, ended = out != nil, nil, nil
		}
	}
	o.survivors = dockerTop(r.t, r.name)
	return o
}

// `docker stop` asks the command, and fini what the command has left. Without fini what
// needs a while to save its work is killed with PID 1.
func containersSavedWork(t *testing.T, image string) {
	for _, tt := range []struct {
		name, saved string
		wrap        []string
	}{
		{"without", "", nil},
		{"docker-init", "", []string{"tini"}},
		{"fini", savedBy(0), []string{"fini", "--"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			y := newVolume(t)
			c := startContainer(t, wrapped(t, image, tt.wrap, y.with(), "sh", "/volume/main")...)
			c.Out.want("saver ready")
			y.mustBeHeld()
			docker(t, "stop", c.name) // sends SIGKILL after 10 s, which would be 137
			wantOnce(t, c.mustEnd(7), "the end")
			y.mustBeLeft(tt.saved)
		})
	}
}

// `docker kill` with each signal reaches the command once, and ends nothing by itself.
func containersSignals(t *testing.T, image string) {
	y := newVolume(t)
	c := startContainer(t, y.with(image, "sh", "/volume/main")...)
	c.Out.want("saver ready")
	y.mustBeHeld()
	signals := map[string]string{"HUP": "HUP", "SIGINT": "INT", "3": "QUIT", "USR1": "USR1", "USR2": "USR2",
		"WINCH": "WINCH", "RTMIN+3": "37"}
	for sig, name := range signals {
		docker(t, "kill", "-s", sig, c.name)
		c.Out.want("got " + name)
	}
	if got := y.saved(); got != "" {
		t.Errorf("the leftover was asked to end while the command runs: %q", got)
	}
	docker(t, "kill", "-s", "TERM", c.name)
	out := c.mustEnd(7)
	for _, name := range signals {
		wantOnce(t, out, "got "+name)
	}
	wantOnce(t, out, "the end")
	y.mustBeLeft(savedBy(0))
}

// A container may have another stop signal. What the command leaves is asked by TERM
// all the same.
func containersStopSignal(t *testing.T, image string) {
	for sig, number := range map[string]string{"QUIT": "3", "SIGRTMIN+3": "37"} {
		t.Run(sig, func(t *testing.T) {
			t.Parallel()
			y := newVolume(t)
			c := startContainer(t, y.with("--stop-signal", sig, "-e", "END="+number, image, "sh", "/volume/main")...)
			c.Out.want("saver ready")
			y.mustBeHeld()
			docker(t, "stop", c.name)
			wantOnce(t, c.mustEnd(7), "the end")
			y.mustBeLeft(savedBy(0))
		})
	}
}

// `docker stop` asks the command's group. A leftover that had that request is cleaning up, and keeps what it starts.
func containersCleanUp(t *testing.T, image string) {
	c := startContainer(t, "--stop-timeout", "60", image, "sh", "-c", "("+cleaner+") & wait")
	c.Out.want("ready")
	untilOlder(t)
	docker(t, "stop", c.name)
	out := c.mustEnd(128 + int(syscall.SIGTERM))
	for i := range 4 {
		wantOnce(t, out, fmt.Sprintf("delete %d ok", i+1))
	}
}

// SIGKILL of PID 1 leaves nobody time, and nothing that keeps the container from being
// started again.
func containersKillAndStart(t *testing.T, image string) {
	y := newVolume(t)
	c := startContainer(t, y.with(image, "sh", "/volume/main")...)
	c.Out.want("saver ready")
	y.mustBeHeld()
	docker(t, "kill", c.name)
	c.mustEnd(137)
	y.mustBeLeft("")

	docker(t, "start", c.name)
	c.untilSaid("saver ready", 2)
	y.mustBeHeld()
	docker(t, "stop", c.name)
	wantOnce(t, c.mustEnd(7), "the end")
	y.mustBeLeft(savedBy(0))
}

// untilSaid waits until a container has written a line this often, in all its lives.
func (c *container) untilSaid(line string, times int) {
	c.t.Helper()
	until(c.t, fmt.Sprintf("%d times %q", times, line), func() bool {
		return strings.Count(docker(c.t, "logs", c.name)+"\n", line+"\n") >= times
	})
}

// The kernel kills the command for its memory. fini outlives that, gives the rest its time
// and passes the status on.
func containersOutOfMemory(t *testing.T, image string) {
	limited := docker(t, "info", "-f", "{{.MemoryLimit}}")
	need.That(t, limited == "true", "an engine that can limit memory")
	y := newVolume(t)
	// -i keeps stdin open, and without a client nothing comes on it.
	c := startContainer(t, y.with("-i", "-m", "32m", "--memory-swap", "32m", image, "sh", "/volume/eater")...)
	c.Out.want("saver ready")
	y.mustBeHeld()
	attach := dockerCommand(t, "attach", c.name)
	attach.Stdin = strings.NewReader("eat\n")
	_ = attach.Run() // has the container's status
	c.mustEnd(137)
	if got := docker(t, "inspect", "-f", "{{.State.OOMKilled}}", c.name); got != "true" {
		t.Errorf("OOMKilled is %s, so that this shows nothing", got)
	}
	c.Err.want("fini: stopping leftover")
	y.mustBeLeft(savedBy(0))
}

// What comes while the container is paused is there when it goes on: bytes, and the
// signal of a `docker stop`.
func containersPause(t *testing.T, image string) {
	y := newVolume(t)
	r := startRun(t, y.with(image, "sh", "/volume/copy")...)
	r.Out.want("saver ready")
	y.mustBeHeld()
	docker(t, "pause", r.name)
	var text strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&text, "line %d of what came while the container was paused\n", i)
	}
	r.send(text.String())
	docker(t, "unpause", r.name)
	for line := range strings.Lines(text.String()) {
		if got, _ := r.Out.next(); got+"\n" != line {
			t.Fatalf("%q, want %q", got, line)
		}
	}

	docker(t, "pause", r.name)
	docker(t, "stop", r.name)
	if got := r.status(); got != 143 {
		t.Errorf("status %d, want 143; stderr: %s", got, r.Err.text())
	}
	if rest := r.Out.rest(); len(rest) > 0 {
		t.Errorf("more came out than went in: %q", rest)
	}
	r.mustBeGone(143)
	y.mustBeLeft(savedBy(0))
}

// fini's clock goes on while the container is paused: a timeout that has run out by then
// takes effect at once. The container has to be paused before.
func containersTimeoutWhilePaused(t *testing.T, image string) {
	const timeout = 8 * time.Second
	y := newVolume(t)
	r := startRun(t, y.with("-e", "FINI_TIMEOUT="+timeout.String(), image, "sh", "/volume/copy")...)
	r.Out.want("saver ready")
	started := time.Now()
	y.mustBeHeld()
	docker(t, "pause", r.name)
	until(t, "the timeout has run out", func() bool { return time.Since(started) > timeout })
	if got := y.saved(); got != "" {
		t.Fatalf("the container is paused, and the saver was asked: %q", got)
	}
	unpaused := time.Now()
	docker(t, "unpause", r.name)
	until(t, "the saver is asked", func() bool { return y.saved() != "" })
	// A clock that had stood still would need nearly all of the timeout.
	if took := time.Since(unpaused); took > timeout/2 {
		t.Errorf("the timeout took effect %v after the container went on", took)
	}
	if got := r.status(); got != 124 {
		t.Errorf("status %d, want 124; stderr: %s", got, r.Err.text())
	}
	r.Out.rest()
	r.mustBeGone(124)
	y.mustBeLeft(savedBy(0))
}

// `docker restart` ends one life as `docker stop` does, and begins another.
func containersRestart(t *testing.T, image string) {
	y := newVolume(t)
	c := startContainer(t, y.with(image, "sh", "/volume/main")...)
	c.Out.want("saver ready")
	docker(t, "restart", c.name)
	c.untilSaid("saver ready", 2)
	y.mustBeHeld()
	if got := y.saved(); got != savedBy(0) {
		t.Errorf("the first life saved %q", got)
	}
	docker(t, "stop", c.name)
	out := c.mustEnd(7)
	if n := strings.Count(out, "the end"); n != 2 {
		t.Errorf("the command was asked %d times, want once in each of its lives: %s", n, out)
	}
	y.mustBeLeft(savedBy(0) + savedBy(0))
}

// An engine that starts a container again where it fails is told by the status, also
// where the command leaves something.
func containersRestartPolicy(t *testing.T, image string) {
	for status, lives := range map[int]int{0: 1, 3: 3} {
		t.Run(strconv.Itoa(status), func(t *testing.T) {
			t.Parallel()
			c := startContainer(t, "--restart", "on-failure:2", image, "sh", "-c",
				fmt.Sprintf("setsid sleep 1000 & echo alive; exit %d", status))
			want := fmt.Sprintf("%d exited %d", lives-1, status)
			until(t, "restarts, state and status: "+want, func() bool {
				return want == docker(t, "inspect", "-f", "{{.RestartCount}} {{.State.Status}} {{.State.ExitCode}}", c.name)
			})
			if n := strings.Count(docker(t, "logs", c.name), "alive"); n != lives {
				t.Errorf("%d lives, want %d", n, lives)
			}
		})
	}
}

// Under the capabilities that Docker gives, root may signal another user's process and not
// look at its descriptors. fini finds what belongs to the command by descent.
func containersOtherUser(t *testing.T, image string) {
	y := newVolume(t)
	r := startRun(t, y.with("-e", "FINI_GRACE=4s", image, "sh", "/volume/leaver")...)
	wantAll(r.Out, "saver ready", "stubborn ready")
	y.mustBeHeld()
	r.send("go\n")
	r.Out.rest()
	if got := r.status(); got != 5 {
		t.Errorf("status %d, want 5", got)
	}
	r.mustBeGone(5)
	y.mustBeLeft(savedBy(1000))
	said := strings.Join(r.Err.rest(), "\n")
	for _, want := range []string{"stopping leftover", "(sh /volume/saver)", "(sh /volume/stubborn)", "killing leftover"} {
		if !strings.Contains(said, want) {
			t.Errorf("fini did not say %q but:\n%s", want, said)
		}
	}
}

// Where root is not given CAP_KILL it can't end another user's leftovers. fini says so,
// keeps the status, and does not wait for ever. Its own end ends the container.
func containersNoRightToKill(t *testing.T, image string) {
	y := newVolume(t)
	r := startRun(t, y.with("-e", "FINI_GRACE=1s", "--cap-drop", "ALL", "--cap-add", "SETUID", "--cap-add", "SETGID",
		image, "sh", "/volume/leaver")...)
	wantAll(r.Out, "saver ready", "stubborn ready")
	y.mustBeHeld()
	r.send("go\n")
	r.Out.rest()
	if got := r.status(); got != 5 {
		t.Errorf("status %d, want 5", got)
	}
	r.mustBeGone(5)
	y.mustBeLeft("")
	said := strings.Join(r.Err.rest(), "\n")
	for _, want := range []string{"cannot signal", "(sh): operation not permitted", "gave up on leftovers"} {
		if !strings.Contains(said, want) {
			t.Errorf("fini did not say %q but:\n%s", want, said)
		}
	}
}

// A command that is run as another user has the status and says what it does without fini;
// and so has one that runs under a fini which is not root.
func containersStatusesOfSu(t *testing.T, image string) {
	y := newVolume(t)
	c := startContainer(t, y.with("--entrypoint", "sleep", image, "1000")...)
	for _, tt := range []struct{ name, user, run string }{
		{"fini as root", "0", "su app -c"},
		{"fini as another user", "1000", "sh -c"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			say := func(wrap string) string {
				return docker(t, "exec", "-u", tt.user, c.name, "sh", "/volume/statuses", wrap, tt.run)
			}
			plain := say("")
			for _, want := range []string{"exit 0: 0", "exit 7: 7", "exit 255: 255", "kill -TERM $$: 143",
				"kill -KILL $$: 137", "no-such-command: 127", "/bin/plain-text: 126"} {
				wantOnce(t, plain, want)
			}
			for _, wrap := range []string{"/fini --", "/fini --no-shield --"} {
				if got := say(wrap); got != plain {
					t.Errorf("%s:\n%s\nwithout it:\n%s", wrap, got, plain)
				}
			}
		})
	}
}

// Signals go through `su` as they do without fini; the leftover is the other user's.
func containersSignalsToSu(t *testing.T, image string) {
	for _, tt := range []struct {
		name, saved string
		wrap        []string
	}{
		{"without", "", nil},
		{"fini", savedBy(1000), []string{"fini", "--"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			y := newVolume(t)
			c := startContainer(t, wrapped(t, image, tt.wrap, y.with(), "su", "app", "-c", "exec sh /volume/main")...)
			c.Out.want("saver ready")
			y.mustBeHeld()
			docker(t, "kill", "-s", "HUP", c.name)
			c.Out.want("got HUP")
			docker(t, "stop", c.name)
			out := c.mustEnd(7)
			wantOnce(t, out, "got HUP")
			wantOnce(t, out, "the end")
			y.mustBeLeft(tt.saved)
		})
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
				b := startBeside(t, image, who.user, append([]string{"/fini", "--grace=4s", "--"}, who.run...))
				wantAll(b.Out, "saver ready", "stubborn ready")
				b.y.mustBeHeld()
				pid := b.wrapper
				if which == "inner" {
					pid = docker(t, "exec", b.name, "sh", "/volume/inner")
				}
				docker(t, "exec", b.name, "kill", "-KILL", pid)
				if got := b.status(); got != 137 {
					t.Errorf("status %d, want 137", got)
				}
				b.Out.rest()
				until(t, "the case's last process is gone", func() bool { return hungUp(b.y.witness) })
				b.y.mustBeLeft(savedBy(who.uid))
				until(t, "nothing is left", func() bool { return b.more() == 0 })
			})
		}
	}
}

func wrapperKilledRow(t *testing.T, image string) {
	const name = "`docker exec`, another user's tree, wrapper killed"
	inColumns(t, name, nil, func(t *testing.T, wrap []string) outcome {
		command := []string{"su", "app", "-c", "exec sh /volume/one"}
		if wrap != nil { // as it is called in the container
			command = append(append([]string{"/" + filepath.Base(wrap[0])}, wrap[1:]...), command...)
		}
		b := startBeside(t, image, "0", command)
		b.Out.want("saver ready")
		docker(t, "exec", b.name, "kill", "-KILL", b.wrapper)
		if !isFini(wrap) {
			return b.outcome(window)
		}
		o := b.outcome(patience)
		b.y.mustBeLeft(savedBy(1000))
		return o
	})
}

// beside is a `docker exec` into a container that runs two processes: an init, for which
// nobody's orphan stays a zombie, and a sleep.
type beside struct {
	*life
	y       *volume
	name    string
	wrapper string // the pid that began as the exec's
}

func startBeside(t testing.TB, image, user string, command []string) *beside {
	t.Helper()
	tini := need.Program(t, "tini-static")
	y := newVolume(t)
	c := startContainer(t, y.with("-v", tini+":/tini:ro", "--entrypoint", "/tini", image, "sleep", "1000")...)
	until(t, "the container runs", func() bool { return dockerTop(t, c.name) == 2 })
	args := append([]string{"exec", "-u", user, c.name, "sh", "/volume/wrapper"}, command...)
	b := &beside{life: startCmd(t, dockerCommand(t, args...)), y: y, name: c.name}
	b.wrapper = b.Out.want("wrapper ")
	return b
}

// more is how many processes are in the container beside those two.
func (b *beside) more() int { return dockerTop(b.t, b.name) - 2 }

// outcome watches the exec's output, and what it has brought into the container, from
// now on.
func (b *beside) outcome(limit time.Duration) (o outcome) {
	start := time.Now()
	deadline := time.After(limit)
	for out := b.Out.c; out != nil; {
		select {
		case _, open := <-out:
			if !open {
				o.eof, out = time.Since(start), nil
			}
		case <-deadline:
			o.never, out = true, nil
		}
	}
	poll(time.Until(start.Add(limit)), func() bool { return b.more() == 0 })
	o.survivors = b.more()
	return o
}

// TestContainersPod runs testdata/pod.yaml, which the README shows, under podman, which
// takes what Kubernetes takes.
func TestContainersPod(t *testing.T) {
	t.Parallel()
	need.Root(t, "for podman")
	need.Program(t, "runc")
	e := &engine{client: podmanClient(t), env: podmanConfig(t)}
	base := "localhost/fini-e2e:base"
	example := podmanImages(t, e, base)
	out, err := e.command(t, "run", "--rm", "--network", "none", base, "true").CombinedOutput()
	need.That(t, err == nil, fmt.Sprintf("a podman that runs containers here (%v: %s)", err, out))

	text, err := os.ReadFile("testdata/pod.yaml")
	if err != nil {
		t.Fatal(err)
	}
	manifest := string(text)
	edit := func(from, to string) {
		t.Helper()
		if strings.Count(manifest, from) != 1 {
			t.Fatalf("not once in testdata/pod.yaml: %q", from)
		}
		manifest = strings.Replace(manifest, from, to, 1)
	}
	edit("image: example\n", "image: "+example+"\n      imagePullPolicy: Never\n")
	edit("image: busybox\n", "image: "+base+"\n      imagePullPolicy: Never\n")

	// run plays the manifest, stops the pod, and returns what the server has written.
	run := func(pod string, inside func(server string)) string {
		t.Helper()
		edit("  name: example\n", "  name: "+pod+"\n")
		file := filepath.Join(t.TempDir(), "pod.yaml")
		if err := os.WriteFile(file, []byte(manifest), 0o644); err != nil {
			t.Fatal(err)
		}
		edit("  name: "+pod+"\n", "  name: example\n")
		t.Cleanup(func() { e.must(t, "pod", "rm", "-f", "-t", "0", pod) })
		e.must(t, "play", "kube", "--network", "none", file)
		server := pod + "-server"
		until(t, "the server is ready", func() bool { return strings.Contains(e.must(t, "logs", server), "ready") })
		inside(server)
		e.must(t, "pod", "stop", pod) // sends SIGKILL after 10 s, which would be 137
		if got := e.must(t, "wait", server); got != "7" {
			t.Errorf("status %s of the server, want 7", got)
		}
		return e.must(t, "logs", server)
	}

	version, err := exec.Command(finiPath, "--version").Output()
	if err != nil {
		t.Fatal(err)
	}
	log := run("fini-e2e-with", func(server string) {
		if got := e.must(t, "exec", server, "/proc/1/exe", "--version"); got != strings.TrimSpace(string(version)) {
			t.Errorf("PID 1 says that it is %q", got)
		}
		if got := e.must(t, "exec", server, "/bin/cat", "/proc/1/cmdline"); !strings.HasPrefix(got, "/tools/fini\x00--\x00") {
			t.Errorf("PID 1 runs as %q", got)
		}
	})
	wantOnce(t, log, "ready")
	wantOnce(t, log, "saved")

	// The same without fini in front of the command loses the work.
	edit("      command: [\"/tools/fini\", \"--\"]\n", "")
	if log := run("fini-e2e-without", func(string) {}); strings.Contains(log, "saved") {
		t.Errorf("without fini the work is saved too, so that this shows nothing: %s", log)
	}
}

// podmanImages makes base, a busybox, and the image of Dockerfile.example on it, which
// it names.
func podmanImages(t *testing.T, e *engine, base string) (example string) {
	t.Helper()
	load := e.command(t, "import", "-", base)
	load.Stdin = busyboxTar(t, needStaticBusybox(t))
	if out, err := load.CombinedOutput(); err != nil {
		t.Fatalf("podman import: %v: %s", err, out)
	}
	example = "localhost/fini-e2e:example"
	dir := t.TempDir()
	for from, to := range map[string]string{finiPath: "fini", "../Dockerfile.example": "Dockerfile"} {
		if out, err := exec.Command("cp", from, filepath.Join(dir, to)).CombinedOutput(); err != nil {
			t.Fatalf("cp: %v: %s", err, out)
		}
	}
	e.must(t, "build", "-q", "--build-arg", "BASE="+base, "-t", example, dir)
	return example
}

// TestContainersRootless makes a user without any right run podman, which maps that user
// alone to root, and has no cgroup to look into.
func TestContainersRootless(t *testing.T) {
	t.Parallel()
	need.Root(t, "to become a user without rights")
	need.Program(t, "runc")
	need.Program(t, "setpriv")
	e, fini := rootlessPodman(t, 54321)
	for name, run := range map[string]func(t *testing.T, e *engine, fini string){
		"status":        rootlessStatus,
		"stop":          rootlessStop,
		"client killed": rootlessClientKilled,
	} {
		t.Run(name, func(t *testing.T) { t.Parallel(); run(t, e, fini) })
	}
}

// rootlessPodman is podman for a user that nobody has made, with all that it keeps in a
// directory of that user's; and fini where that user can read it.
func rootlessPodman(t *testing.T, uid int) (e *engine, fini string) {
	t.Helper()
	// Not t.TempDir, whose parent another user can't look into.
	dir, err := os.MkdirTemp("", "fini-")
	if err != nil {
		t.Fatal(err)
	}
	in := func(name string) string { return filepath.Join(dir, name) }
	fini = in("fini")
	binary, err := os.ReadFile(finiPath)
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
	e = &engine{
		// The user may not be allowed into the directory that the tests run in.
		client: []string{"env", "-C", "/", "setpriv", "--reuid=" + id, "--regid=" + id, "--clear-groups", "--",
			need.Program(t, "podman"), "--root", in("root"), "--runroot", in("runroot"),
			"--cgroup-manager", "cgroupfs", "--runtime", "runc"},
		env: []string{"PATH=" + os.Getenv("PATH"), "HOME=" + in("home"), "XDG_RUNTIME_DIR=" + in("run"),
			"CONTAINERS_CONF=" + in("containers.conf")},
		image:  "localhost/fini-e2e:base",
		remove: []string{"rm", "-f", "-t", "0"},
	}
	t.Cleanup(func() {
		e.must(t, "system", "migrate") // ends the process that keeps the user's namespaces
		until(t, "podman's directory can be removed", func() bool { return os.RemoveAll(dir) == nil })
	})
	load := e.command(t, "import", "-", e.image)
	load.Stdin = busyboxTar(t, needStaticBusybox(t))
	if out, err := load.CombinedOutput(); err != nil {
		t.Fatalf("podman import: %v: %s", err, out)
	}
	out, err := e.command(t, "run", "--rm", "--network", "none", e.image, "true").CombinedOutput()
	need.That(t, err == nil, fmt.Sprintf("a podman that runs containers without root (%v: %s)", err, out))
	return e, fini
}

func rootlessStatus(t *testing.T, e *engine, fini string) {
	for command, want := range map[string]int{
		"exit 0": 0, "exit 3": 3, "kill -TERM $$": 143, "exec no-such-command": 127,
	} {
		y := newVolume(t)
		out := e.foreground(t, y.with("--init", "--init-path", fini, e.image, "sh", "-c",
			"exec 9>/volume/witness; setsid sh /volume/saver & echo bytes; "+command)...).mustEnd(want)
		wantOnce(t, out, "bytes")
		if heldOpen(y.witness) {
			t.Error("a process of the case is alive")
		}
	}
}

// As under Docker: what needs a while to save its work has it under fini alone.
func rootlessStop(t *testing.T, e *engine, fini string) {
	for init, saved := range map[string]string{fini: savedBy(0), "": ""} {
		y := newVolume(t)
		flags := []string{"--init"} // podman's own is catatonit
		if init != "" {
			flags = append(flags, "--init-path", init)
		}
		g := e.foreground(t, y.with(append(flags, e.image, "sh", "/volume/main")...)...)
		g.Out.want("saver ready")
		y.mustBeHeld()
		g.must(t, "stop", g.name) // sends SIGKILL after 10 s, which would be 137
		wantOnce(t, g.mustEnd(7), "the end")
		y.mustBeLeft(saved)
	}
}

// podman's client is not the container's parent, and nothing but the end of stdin tells
// the container that it is gone.
func rootlessClientKilled(t *testing.T, e *engine, fini string) {
	y := newVolume(t)
	name := e.name(t)
	args := y.with("-v", fini+":/fini:ro", "--entrypoint", "/fini",
		e.image, "-i", "--grace=3s", "--", "sh", "/volume/main")
	l := startCmd(t, e.command(t, append([]string{"run", "--network", "none", "--name", name, "-i"}, args...)...))
	l.Out.want("saver ready")
	y.mustBeHeld()
	l.signal(syscall.SIGKILL)
	if got := l.status(); got != 137 {
		t.Errorf("status %d of the client, want 137", got)
	}
	if got := e.must(t, "wait", name); got != "7" {
		t.Errorf("status %s of the container, want 7", got)
	}
	y.mustBeLeft(savedBy(0))
}
