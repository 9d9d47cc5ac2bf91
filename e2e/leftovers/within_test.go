package leftovers

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seed-126c5d8a/fini/e2e/rig"
)

// With --stop-within a stop ends in time, whatever ignores SIGTERM, and whatever began it. Of that time a tenth is for
// leftovers, so they too are asked before they are killed.
func TestStopWithin(t *testing.T) {
	t.Parallel()
	const (
		within = 2 * time.Second
		deaf   = `sh -c 'trap "" TERM; echo deaf; while :; do sleep 1000; done' & `
		says   = "fini: killing the command: the command did not exit in time for --stop-within=2s"
	)
	for _, tt := range []struct {
		name, flags, script string
		end                 func(l *rig.Life)
		status              int
		says                string
	}{
		{"TERM", "--linger=1h", deaf + "setsid " + deaf + `trap "" TERM; read end; while :; do sleep 1000; done`, term, 128 + 9, says},
		{"the end of stdin", "-i --linger=1h", deaf + "setsid " + deaf + `trap "" TERM; read end; while :; do sleep 1000; done`,
			func(l *rig.Life) { _ = l.Stdin.Close() }, 128 + 9, says},
		{"TERM, and the command exits", "--linger=0", "(" + deaf + "wait) & setsid " + deaf + `trap "exit 3" TERM; while :; do sleep 0.05; done`, term, 3, ""},
		{"the command's exit", "--linger=0", deaf + "setsid " + deaf + "read end; exit 4", func(l *rig.Life) { rig.Write(l.T, l, "go\n") }, 4, ""},
		{"TERM after the command's exit", "--orphans=wait", deaf + "setsid " + deaf + "exit 5", term, 5, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			rig.InPlaces(t, rig.Pair, func(t *testing.T, p rig.Place) {
				t.Parallel()
				args := append(strings.Fields(tt.flags), "--stop-within="+within.String(), "--grace=1h", "--orphans-grace=1h", "--", "/bin/sh", "-c", tt.script)
				l := rig.Start(t, p, args...)
				l.Out.Want("deaf")
				l.Out.Want("deaf")
				began := time.Now()
				tt.end(l)
				l.MustEnd(tt.status)
				if took := time.Since(began); took < within*8/10 {
					t.Errorf("it was over after %v, want nearly %v", took, within)
				}
				said := l.Err.Whole()
				if tt.says != "" {
					rig.WantOnce(t, said, tt.says)
				}
				if !strings.Contains(said, "stopping leftover") || !strings.Contains(said, "killing leftover") {
					t.Errorf("it does not name a leftover: %q", said)
				}
			})
		})
	}
}

func term(l *rig.Life) { l.Signal(syscall.SIGTERM) }
