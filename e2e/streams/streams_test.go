package streams

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/need"
	"github.com/seed-126c5d8a/fini/e2e/rig"
)

func TestMain(m *testing.M) { rig.Main(m) }

// A command that closes a stream gives its reader EOF there and then, while it lives:
// fini keeps none of them. Standard error it keeps, to speak.
func TestFiniLetsGoOfStreams(t *testing.T) {
	t.Parallel()
	rig.InPlaces(t, func(t *testing.T, p rig.Place) {
		t.Run("stdout", func(t *testing.T) {
			l := rig.Start(t, p, append([]string{"--"}, rig.Mode("clean", "1")...)...)
			if got := l.Out.Rest(); len(got) > 0 {
				t.Errorf("read %q", got)
			}
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
	rig.InPlaces(t, func(t *testing.T, p rig.Place) {
		l := rig.Start(t, p, "--", "/bin/sh", "-c", `echo by the back door > /proc/$PPID/fd/1; cat > /dev/null`)
		l.Out.Want("by the back door")
		_ = l.Stdin.Close()
		l.MustEnd(0)
	})
}

// A fini that finds no process for a second one goes on alone, and hands on none of the
// descriptors that it had meant for that.
func TestFallbackHandsOnNothing(t *testing.T) {
	t.Parallel()
	need.Root(t)
	list := `for fd in /proc/self/fd/*; do readlink $fd; done | grep pidfd; echo end`
	mount := `mount -t tmpfs none /proc; exec "$0" "$@"` // no /proc/self/exe
	cmd := exec.Command(need.Program(t, "unshare"), "-m", "sh", "-c", mount, rig.Fini, "--",
		"/bin/sh", "-c", `umount /proc; `+list)
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = null.Close() }()
	out, err := os.CreateTemp(t.TempDir(), "out")
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = null, out, null
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(out.Name())
	if got := string(text); err != nil || got != "end\n" {
		t.Errorf("the command sees %q, %v", got, err)
	}
}
