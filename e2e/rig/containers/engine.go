package containers

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/need"
	"github.com/seed-126c5d8a/fini/e2e/rig"
	"golang.org/x/sys/unix"
)

func NeedStaticBusybox(t *testing.T) string {
	t.Helper()
	busybox := need.Program(t, "busybox")
	need.That(t, rig.IsStatic(busybox), "a static busybox (busybox-static)")
	return busybox
}

func FiniFile(t testing.TB) string {
	t.Helper()
	path, err := filepath.Abs(rig.Fini)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// PodmanClient is podman with a storage of its own.
func PodmanClient(t *testing.T) []string {
	t.Helper()
	podman := need.Program(t, "podman")
	// Not t.TempDir: podman refuses long names of such directories.
	dir, err := os.MkdirTemp("", "fini-")
	if err != nil {
		t.Fatal(err)
	}
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

// PodmanConfig is an environment in which podman finds fini under the name of catatonit,
// of which it makes the image of a pod's pause process.
func PodmanConfig(t *testing.T) []string {
	t.Helper()
	dir := t.TempDir()
	binary, err := os.ReadFile(rig.Fini)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "catatonit"), binary, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(dir, "containers.conf")
	text := fmt.Sprintf(`
[containers]
default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]
log_driver = "k8s-file"
[engine]
lock_type = "file"
events_logger = "file"
helper_binaries_dir = [%q, "/usr/local/libexec/podman", "/usr/local/lib/podman", "/usr/libexec/podman", "/usr/lib/podman"]
`, dir)
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return append(os.Environ(), "CONTAINERS_CONF="+config)
}
