package kill9

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/need"
	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/e2e/rig/procfs"
)

// Only one process of a pair is called fini, so that what kills all of that name leaves nothing: the other one ends the
// tree. It happens in a PID namespace, where no other fini is hit.
func TestKillByName(t *testing.T) {
	t.Parallel()
	rig.NeedPidNamespace(t)
	for _, killer := range []string{"pkill -9 fini", "pkill -9 -x fini", "killall -9 fini"} {
		t.Run(killer, func(t *testing.T) {
			t.Parallel()
			need.Program(t, strings.Fields(killer)[0])
			const script = `"$0" --grace=300ms --linger=0 -- sh -c 'trap "" TERM; (setsid sleep 1000 &); echo ready; sleep 1000; sleep 1000' &
				read line; ` + "%s; echo killed; wait $!; until test -z \"$(pgrep sleep)\"; do sleep 0.01; done; echo nothing left"
			cmd := rig.CommandOf([]string{"/proc/self/exe", "@pid1", "/bin/sh", "-c", fmt.Sprintf(script, killer), rig.Fini})
			rig.AsPID1(cmd)
			l := rig.StartCmd(t, cmd)
			l.Out.Want("ready")
			rig.Write(t, l, "go\n")
			l.Out.Want("killed")
			l.Out.Want("nothing left")
			l.MustEnd(0)
		})
	}
}

// The inner fini has a name of its own, whatever the binary is called, and its command line is fini's.
func TestNames(t *testing.T) {
	t.Parallel()
	for _, called := range []string{"fini", "other"} {
		binary := filepath.Join(t.TempDir(), called)
		text, err := os.ReadFile(rig.Fini)
		if err == nil {
			err = rig.WriteProgram(binary, text, 0o755)
		}
		rig.NoError(t, err)
		l := rig.StartCmd(t, rig.CommandOf([]string{binary, "--", "/bin/sh", "-c", "echo ready; exec sleep 1000"}))
		l.Out.Want("ready")
		inner := l.Worker()
		outerLine, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", l.PID()))
		innerLine, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", inner))
		if outer, name := procfs.Status(l.PID(), "Name"), procfs.Status(inner, "Name"); outer != called || name != "reaper" || string(innerLine) != string(outerLine) {
			t.Errorf("outer %q %q, inner %q %q", outer, outerLine, name, innerLine)
		}
		l.Signal(syscall.SIGTERM)
		l.MustEnd(128 + 15)
	}
}

// A fini in a fini, below an agent that nohup has started: nohup has not started the second, whichever of them is a pair.
func TestNestedBelowNohupIsBound(t *testing.T) {
	t.Parallel()
	nohup := need.Program(t, "nohup")
	for _, outside := range []rig.Place{rig.Pair, rig.Alone} {
		for _, inside := range []rig.Place{rig.Pair, rig.Alone} {
			t.Run(outside.Name+" "+inside.Name, func(t *testing.T) {
				t.Parallel()
				argv := append([]string{nohup}, outside.Command(append([]string{"-p", "none", "--"}, inside.Command("-v", "--", "/bin/sh", "-c", "echo ready; exec sleep 1000").Args...)...).Args...)
				l := rig.StartCmd(t, rig.CommandOf(argv))
				l.Out.Want("ready")
				l.Signal(syscall.SIGTERM)
				l.MustEnd(128 + 15)
				if text := l.Err.Whole(); strings.Contains(text, "nohup started fini") {
					t.Errorf("says %q", text)
				}
			})
		}
	}
}
