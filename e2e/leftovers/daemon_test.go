package leftovers

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/need"
	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/e2e/rig/procfs"
)

// core_d is the daemon of eslint_d and prettierd. Node runs it, as it runs all others, so only its command line or its
// environment can say that it may stay.
func TestAllowOrphanOfNode(t *testing.T) {
	t.Parallel()
	need.Program(t, "node")
	lib := need.Module(t, "core_d/lib")
	for name, flag := range map[string]string{
		"command line": "cmd:*node */core_d/lib/daemon.js",
		"environment":  "env:CORE_D_DOTFILE=.kept_d",
	} {
		for _, p := range rig.AloneOrPair(t, rig.Pair) {
			t.Run(name+"/"+p.Name, func(t *testing.T) {
				t.Parallel()
				dir := t.TempDir()
				service := filepath.Join(dir, "service.js")
				rig.NoError(t, os.WriteFile(service, []byte("exports.invoke = (cwd, args, text, done) => done(null, text);"), 0o644))
				l := rig.Start(t, p, "--linger=0", "--orphans-exit=9", "--allow-orphan="+flag, "--", "/bin/sh", "-c",
					"export CORE_D_SERVICE="+service+" XDG_RUNTIME_DIR="+dir+`
					(exec setsid node -e 'console.log("other " + process.pid); setInterval(() => {}, 1000)' 2>/dev/null) &
					CORE_D_DOTFILE=.kept_d node -e 'require("`+lib+`/client").start()' # ends once the daemon answers
					until test -s "$XDG_RUNTIME_DIR/.kept_d"; do sleep 0.05; done
					for p in /proc/[0-9]*; do
						tr '\0' ' ' <$p/cmdline | grep -q '^node '`+lib+`/daemon.js && grep -qz "^XDG_RUNTIME_DIR=$XDG_RUNTIME_DIR$" $p/environ && echo daemon ${p#/proc/}
					done
					read line`)
				l.Out.WantPID("other ")
				daemon := l.Out.WantPID("daemon ")
				killAtCleanup(t, []int{daemon})
				rig.Write(t, l, "go\n")
				l.MustHaveStatus(9)
				if procfs.Status(daemon, "State") == "" {
					t.Errorf("the daemon is gone")
				}
				if said := l.Err.Whole(); strings.Count(said, "stopping leftover") != 1 || !strings.Contains(said, "1 leftover") {
					t.Errorf("says %q", said)
				}
				rig.MustKill(t, daemon, syscall.SIGTERM)
			})
		}
	}
}
