package leftovers

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seed-126c5d8a/fini/e2e/need"
	"github.com/seed-126c5d8a/fini/e2e/rig"
)

func TestMain(m *testing.M) { rig.Main(m) }

// Each leftover says "ready" once it is what its name says, and the command waits for
// that before it ends. All of them hold the witness, and all sleep far longer than any
// test may take.
var leftoverKinds = []struct {
	name   string
	script string // run in the background of the command
	root   bool   // can only be made by root
}{
	{"background", `echo ready >&4; exec sleep 1000`, false},
	{"setsid", `exec setsid sh -c 'echo ready >&4; exec sleep 1000'`, false},
	{"daemon", `setsid sh -c 'sh -c "echo ready >&4; exec sleep 1000" & exit' & exit`, false},
	{"without streams", `exec setsid sh -c 'echo ready >&4; exec sleep 1000 </dev/null >/dev/null 2>&1 4>&-'`, false},
	{"ignores TERM", `trap "" TERM; echo ready >&4; sleep 1000`, false},
	{"stopped", `echo ready >&4; kill -STOP $(exec sh -c 'echo $PPID'); sleep 1000`, false},
	{"other uid", `exec setpriv --reuid 12345 --clear-groups sh -c 'echo ready >&4; exec sleep 1000'`, true},
	{"forks while it is stopped", `exec %FORKER% >&4`, false},
}

func TestNothingIsLeft(t *testing.T) {
	t.Parallel()
	rig.InEveryPlace(t, func(t *testing.T, p rig.Place) {
		for i, kind := range leftoverKinds {
			if !rig.All() && !p.Takes(i) {
				continue // all at once they are in each place
			}
			t.Run(kind.name, func(t *testing.T) {
				if kind.root {
					need.Root(t)
				}
				t.Parallel()
				mustStopAll(t, p, kind.script)
			})
		}
		t.Run("all at once", func(t *testing.T) {
			t.Parallel()
			var all []string
			for _, kind := range leftoverKinds {
				if !kind.root || need.IsRoot() {
					all = append(all, kind.script)
				}
			}
			mustStopAll(t, p, all...)
		})
	})
}

func mustStopAll(t *testing.T, p rig.Place, leftovers ...string) {
	const linger, grace = 100 * time.Millisecond, time.Second
	// Descriptor 4 is a pipe by which the leftovers report to the command.
	var script strings.Builder
	script.WriteString("dir=$(mktemp -d); mkfifo $dir/ready; exec 4<>$dir/ready; rm -r $dir\n")
	for _, l := range leftovers {
		fmt.Fprintf(&script, "{ %s ; } &\n", strings.ReplaceAll(l, "%FORKER%", strings.Join(rig.Mode("forker"), " ")))
	}
	for range leftovers {
		script.WriteString("read line <&4\n")
	}
	script.WriteString("echo end; exit 9\n")

	l := rig.Start(t, p, "--linger="+linger.String(), "--grace="+grace.String(), "--", "/bin/sh", "-c", script.String())
	l.Out.Want("end")
	l.MustEnd(9)
	if said := l.Err.Whole(); !strings.Contains(said, "fini: stopping leftover ") {
		t.Errorf("says nothing of a leftover that it stopped: %q", said)
	}
}

// A daemon that handles SIGTERM gets the time it needs: PID 1 must not end before it.
func TestLeftoverMayFinishAfterTerm(t *testing.T) {
	t.Parallel()
	rig.InPlaces(t, func(t *testing.T, p rig.Place) {
		l := rig.Start(t, p, "--linger=0", "--", "/bin/sh", "-c", `
			dir=$(mktemp -d); mkfifo $dir/ready
			setsid sh -c 'trap "sleep 1; echo last words; exit" TERM; echo >$0; while :; do sleep 0.05; done' $dir/ready &
			read line <$dir/ready; rm -r $dir; echo end`)
		l.Out.Want("end")
		l.Out.Want("last words")
		l.MustEnd(0)
	})
}

func TestEachLeftoverIsAskedOnce(t *testing.T) {
	t.Parallel()
	rig.InPlaces(t, func(t *testing.T, p rig.Place) {
		l := rig.Start(t, p, "--linger=0", "--grace=3s", "--", "/bin/sh", "-c",
			strings.Join(rig.Mode("signals"), " ")+" & read line; exit 0")
		l.Out.Want("ready")
		rig.Write(t, l, "go\n")
		var terms int
		for _, line := range l.Out.Rest() {
			if line == "signal 15" {
				terms++
			}
		}
		l.MustEnd(0)
		if terms != 1 {
			t.Errorf("a leftover that stays got SIGTERM %d times, want once", terms)
		}
	})
}

func TestPolicies(t *testing.T) {
	t.Parallel()
	// One leftover holds stdout, the other holds nothing but the witness.
	const script = `
		setsid sleep 1000 & ` + rig.UntilSleeps + `; echo holder $!
		setsid sleep 1000 >/dev/null 2>&1 </dev/null & ` + rig.UntilSleeps + `; echo quiet $!
		read go; exit 4`
	started := func(t *testing.T, p rig.Place, flags ...string) (l *rig.Life) {
		l = rig.Start(t, p, append(flags, "--linger=0", "--", "/bin/sh", "-c", script)...)
		for range 2 {
			line, _ := l.Out.Next()
			t.Log(line)
		}
		return l
	}
	t.Run("pipes", func(t *testing.T) {
		l := started(t, rig.Pair, "--orphans=pipes")
		rig.Write(t, l, "go\n")
		if got := l.Status(); got != 4 {
			t.Errorf("status %d, want 4", got)
		}
		l.Out.Rest() // the reader has EOF
		said := l.Err.Whole()
		if rig.HungUp(l.Witness) || !strings.Contains(said, "stopping leftover") {
			t.Errorf("the quiet one should be alive and the holder stopped; it says %q", said)
		}
		endEscapee(t, l, "quiet ")
	})
	t.Run("leave", func(t *testing.T) {
		l := started(t, rig.Pair, "--orphans=leave")
		rig.Write(t, l, "go\n")
		if got := l.Status(); got != 4 {
			t.Errorf("status %d, want 4", got)
		}
		for range 2 {
			l.Err.Want("fini: leaving leftover ")
		}
		if rig.HungUp(l.Witness) {
			t.Error("both should be alive")
		}
		endEscapee(t, l, "quiet ")
		endEscapee(t, l, "holder ")
	})
	t.Run("wait", func(t *testing.T) {
		rig.InPlaces(t, func(t *testing.T, p rig.Place) {
			l := rig.Start(t, p, "--orphans=wait", "--linger=0", "--", "/bin/sh", "-c",
				`exec 4<&0; setsid sh -c 'echo ready; read go <&4; echo done by itself' & echo end`)
			l.Out.Want("ready")
			rig.Write(t, l, "go\n")
			l.Out.Want("done by itself")
			l.MustEnd(0)
			if said := l.Err.Whole(); said != "" {
				t.Errorf("says %q", said)
			}
		})
	})
	t.Run("wait ends on TERM", func(t *testing.T) {
		rig.InPlaces(t, func(t *testing.T, p rig.Place) {
			l := rig.Start(t, p, "-v", "--orphans=wait", "--", "/bin/sh", "-c", `setsid sh -c 'echo ready; exec sleep 1000' & exit 5`)
			l.Out.Want("ready")
			l.Err.Want("fini: command ") // the main child has ended
			l.Signal(syscall.SIGTERM)
			l.MustEnd(5)
		})
	})
}

// endEscapee ends a process that a policy left alive, whose pid its line named.
func endEscapee(t *testing.T, l *rig.Life, prefix string) {
	t.Helper()
	for line := range strings.Lines(l.Out.Text()) {
		if rest, ok := strings.CutPrefix(line, prefix); ok {
			var pid int
			if _, err := fmt.Sscan(rest, &pid); err != nil {
				t.Fatal(err)
			}
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				t.Errorf("%s%d: %v", prefix, pid, err)
			}
		}
	}
}
