package streams

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/e2e/rig/refusals"
	"github.com/seed-126c5d8a/fini/e2e/rig/reports"
	"github.com/seed-126c5d8a/fini/internal/tests/need"
)

// Whether fini sees what a leftover holds depends on fini's capabilities, and on whose and how private the leftover is. It is
// known or unknown, and one of whom it is unknown is stopped for the reader's sake, but is no leak. See ptrace(2), "Ptrace
// access mode checking".
func TestWhoHoldsTheOutput(t *testing.T) {
	t.Parallel()
	need.Root(t, "to give up capabilities")
	self, err := os.Executable()
	rig.NoError(t, err)
	secretive := refusals.SetUserID(t, self)
	setpriv := need.Program(t, "setpriv")
	for _, by := range []struct {
		caps   string
		prefix []string
		uid    int
		traces bool // fini may trace every process
	}{
		{"none", []string{setpriv, "--reuid=65534", "--regid=65534", "--clear-groups"}, 65534, false},
		{"Docker's", []string{setpriv, "--bounding-set=-all,+chown,+dac_override,+fowner,+fsetid,+kill,+setgid,+setuid," +
			"+setpcap,+net_bind_service,+net_raw,+sys_chroot,+mknod,+audit_write,+setfcap"}, 0, false},
		{"all", nil, 0, true},
	} {
		for _, of := range []struct {
			who           string
			uid, dumpable int
		}{{"the same user", by.uid, 1}, {"the same user, not dumpable", by.uid, 0}, {"another user", 65533, 1}, {"another user, not dumpable", 65533, 0}} {
			for _, holds := range []bool{true, false} {
				for _, policy := range []string{"pipes", "stop"} {
					seen := by.traces || of.uid == by.uid && of.dumpable == 1
					name := fmt.Sprintf("capabilities %s/%s/holds %t/%s", by.caps, of.who, holds, policy)
					rig.Case(t, policy == "pipes" && of.dumpable == 1, name, func(t *testing.T) {
						for _, p := range rig.AloneOrPair(t, rig.Pair) {
							t.Run(p.Name, func(t *testing.T) {
								t.Parallel()
								h := holder{p, by.prefix, []string{secretive, "@secretive", fmt.Sprint(of.uid), fmt.Sprint(of.dumpable)}, policy}
								h.test(t, seen, holds)
							})
						}
					})
				}
			}
		}
	}
}

// A holder is a life in which one may hold the output.
type holder struct {
	place  rig.Place
	prefix []string
	argv   []string // the leftover
	policy string
}

func (h holder) test(t *testing.T, seen, holds bool) {
	dir := rig.ShortTempDir(t)
	rig.NoError(t, os.Chmod(dir, 0o777))
	to, report := "2>/dev/null", filepath.Join(dir, "report.json")
	if !holds {
		to = ">/dev/null 2>&1"
	}
	script := `mkfifo "$0"; exec 4<>"$0"; rm "$0"; setsid "$@" ` + to + ` & read pid <&4; echo leftover $pid`
	words := append([]string{"--linger=100ms", "--grace=1h", "--orphans=" + h.policy, "--orphans-exit=7", "--report=" + report, "--",
		"/bin/sh", "-c", script, filepath.Join(dir, "ready")}, h.argv...)
	l := rig.StartCmd(t, h.place.Executed(h.prefix, words...))
	pid := l.Out.WantPID("leftover ")
	rig.MustRecord(t, "then the reader has", l.Out.Rest()) // and EOF, although nobody ends the leftover but fini
	stays, leaks := h.policy == "pipes" && seen && !holds, h.policy == "stop" || seen && holds
	status, state := 0, syscall.Kill(pid, 0)
	if leaks {
		status = 7
	}
	if stays {
		l.MustHaveStatus(status)
		rig.NoError(t, state)
		rig.MustKill(t, pid, syscall.SIGKILL)
		rig.Until(t, "the end of all", func() bool { return rig.HungUp(l.Witness) })
	} else {
		l.MustEnd(status)
	}

	said := l.Err.Whole()
	has := func(what string) bool { return strings.Contains(said, what) }
	got := [4]bool{has(fmt.Sprintf("fini: stopping leftover %d (", pid)), has(", which holds stdout\n"),
		has(", which may hold stdout and stderr: fini can't see its descriptors\n"), has("fini: exit 7 instead of 0: ")}
	rig.Equal(t, "in "+said+": it is stopped, holds, may hold, and decides the status", got, [4]bool{!stays, seen && holds, !seen, leaks})
	left := reports.MustHave(t, report).Leftovers
	rig.Equal(t, "leftovers in the report", len(left), 1)
	var want []string
	if seen {
		want = []string{}
	}
	if seen && holds {
		want = append(want, "stdout")
	}
	rig.Equal(t, "what the report says of what is held", left[0].Holds, want)
	rig.Equal(t, "and of why it is left alone", left[0].Spared, map[bool]any{true: "pipes"}[stays])
	rig.Equal(t, "and of what it was sent", len(left[0].Sent), map[bool]int{false: 1}[stays])
}
