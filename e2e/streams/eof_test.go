package streams

import (
	"strings"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/need"
	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/e2e/rig/stdin"
)

// The first writer of the pipe is gone at the end of bash; the last line comes from the
// process substitution, which is a leftover that finishes by itself.
func TestProcessSubstitutionLosesNoLine(t *testing.T) {
	t.Parallel()
	bash := need.Program(t, "bash")
	rig.InPlaces(t, rig.Alone, func(t *testing.T, p rig.Place) {
		l := rig.Start(t, p, "--linger=1h", "--", bash, "-c", "exec > >(sleep 0.2; cat); echo last")
		rig.MustRecord(t, "the reader has", l.Out.Rest(), "last")
		l.MustEnd(0)
		rig.MustRecord(t, "of a leftover that ended by itself fini says", l.Err.Rest())
	})
}

// The reader has the last line and then EOF, though an escapee holds the stream.
func TestReaderGetsEOF(t *testing.T) {
	t.Parallel()
	rig.InEveryPlace(t, func(t *testing.T, p rig.Place) {
		for _, stream := range stdin.Kinds { // libuv's pipes are socketpairs
			t.Run(stream.Name, func(t *testing.T) {
				r, w := stream.Make(t)
				// What is inside execve(2), which takes its time on a slow machine, does not show what it holds.
				cmd := p.Command("--", "/bin/sh", "-c",
					`echo first; setsid sh -c 'echo ready >&4; while :; do sleep 1000; done' 4>&1 & read x; echo last`)
				cmd.Stdout = w
				l := rig.StartCmd(t, cmd)
				_ = w.Close()
				out := rig.NewLines(t, r)
				out.Want("first")
				out.Want("ready")
				rig.Write(t, l, "go\n")
				out.Want("last")
				rig.MustRecord(t, "after the last line came", out.Rest())
				l.MustEnd(0)
				// No reader waits for a leftover of PID 1, whose end is that of the whole tree.
				if said := l.Err.Whole(); strings.Contains(said, "holds stdout") == p.PID1 {
					t.Errorf("says %q of the leftover that holds stdout", said)
				}
			})
		}
	})
}
