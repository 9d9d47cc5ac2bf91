package leftovers

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/e2e/rig/reports"
)

// orphan is a script that leaves an orphan, in a session of its own, as soon as it has read a line. The orphan runs a script and says
// its pid before that.
func orphan(before, script string) string {
	return "(setsid sh -c '" + before + "; echo orphan $$; " + script + "' & read go)\n"
}

// While the command runs, --orphan-timeout stops an orphan and what that has started, and names and counts it. What the command
// itself has started goes on.
func TestOrphanTimeout(t *testing.T) {
	t.Parallel()
	const after, ended = 100 * time.Millisecond, "sleep 1000 & read end; kill $!; exit 0"
	for _, tt := range []struct {
		name, flags, before, orphan string
		says                        []string // about the orphan, in order
		status                      int
		sent                        string
	}{
		{"stop", "--orphans-exit=9", ":", "exec sleep 1000", []string{"stopping orphan"}, 9, "SIGTERM"},
		{"wait", "--orphans=wait --orphans-exit=9", ":", "exec sleep 1000", []string{"stopping orphan"}, 9, "SIGTERM"},
		{"pipes", "--orphans=pipes --orphans-exit=9", ":", "exec sleep 1000", []string{"stopping orphan"}, 9, "SIGTERM"},
		{"it ignores SIGTERM", "--orphans-grace=100ms", `trap "" TERM`, "while :; do sleep 1000; done", []string{"stopping orphan", "killing orphan"}, 0, "SIGTERM SIGKILL"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			rig.InPlaces(t, rig.Pair, func(t *testing.T, p rig.Place) {
				t.Parallel()
				path := reports.Path(t)
				flags := append(strings.Fields(tt.flags), "-w", "--linger=1h", "--orphan-timeout="+after.String(), "--report="+path)
				l := rig.Start(t, p, append(flags, "--", "/bin/sh", "-c", orphan(tt.before, tt.orphan)+ended)...)
				pid, began := l.Out.WantPID("orphan "), time.Now()
				rig.Write(t, l, "go\n")
				for _, says := range tt.says {
					l.Err.Want(fmt.Sprintf("fini: %s %d (", says, pid))
				}
				if took := time.Since(began); took < after*time.Duration(len(tt.says)) {
					t.Errorf("this took %v", took)
				}
				l.Err.Want(fmt.Sprintf("fini: reaped zombie %d (", pid))
				rig.Write(t, l, "end\n")
				l.MustEnd(tt.status)
				left := reports.MustHave(t, path).Leftovers
				at := slices.IndexFunc(left, func(left reports.Leftover) bool { return left.Pid == pid })
				if at < 0 || !left[at].During || strings.Join(left[at].Sent, " ") != tt.sent {
					t.Errorf("the report has %+v", left)
				}
				if said := l.Err.Whole(); strings.Contains(said, "leftover") != (tt.status != 0) {
					t.Errorf("says %q", said) // only why the status is 9
				}
			})
		})
	}
}

// What may stay after the command's exit may stay before that, with what it has started, and so may a child from before fini.
func TestOrphanTimeoutSpares(t *testing.T) {
	t.Parallel()
	agent := rig.Linked(t, "gpg-agent") + " @agent >/dev/null 2>&1 <&1"
	for _, flag := range []string{"--allow-orphan=gpg-agent", "--orphans=pipes"} {
		for _, p := range rig.AloneOrPair(t, rig.Pair) {
			t.Run(flag+"/"+p.Name, func(t *testing.T) {
				t.Parallel()
				l := rig.Start(t, p, "--linger=0", "--orphan-timeout=100ms", flag, "--", "/bin/sh", "-c",
					"("+withAgent(agent)+"read go)\n"+orphan(":", "exec sleep 1000")+"read end; exit 0")
				pids := []int{l.Out.WantPID("agent "), l.Out.WantPID("child ")}
				killAtCleanup(t, pids)
				rig.Write(t, l, "go\n")
				pid := l.Out.WantPID("orphan ")
				rig.Write(t, l, "go\n")
				l.Err.Want(fmt.Sprintf("fini: stopping orphan %d (", pid)) // the agent was an orphan before
				rig.Write(t, l, "end\n")
				l.MustHaveStatus(0)
				mustStayAlone(l, pids)
				for _, pid := range pids {
					if said := l.Err.Whole(); strings.Contains(said, fmt.Sprintf(" %d (", pid)) {
						t.Errorf("says %q", said)
					}
				}
			})
		}
	}
	before := rig.StartCmd(t, rig.Pair.Executed([]string{"/bin/sh", "-c", `sleep 1000 & echo before $!; exec "$@"`, "sh"},
		"--orphan-timeout=100ms", "--", "/bin/sh", "-c", orphan(":", "exec sleep 1000")+"read end; exit 0"))
	pids := []int{before.Out.WantPID("before ")}
	pid := before.Out.WantPID("orphan ")
	rig.Write(t, before, "go\n")
	before.Err.Want(fmt.Sprintf("fini: stopping orphan %d (", pid))
	rig.Write(t, before, "end\n")
	before.MustHaveStatus(0)
	mustStayAlone(before, pids)
}
