package docs

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/internal/tests/need"
)

// notifies is a service of Type=notify: systemd waits until it says that it is ready.
const notifies = `import os, signal, socket
def told(number, frame): print("got", signal.Signals(number).name, flush=True)
signal.signal(signal.SIGHUP, told)
signal.signal(signal.SIGTERM, lambda number, frame: (told(number, frame), exit(0)))
socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b"READY=1", os.environ["NOTIFY_SOCKET"])
while True: signal.pause()
`

// manager runs a manager of user units, of whose life a file in the folder $DIR tells. Its cgroup is the whole hierarchy to
// it, because it removes what is empty there.
const manager = `
	mount -t tmpfs none /sys/fs/cgroup && mount -t cgroup2 none /sys/fs/cgroup && mount -t tmpfs none /run && mkdir -p /run/systemd/system || exit
	export XDG_RUNTIME_DIR=/run HOME=$DIR SYSTEMD_UNIT_PATH=$DIR: SYSTEMD_PAGER=
	/lib/systemd/systemd --user &
	until systemctl --user show -P Version; do sleep 0.1; done >/dev/null 2>&1
	systemctl --user start example || { systemctl --user status example; exit 1; }
	systemctl --user reload example && until grep -s SIGHUP said; do sleep 0.01; done >&2
	systemctl --user stop example
	systemctl --user show -P Result example`

// A service of Type=notify starts, reloads and stops with fini in front of it: with the page's unit, and with the drop-in of the
// packages.
func TestGuidesSystemdNotify(t *testing.T) {
	rig.Long(t)
	t.Parallel()
	need.Root(t, "to make a cgroup and namespaces for systemd")
	need.Program(t, "systemd-analyze") // of the same package
	page := regexp.MustCompile("(?s)```ini\n(\\[Service\\]\n.*?)```").FindStringSubmatch(rig.ReadFile(t, "../docs/recipes.md"))[1]
	for name, text := range map[string]string{"page": page, "drop-in": rig.ReadFile(t, "../packaging/systemd.conf")} {
		t.Run(name, func(t *testing.T) {
			root := "/sys/fs/cgroup/unified" // beside version 1
			if _, err := os.Stat(root); err != nil {
				root = "/sys/fs/cgroup"
			}
			group, dir := rig.NewCgroupBelow(t, root), t.TempDir()
			t.Cleanup(func() { _ = exec.Command("find", group.Dir, "-mindepth", "1", "-depth", "-type", "d", "-delete").Run() })
			server := "/usr/bin/python3 " + rig.Put(t, filepath.Join(dir, "server.py"), notifies, 0o644)
			rig.Put(t, filepath.Join(dir, "example.service"), fmt.Sprintf("[Service]\nType=notify\nExecStart=%s\nExecReload=kill -HUP $MAINPID\nStandardOutput=file:%s/said\n", server, dir), 0o644)
			text = strings.NewReplacer("/usr/local/bin/fini", rig.Fini, "/usr/bin/fini", rig.Fini,
				"/usr/local/bin/server --port=80", server, "/usr/bin/NAME", server).Replace(text)
			rig.Put(t, filepath.Join(dir, "example.service.d/fini.conf"), "[Service]\nExecStart=\n"+text, 0o644)
			cmd := rig.CommandOf(group.Wrap("unshare", "-C", "-m", "-p", "-f", "--mount-proc", "/bin/sh", "-c", manager))
			cmd.Dir, cmd.Env = dir, append(os.Environ(), "DIR="+dir)
			l := rig.StartCmd(t, cmd)
			rig.Equal(t, "systemctl's words", l.Out.Whole(), "success\n")
			rig.Equal(t, "the service's words", rig.ReadFile(t, filepath.Join(dir, "said")), "got SIGHUP\ngot SIGTERM\n")
			if t.Failed() {
				t.Log(l.Err.Whole())
			}
		})
	}
}
