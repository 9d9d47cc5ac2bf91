package e2e

import (
	"archive/tar"
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/need"
)

// TestDocker runs containers of Dockerfile.example under a real engine. It is one test
// so that the images are built once and are gone when the last of the parts is over. What holds with any
// engine, statuses, orphans, and a stop, is TestDropInDocker's.
func TestDocker(t *testing.T) {
	t.Parallel()
	need.That(t, dockerWorks(), "a running Docker engine, which e2e/dockerd.sh starts")
	busybox := need.Program(t, "busybox")
	need.That(t, isStatic(busybox), "a static busybox (busybox-static)")
	image := buildExample(t, busybox)
	for _, part := range []struct {
		name string
		run  func(t *testing.T, image exampleImage)
	}{
		{"example", dockerExample},
		{"streams", dockerStreams},
		{"pid 1's stdout", dockerPID1Stdout},
		{"exec beside leftovers", dockerExecBeside},
		{"pids limit", dockerPidsLimit},
	} {
		t.Run(part.name, func(t *testing.T) {
			t.Parallel()
			part.run(t, image)
		})
	}
}

func dockerWorks() bool {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return exec.CommandContext(ctx, "docker", "info").Run() == nil
}

func isStatic(path string) bool {
	f, err := elf.Open(path)
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }()
	return !slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP })
}

// dockerCommand is the client with these arguments, ended where it hangs.
func dockerCommand(t testing.TB, args ...string) *exec.Cmd {
	t.Helper()
	// Not the test's own context: that one has ended when cleanups run.
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	t.Cleanup(cancel)
	return exec.CommandContext(ctx, "docker", args...)
}

// docker runs the client, which has to succeed, and returns its standard output.
func docker(t testing.TB, args ...string) string {
	t.Helper()
	out, err := dockerCommand(t, args...).Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = fmt.Errorf("%w: %s", err, exit.Stderr)
		}
		t.Fatalf("docker %q: %v", args, err)
	}
	return strings.TrimSpace(string(out))
}

// exampleImage names what Dockerfile.example makes.
type exampleImage struct {
	whole string // busybox under fini
	fini  string // the first stage: fini and nothing else
}

var dockerNames atomic.Int64

// dockerName is a name that nobody else uses.
func dockerName(what string) string {
	return fmt.Sprintf("fini-e2e-%s-%d-%d", what, os.Getpid(), dockerNames.Add(1))
}

// buildExample builds Dockerfile.example on a base of busybox. No registry is asked:
// the base is imported from a tar.
func buildExample(t *testing.T, busybox string) exampleImage {
	t.Helper()
	base := dockerName("base")
	load := dockerCommand(t, "import", "-", base)
	load.Stdin = busyboxTar(t, busybox)
	if out, err := load.CombinedOutput(); err != nil {
		t.Fatalf("docker import: %v: %s", err, out)
	}
	t.Cleanup(func() { docker(t, "rmi", base) })

	dir := t.TempDir()
	binary, err := os.ReadFile(finiPath)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "fini"), binary, 0o755); err != nil {
		t.Fatal(err)
	}
	build := func(args ...string) string {
		tag := dockerName("image")
		args = append([]string{"build", "-f", "../Dockerfile.example", "-t", tag}, args...)
		cmd := dockerCommand(t, append(args, dir)...)
		// The classic builder comes with the engine, where buildx may be missing.
		cmd.Env = append(os.Environ(), "DOCKER_BUILDKIT=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("docker %q: %v: %s", args, err, out)
		}
		t.Cleanup(func() { docker(t, "rmi", tag) })
		return tag
	}
	return exampleImage{fini: build("--target", "fini"), whole: build("--build-arg", "BASE="+base)}
}

// busyboxTar is a root file system with busybox under each of its names.
func busyboxTar(t *testing.T, busybox string) io.Reader {
	t.Helper()
	binary, err := os.ReadFile(busybox)
	if err != nil {
		t.Fatal(err)
	}
	names, err := exec.Command(busybox, "--list").Output()
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	add := func(h tar.Header, content []byte) {
		h.Size = int64(len(content))
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(content); err != nil {
			t.Fatal(err)
		}
	}
	add(tar.Header{Name: "tmp/", Typeflag: tar.TypeDir, Mode: 0o1777}, nil)
	add(tar.Header{Name: "bin/busybox", Mode: 0o755}, binary)
	add(tar.Header{Name: "bin/plain-text", Mode: 0o644}, []byte("not executable\n"))
	for _, name := range strings.Fields(string(names)) {
		if name != "busybox" {
			add(tar.Header{Name: "bin/" + name, Typeflag: tar.TypeSymlink, Linkname: "busybox", Mode: 0o777}, nil)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &b
}

// A container is one that a test started. It is removed when the test is over.
type container struct {
	t    testing.TB
	name string
	Out  *lines // what it has written, as `docker logs -f` shows it
	Err  *lines
}

// startContainer is `docker run -d flags...`, where flags end with the image and what
// is behind it.
func startContainer(t testing.TB, flags ...string) *container {
	t.Helper()
	c := &container{t: t, name: dockerName("run")}
	t.Cleanup(func() { docker(t, "rm", "-f", c.name) })
	docker(t, append([]string{"run", "-d", "--network", "none", "--name", c.name}, flags...)...)
	c.Out, c.Err = c.follow("logs", "-f", c.name)
	return c
}

// follow starts a client that runs as long as the container does.
func (c *container) follow(args ...string) (stdout, stderr *lines) {
	c.t.Helper()
	outR, outW := pipe(c.t)
	errR, errW := pipe(c.t)
	cmd := dockerCommand(c.t, args...)
	cmd.Stdout, cmd.Stderr = outW, errW
	if err := cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	_, _ = outW.Close(), errW.Close()
	c.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return newLines(c.t, outR), newLines(c.t, errR)
}

// exec is `docker exec`.
func (c *container) exec(args ...string) string {
	c.t.Helper()
	return docker(c.t, append([]string{"exec", c.name}, args...)...)
}

// mustEnd waits for the container's end, asserts its status, and returns all that it
// wrote to its standard output.
func (c *container) mustEnd(want int) string {
	c.t.Helper()
	if got := docker(c.t, "wait", c.name); got != strconv.Itoa(want) {
		c.t.Errorf("status %s, want %d; its stderr: %s", got, want, c.Err.text())
	}
	return docker(c.t, "logs", c.name)
}

// zombies counts them in the container. Who counts is in the count, alive.
func (c *container) zombies() (n int) {
	c.t.Helper()
	// A process may be gone before its file is opened.
	for line := range strings.Lines(c.exec("sh", "-c", "cat /proc/[0-9]*/stat 2>/dev/null || :")) {
		if parseStat(line).state() == 'Z' {
			n++
		}
	}
	return n
}

// wantOnce asserts that exactly one line of text is this one.
func wantOnce(t testing.TB, text, line string) {
	t.Helper()
	n := 0
	for got := range strings.SplitSeq(text, "\n") {
		if got == line {
			n++
		}
	}
	if n != 1 {
		t.Errorf("%d times %q, want it once, in:\n%s", n, line, text)
	}
}

const (
	// Each of these is left by a subshell that ends at once.
	make200Orphans = `i=0; while [ $i -lt 200 ]; do (true &); i=$((i+1)); done; `

	// Says "escapee ready". A second after TERM it ends by itself and says "escapee
	// done". What it started meanwhile ignores the TERM that each leftover gets.
	slowEscapee = `setsid sh -c '
		trap "trap \"\" TERM; sleep 1; echo escapee done; exit" TERM
		echo escapee ready
		while :; do sleep 1000 & wait; done' & `

	// A main child with an escapee: on TERM it says so and exits with 7.
	stoppable = `trap "echo main got TERM; exit 7" TERM
		` + slowEscapee + `
		while :; do sleep 1000 & wait; done`
)

// As it stands in Dockerfile.example: sleep under fini ends by TERM.
func dockerExample(t *testing.T, image exampleImage) {
	c := startContainer(t, image.whole)
	until(t, "fini runs the CMD", func() bool {
		names := c.exec("sh", "-c", "cat /proc/[0-9]*/comm 2>/dev/null || :")
		return slices.Contains(strings.Fields(names), "sleep")
	})
	docker(t, "stop", c.name) // sends SIGKILL after 10 s, which would be 137
	c.mustEnd(143)
}

func dockerStreams(t *testing.T, image exampleImage) {
	var stdout, stderr bytes.Buffer
	run := func(stdin io.Reader, args ...string) {
		t.Helper()
		stdout.Reset()
		name := dockerName("rm")
		cmd := dockerCommand(t, append([]string{"run", "--rm", "--network", "none", "--name", name}, args...)...)
		cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, &stdout, &stderr
		if err := cmd.Run(); err != nil {
			_ = dockerCommand(t, "rm", "-f", name).Run()
			t.Fatalf("docker run: %v", err)
		}
	}
	run(nil, image.whole, "true")
	if stdout.Len() > 0 {
		t.Errorf("stdout of true: %q", &stdout)
	}
	data := make([]byte, 1<<20)
	_, _ = rand.NewChaCha8([32]byte{}).Read(data)
	run(bytes.NewReader(data), "-i", image.whole, "cat")
	if !bytes.Equal(stdout.Bytes(), data) {
		t.Errorf("%d bytes of stdin came out as %d others", len(data), stdout.Len())
	}
	if stderr.Len() > 0 {
		t.Errorf("stderr of clean commands: %q", &stderr)
	}
}

// Writing to PID 1's standard output is how people get into `docker logs` from beside.
func dockerPID1Stdout(t *testing.T, image exampleImage) {
	c := startContainer(t, image.whole, "sh", "-c", "echo ready; exec sleep 1000")
	c.Out.want("ready")
	c.exec("sh", "-c", "echo to stdout >/proc/1/fd/1 && echo to stderr >/proc/1/fd/2")
	c.Out.want("to stdout")
	c.Err.want("to stderr")
}

// What `docker exec` starts has no parent in the namespace and is nobody's leftover.
func dockerExecBeside(t *testing.T, image exampleImage) {
	c := startContainer(t, "-e", "FINI_GRACE=25s", image.whole, "sh", "-c", `
		mkfifo /tmp/main /tmp/leftover
		setsid sh -c '
			trap "trap \"\" TERM; echo leftover asked; cat /tmp/leftover; exit" TERM
			echo leftover ready
			while :; do sleep 1000 & wait; done' &
		cat /tmp/main
		exit 4`)
	c.Out.want("leftover ready")
	beside, _ := c.follow("exec", c.name, "sh", "-c", `
		trap "echo hit >/proc/1/fd/1" TERM
		trap "echo alive >/proc/1/fd/1" USR1
		sh -c '
			trap "echo hit >/proc/1/fd/1" TERM
			echo beside $PPID
			while :; do sleep 1000 & wait; done' &
		while :; do sleep 1000 & wait; done`)
	pid := strconv.Itoa(beside.wantPid("beside "))

	c.exec("kill", "-TERM", pid)
	c.Out.want("hit") // a TERM would show
	c.exec("sh", "-c", "echo >/tmp/main")
	c.Out.want("leftover asked")
	c.exec("kill", "-USR1", pid)
	c.Out.want("alive")
	c.exec("sh", "-c", "echo leftover done >/tmp/leftover")
	out := c.mustEnd(4)
	wantOnce(t, out, "hit")
	wantOnce(t, out, "leftover done")
}

// fini, a shell and what the shell runs beside it get along with few processes, of which the
// threads of a Go program are the most.
func dockerPidsLimit(t *testing.T, image exampleImage) {
	c := startContainer(t, "--pids-limit", "12", image.whole, "sh", "-c", "true & exit 3")
	c.mustEnd(3)
}
