package docker

import (
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/e2e/rig/containers"
)

func TestMain(m *testing.M) { rig.MainOfOthers(m) }

// TestDocker runs containers of Dockerfile.example under a real engine. It is one test
// so that the image is built once and is gone when the last of the parts is over. What holds with any
// engine, statuses, orphans, and a stop, is TestDropInDocker's.
func TestDocker(t *testing.T) {
	t.Parallel()
	containers.NeedDocker(t)
	image := containers.BuildExample(t).Whole
	for name, part := range map[string]func(t *testing.T, image string){
		"example":               dockerExample,
		"pid 1's stdout":        dockerPID1Stdout,
		"exec beside leftovers": dockerExecBeside,
		"pids limit":            dockerPidsLimit,
		"pause":                 dockerPause,
		"hidden holder":         dockerHiddenHolder,
		"stop within":           dockerStopWithin,
		"orphans":               dockerOrphans,
	} {
		t.Run(name, func(t *testing.T) { t.Parallel(); part(t, image) })
	}
}

// As it stands in Dockerfile.example: sleep under fini ends by TERM.
func dockerExample(t *testing.T, image string) {
	c := containers.StartContainer(t, image)
	rig.Until(t, "fini runs the CMD", func() bool {
		names := c.Exec("sh", "-c", "cat /proc/[0-9]*/comm 2>/dev/null || :")
		return slices.Contains(strings.Fields(names), "sleep")
	})
	containers.Docker(t, "stop", c.Name) // sends SIGKILL in the end, which would be 137
	c.MustEnd(143)
}

// Writing to PID 1's standard output is how people get into `docker logs` from beside.
func dockerPID1Stdout(t *testing.T, image string) {
	c := containers.StartContainer(t, image, "sh", "-c", "echo ready; exec sleep 1000")
	c.Out.Want("ready")
	c.Exec("sh", "-c", "echo to stdout >/proc/1/fd/1 && echo to stderr >/proc/1/fd/2")
	c.Out.Want("to stdout")
	c.Err.Want("to stderr")
	if said := c.Err.Text(); said != "to stderr\n" {
		t.Errorf("fini says something too: %q", said)
	}
}

// hitByTERM is a process beside, which docker exec runs: it says so in the container's output.
const hitByTERM = `trap "echo hit >/proc/1/fd/1" TERM; `

// What `docker exec` starts has no parent in the namespace and is nobody's leftover.
func dockerExecBeside(t *testing.T, image string) {
	dir := t.TempDir() // see dockerPause
	c := containers.StartContainer(t, "-v", dir+":/out", "-e", "FINI_ORPHANS_GRACE=5m", image, "sh", "-c", `
		mkfifo /tmp/main /tmp/leftover
		setsid sh -c '
			trap "trap \"\" TERM; echo leftover asked; cat /tmp/leftover >/out/leftover; exit" TERM
			echo leftover ready
			while :; do sleep 1000 & wait; done' &
		cat /tmp/main
		exit 4`)
	c.Out.Want("leftover ready")
	beside, _ := c.Follow("exec", c.Name, "sh", "-c", hitByTERM+`
		trap "echo alive >/proc/1/fd/1" USR1
		sh -c '`+hitByTERM+`echo beside $PPID; while :; do sleep 1000 & wait; done' &
		while :; do sleep 1000 & wait; done`)
	pid := strconv.Itoa(beside.WantPID("beside "))

	c.Exec("kill", "-TERM", pid)
	c.Out.Want("hit") // a TERM would show
	c.Exec("sh", "-c", "echo >/tmp/main")
	c.Out.Want("leftover asked")
	c.Exec("kill", "-USR1", pid)
	c.Out.Want("alive")
	// Its status is not asserted: the container ends with it, and the kernel may kill it first.
	c.Follow("exec", c.Name, "sh", "-c", "echo done >/tmp/leftover")
	rig.WantOnce(t, c.MustEnd(4), "hit")
	rig.Equal(t, "what the leftover has written", rig.ReadFile(t, filepath.Join(dir, "leftover")), "done\n")
}

// fini, a shell and what the shell runs beside it get along with few processes, of which the
// threads of a Go program are the most.
func dockerPidsLimit(t *testing.T, image string) {
	containers.StartContainer(t, "--pids-limit", "12", image, "sh", "-c", "true & exit 3").MustEnd(3)
}

// A launcher leaks a process each second for a minute. With --orphan-timeout there are never more of them than that time and
// --orphans-grace allow for, and what docker exec has left is stopped as well.
func dockerOrphans(t *testing.T, image string) {
	rig.Long(t)
	c := containers.StartContainer(t, "-e", "FINI_ORPHAN_TIMEOUT=2s", "-e", "FINI_LINGER=0", image, "sh", "-c", `
		most=0
		for i in $(seq 60); do
			(sleep 600 &)
			sleep 1
			now=$(pidof sleep | wc -w)
			[ $now -gt $most ] && most=$now
			[ $i = 1 ] && echo ready
		done
		echo at most $most
		mkfifo /tmp/end; cat /tmp/end; exit 0`)
	c.Out.Want("ready")
	c.Exec("sh", "-c", "tail -f /dev/null >/dev/null 2>&1 &")
	for !strings.Contains(c.Err.Want("fini: stopping orphan "), "(tail -f") { // each second there is another one
	}
	if most := c.Out.WantPID("at most "); most < 2 || most > 2+5 {
		t.Errorf("%d of them", most)
	}
	c.Exec("sh", "-c", "echo >/tmp/end")
	c.MustEnd(0)
}

// A main child that exits with 0 some seconds after SIGTERM keeps this status, although two of its leftovers never exit by
// themselves, one in its group and one in a session of its own: see FINI_STOP_WITHIN in docs/images.md.
func dockerStopWithin(t *testing.T, image string) {
	rig.Long(t)
	const deaf = `sh -c 'trap "" TERM; echo deaf; while :; do sleep 1000; done' & `
	c := containers.StartContainer(t, "-e", "FINI_STOP_WITHIN=9s", "-e", "FINI_GRACE=1h", "-e", "FINI_ORPHANS_GRACE=1h", image,
		"sh", "-c", deaf+"setsid "+deaf+`trap "sleep 6; exit 0" TERM; while :; do sleep 0.1; done`)
	c.Out.Want("deaf")
	c.Out.Want("deaf")
	began := time.Now()
	containers.Docker(t, "stop", "-t", "300", c.Name)
	c.MustEnd(0)
	t.Logf("it took %v", time.Since(began))
}

// Nothing that a model types ends a pause. docker stop gives a pause's server, which was there before fini, what docker exec
// has left, and what it runs, bare or under fini, the time to finish. What they save is in a file, because the engine may
// lose a line that is written just before the container's end.
func dockerPause(t *testing.T, image string) {
	const server = `
		trap "sleep 1; echo saved >/out/$0; exit" TERM
		echo $0 ready $$ >/proc/1/fd/1
		while :; do sleep 1000 & wait; done`
	dir := t.TempDir()
	c := containers.StartContainer(t, "-v", dir+":/out", "-e", "FINI_LINGER=10ms", "-e", "FINI_GRACE=5m", "-e", "SERVER="+server,
		"--entrypoint", "sh", image, "-c", `sh -c "$SERVER" before & exec /fini -P`)
	c.Out.Want("before ready")
	c.Exec("sh", "-c", `(setsid sh -c "$SERVER" left >/dev/null 2>&1 &)`)
	c.Out.Want("left ready")
	c.Follow("exec", c.Name, "sh", "-c", `exec sh -c "$SERVER" bare`)
	c.Out.Want("bare ready")
	c.Follow("exec", c.Name, "/fini", "--", "sh", "-c", `exec sh -c "$SERVER" wrapped`)
	c.Out.Want("wrapped ready")
	for _, sig := range []string{"TERM", "INT", "QUIT", "HUP", "37"} {
		c.Exec("kill", "-"+sig, "1")
	}
	c.Exec("sh", "-c", "i=0; while [ $i -lt 1000 ]; do kill 1; i=$((i+1)); done")
	containers.Docker(t, "stop", "-t", "300", c.Name)
	c.MustEnd(0)
	rig.Equal(t, "how often fini names who can't end it", strings.Count(c.Err.Whole(), "fini: ignored SIG"), 1)
	for _, name := range []string{"before", "left", "bare", "wrapped"} {
		if text := rig.ReadFile(t, filepath.Join(dir, name)); text != "saved\n" {
			t.Errorf("the server %q has written %q", name, text)
		}
	}
}

// Docker's root has no CAP_SYS_PTRACE, so fini can't see what another user's process holds: it is stopped, because it may hold
// the output, and the client of docker exec has EOF. It is no leak, because it may hold nothing.
func dockerHiddenHolder(t *testing.T, image string) {
	c := containers.StartContainer(t, "--entrypoint", "/fini", image, "-P")
	l := rig.StartCmd(t, containers.Client(t, "exec", c.Name, "/fini", "--orphans=pipes", "--orphans-exit=7", "--grace=1h", "--", "sh", "-ec", `
		mkdir -p /etc
		echo app:x:1000:1000::/:/bin/sh >>/etc/passwd
		su app -c "setsid sleep 1000 &"
		echo last`))
	rig.MustRecord(t, "the client has", l.Out.Rest(), "last")
	l.MustHaveStatus(0)
	if said := l.Err.Whole(); !strings.Contains(said, ", as user 1000, which may hold stdout and stderr: fini can't see its descriptors\n") {
		t.Errorf("fini says %q", said)
	}
	containers.Docker(t, "stop", c.Name)
	c.MustEnd(0)
}
