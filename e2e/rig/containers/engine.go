package containers

import (
	"context"
	"debug/elf"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/internal/tests/need"
	"golang.org/x/sys/unix"
)

// PodmanClient is podman with a storage of its own.
func PodmanClient(t *testing.T) []string {
	t.Helper()
	podman := need.Program(t, "podman")
	// Not t.TempDir: podman refuses long names of such directories.
	dir, err := os.MkdirTemp("", "fini-")
	rig.NoError(t, err)
	t.Cleanup(func() {
		// podman mounts its storage on itself. The process that cleans up behind each
		// container may be at it yet.
		rig.Until(t, "podman's directory can be removed", func() bool {
			_ = unix.Unmount(filepath.Join(dir, "root", "overlay"), unix.MNT_DETACH)
			return os.RemoveAll(dir) == nil
		})
	})
	return []string{podman, "--root", filepath.Join(dir, "root"), "--runroot", filepath.Join(dir, "run"),
		"--tmpdir", filepath.Join(dir, "tmp"), "--network-config-dir", filepath.Join(dir, "net"),
		"--volumepath", filepath.Join(dir, "volumes"), "--cgroup-manager", "cgroupfs", "--runtime", "runc"}
}

func IsStatic(path string) bool {
	f, err := elf.Open(path)
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }()
	return !slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP })
}

// BusyboxTar is a root file system with busybox under each of its names, and with a user app.
func BusyboxTar(t *testing.T) io.Reader {
	t.Helper()
	busybox := need.Program(t, "busybox")
	need.That(t, IsStatic(busybox), "a static busybox (busybox-static)")
	return strings.NewReader(rig.Run(t, "/bin/sh", "-e", "-c", `cd "$1"
		mkdir bin etc
		printf 'root:x:0:0::/:/bin/sh\napp:x:1000:1000::/:/bin/sh\n' >etc/passwd
		printf 'root:x:0:\napp:x:1000:\n' >etc/group
		mkdir -m 1777 tmp
		cp "$2" bin/busybox
		echo not executable >bin/plain-text
		for name in $("$2" --list); do [ $name = busybox ] || ln -s busybox bin/$name; done
		tar -c --owner=0 --group=0 bin etc tmp`, "sh", t.TempDir(), busybox))
}

// Each of these is left by a subshell that ends at once.
const Make200Orphans = `i=0; while [ $i -lt 200 ]; do (true &); i=$((i+1)); done; `

// A main child with an escapee: on TERM it says so and exits with 7. The escapee says "escapee ready". A second after TERM it
// ends by itself and says "escapee done". What it started meanwhile ignores the TERM that each leftover gets.
const Stoppable = `trap "echo main got TERM; exit 7" TERM
	setsid sh -c '
		trap "trap \"\" TERM; sleep 1; echo escapee done; exit" TERM
		echo escapee ready
		while :; do sleep 1000 & wait; done' &
	while :; do sleep 1000 & wait; done`

// An Engine runs containers.
type Engine struct {
	Client []string // with the flags that each call takes
	Env    []string
	Image  string   // busybox, with no environment of its own
	Remove []string // what ends a container and removes it
}

// docker is the engine of this machine.
var docker = &Engine{Client: []string{"docker"}, Remove: []string{"rm", "-f"}}

// DockerWorks reports whether it runs, and there is what tests make images of.
func DockerWorks(t testing.TB) bool {
	busybox, err := exec.LookPath("busybox")
	return err == nil && IsStatic(busybox) && docker.Command(t, "info").Run() == nil
}

// NeedDocker skips a test without it.
func NeedDocker(t testing.TB) {
	t.Helper()
	need.That(t, DockerWorks(t), "a running Docker engine, which tools/dockerd.sh starts, and a static busybox (busybox-static)")
}

// Client is docker with these arguments, ended where it hangs.
func Client(t testing.TB, args ...string) *exec.Cmd { return docker.Command(t, args...) }

// Docker runs the client, which has to succeed, and returns its standard output.
func Docker(t testing.TB, args ...string) string {
	t.Helper()
	return docker.Must(t, args...)
}

// Command is the client, ended where it hangs.
func (e *Engine) Command(t testing.TB, args ...string) *exec.Cmd {
	t.Helper()
	// Not the test's own context: that one has ended when cleanups run.
	ctx, cancel := context.WithTimeout(context.Background(), 2*rig.Patience)
	t.Cleanup(cancel)
	args = append(e.Client[1:len(e.Client):len(e.Client)], args...)
	cmd := exec.CommandContext(ctx, e.Client[0], args...)
	cmd.Env = e.Env
	cmd.WaitDelay = rig.Patience // of podman, whose conmon may hold the pipe
	return cmd
}

// Must runs the client, which has to succeed, and returns its standard output.
func (e *Engine) Must(t testing.TB, args ...string) string {
	t.Helper()
	cmd := e.Command(t, args...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %q: %v: %s", e.Client[0], args, err, stderr.String())
	}
	return strings.TrimSpace(string(out))
}

// Import makes an image of a busybox.
func (e *Engine) Import(t *testing.T, image string) {
	t.Helper()
	load := e.Command(t, "import", "-", image)
	load.Stdin = BusyboxTar(t)
	rig.Succeed(t, load)
}

// NoCache is given to each build. For FROM scratch the classic builder's cache looks at every image of the engine, and the build
// fails if another test removes one of them meanwhile.
const NoCache = "--no-cache"

// Build makes an image, which is gone with the test.
func (e *Engine) Build(t testing.TB, args ...string) (image string) {
	t.Helper()
	image = UniqueName("image")
	cmd := e.Command(t, append([]string{"build", NoCache, "-t", image}, args...)...)
	// The classic builder comes with the engine, where buildx may be missing.
	cmd.Env = append(cmd.Environ(), "DOCKER_BUILDKIT=0")
	log := rig.Succeed(t, cmd)
	t.Cleanup(func() { e.RemoveBuilt(t, log, image) })
	return image
}

// RemoveBuilt removes images, and what their build has left of earlier stages, which have no name.
func (e *Engine) RemoveBuilt(t testing.TB, log string, images ...string) {
	t.Helper()
	e.Must(t, append([]string{"rmi"}, images...)...)
	for _, id := range strings.Fields(e.Must(t, "images", "-q", "-f", "dangling=true")) {
		if strings.Contains(log, "---> "+id+"\n") {
			e.Must(t, "rmi", id)
		}
	}
}

// Build makes an image for docker, which is gone with the test.
func Build(t testing.TB, args ...string) (image string) {
	t.Helper()
	return docker.Build(t, args...)
}

// Base is an image of a busybox for docker, which is gone with the test.
func Base(t *testing.T) (image string) {
	t.Helper()
	image = UniqueName("base")
	docker.Import(t, image)
	t.Cleanup(func() { Docker(t, "rmi", image) })
	return image
}

var uniqueNames atomic.Int64

// UniqueName is a name that nobody else uses.
func UniqueName(what string) string {
	return fmt.Sprintf("fini-e2e-%s-%d-%d", what, os.Getpid(), uniqueNames.Add(1))
}

// Name is one for a container, which is removed in the end.
func (e *Engine) Name(t testing.TB, what string) string {
	t.Helper()
	name := UniqueName(what)
	t.Cleanup(func() {
		if out, err := e.Command(t, append(e.Remove, name)...).CombinedOutput(); err != nil {
			t.Errorf("cannot remove %s: %v: %s", name, err, out)
		}
	})
	return name
}

// Zombies counts them in a container. A process may be gone before its file is opened.
func (e *Engine) Zombies(t testing.TB, name string) int {
	t.Helper()
	n, err := strconv.Atoi(e.Must(t, "exec", name, "/bin/sh", "-c", "cat /proc/[0-9]*/status 2>/dev/null | grep -c '^State:.Z' || :"))
	rig.NoError(t, err)
	return n
}

// PodmanConf is what podman is told so that it runs beside tests and other podmans.
const PodmanConf = `
[containers]
default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]
log_driver = "k8s-file"
[engine]
lock_type = "file"
events_logger = "file"
`

// PodmanConfig is an environment in which podman finds fini under the name of catatonit,
// of which it makes the image of a pod's pause process.
func PodmanConfig(t *testing.T) []string {
	t.Helper()
	dir := t.TempDir()
	rig.Put(t, filepath.Join(dir, "catatonit"), rig.ReadFile(t, rig.Fini), 0o755)
	text := PodmanConf + fmt.Sprintf("helper_binaries_dir = [%q, \"/usr/local/libexec/podman\", \"/usr/local/lib/podman\", \"/usr/libexec/podman\", \"/usr/lib/podman\"]\n", dir)
	return append(os.Environ(), "CONTAINERS_CONF="+rig.Put(t, filepath.Join(dir, "containers.conf"), text, 0o644))
}
