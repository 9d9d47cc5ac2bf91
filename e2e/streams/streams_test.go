package streams

import (
	"errors"
	"syscall"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/rig"
)

func TestMain(m *testing.M) { rig.Main(m) }

// A command that closes a stream gives its reader EOF there and then, while it lives:
// fini keeps none of them. Standard error it keeps, to speak.
func TestFiniLetsGoOfStreams(t *testing.T) {
	t.Parallel()
	rig.InPlaces(t, rig.PID1, func(t *testing.T, p rig.Place) {
		t.Run("stdout", func(t *testing.T) {
			l := rig.Start(t, p, append([]string{"--"}, rig.Mode("clean", "1")...)...)
			rig.MustRecord(t, "the reader has", l.Out.Rest())
			_ = l.Stdin.Close()
			l.MustEnd(0)
		})
		t.Run("other descriptors", func(t *testing.T) {
			l := rig.Start(t, p, append([]string{"--"}, rig.Mode("clean", "3")...)...)
			rig.Until(t, "the end of descriptor 3", func() bool { return rig.HungUp(l.Witness) })
			_ = l.Stdin.Close()
			l.MustEnd(0)
		})
		t.Run("stdin", func(t *testing.T) {
			// The writer gets EPIPE once the command has closed its stdin.
			l := rig.Start(t, p, "--", "/bin/sh", "-c", "exec <&-; echo closed; exec sleep 1000")
			l.Out.Want("closed")
			rig.Until(t, "EPIPE on stdin", func() bool {
				_, err := l.Stdin.Write([]byte("x"))
				return errors.Is(err, syscall.EPIPE)
			})
			l.Signal(syscall.SIGTERM)
			l.MustEnd(128 + 15)
		})
	})
}

// Processes of a container write to its log by way of /proc/1/fd/1.
func TestStdoutCanBeReopenedThroughProc(t *testing.T) {
	t.Parallel()
	rig.InPlaces(t, rig.Pair, func(t *testing.T, p rig.Place) {
		l := rig.Start(t, p, "--", "/bin/sh", "-c", `echo by the back door > /proc/$PPID/fd/1; cat > /dev/null`)
		l.Out.Want("by the back door")
		_ = l.Stdin.Close()
		l.MustEnd(0)
	})
}
