package containers

import (
	"archive/tar"
	"bytes"
	"io"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/rig"
)

// ExampleImage names what Dockerfile.example makes.
type ExampleImage struct {
	Whole string // busybox under fini
	Fini  string // the first stage: fini and nothing else
}

// BuildExample builds Dockerfile.example on a base of busybox. No registry is asked:
// the base is imported from a tar.
func BuildExample(t *testing.T) ExampleImage {
	t.Helper()
	dir := filepath.Dir(rig.Put(t, filepath.Join(t.TempDir(), "fini"), rig.ReadFile(t, rig.Fini), 0o755))
	build := func(flag, value string) string { return Build(t, "-f", "../Dockerfile.example", flag, value, dir) }
	return ExampleImage{Fini: build("--target", "fini"), Whole: build("--build-arg", "BASE="+Base(t))}
}

// A container is one that a test started. It is removed when the test is over.
type Container struct {
	T    testing.TB
	Name string
	Out  *rig.Lines // what it has written, as `docker logs -f` shows it
	Err  *rig.Lines
}

// StartContainer is `docker run -d flags...`, where flags end with the image and what
// is behind it.
func StartContainer(t testing.TB, flags ...string) *Container {
	t.Helper()
	c := &Container{T: t, Name: docker.Name(t, "run")}
	// The time that the engine gives is no measure of a busy machine.
	Docker(t, append([]string{"run", "-d", "--network", "none", "--stop-timeout", "60", "--name", c.Name}, flags...)...)
	c.Out, c.Err = c.Follow("logs", "-f", c.Name)
	return c
}

// Follow starts a client that runs as long as the container does.
func (c *Container) Follow(args ...string) (stdout, stderr *rig.Lines) {
	c.T.Helper()
	l := rig.StartCmd(c.T, Client(c.T, args...))
	return l.Out, l.Err
}

// Exec is `docker exec`.
func (c *Container) Exec(args ...string) string {
	c.T.Helper()
	return Docker(c.T, append([]string{"exec", c.Name}, args...)...)
}

// MustEnd waits for the container's end, asserts its status, and returns all that it
// wrote to its standard output.
func (c *Container) MustEnd(want int) string {
	c.T.Helper()
	if got := Docker(c.T, "wait", c.Name); got != strconv.Itoa(want) {
		c.T.Errorf("status %s, want %d; its stderr: %s", got, want, c.Err.Text())
	}
	return Docker(c.T, "logs", c.Name)
}

// File is the text of a file of the container, which may have ended; "" if there is none.
func (c *Container) File(path string) string {
	c.T.Helper()
	archive, _ := Client(c.T, "cp", c.Name+":"+path, "-").Output()
	in := tar.NewReader(bytes.NewReader(archive))
	if _, err := in.Next(); err != nil {
		return ""
	}
	text, err := io.ReadAll(in)
	rig.NoError(c.T, err)
	return string(text)
}

// Zombies counts them in the container.
func (c *Container) Zombies() int { return docker.Zombies(c.T, c.Name) }

func (c *Container) MustBeFini() {
	c.T.Helper()
	rig.Until(c.T, "PID 1 is fini", func() bool { return c.Exec("cat", "/proc/1/comm") == "fini" })
}
