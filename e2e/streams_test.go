package e2e

import (
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/need"
	"golang.org/x/sys/unix"
)

func write(t testing.TB, l *life, text string) {
	t.Helper()
	if _, err := l.Stdin.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
}

// socketpair is what Node and uvloop give a child as a pipe.
func socketpair(t testing.TB) (ours, theirs *os.File) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs = os.NewFile(uintptr(fds[0]), "ours"), os.NewFile(uintptr(fds[1]), "theirs")
	t.Cleanup(func() { _ = ours.Close(); _ = theirs.Close() })
	return ours, theirs
}

// A command that closes a stream gives its reader EOF there and then, while it lives:
// fini keeps none of them. Standard error it keeps, to speak.
func TestFiniLetsGoOfStreams(t *testing.T) {
	t.Parallel()
	inPlaces(t, func(t *testing.T, p place) {
		t.Run("stdout", func(t *testing.T) {
			l := start(t, p, append([]string{"--"}, mode("clean", "1")...)...)
			if got := l.Out.rest(); len(got) > 0 {
				t.Errorf("read %q", got)
			}
			_ = l.Stdin.Close()
			l.mustEnd(0)
		})
		t.Run("other descriptors", func(t *testing.T) {
			l := start(t, p, append([]string{"--"}, mode("clean", "3")...)...)
			until(t, "the end of descriptor 3", func() bool { return hungUp(l.witness) })
			_ = l.Stdin.Close()
			l.mustEnd(0)
		})
		t.Run("stdin", func(t *testing.T) {
			// The writer gets EPIPE once the command has closed its stdin.
			l := start(t, p, "--", "/bin/sh", "-c", "exec <&-; echo closed; exec sleep 1000")
			l.Out.want("closed")
			until(t, "EPIPE on stdin", func() bool {
				_, err := l.Stdin.Write([]byte("x"))
				return errors.Is(err, syscall.EPIPE)
			})
			l.signal(syscall.SIGTERM)
			l.mustEnd(128 + 15)
		})
	})
}

// Processes of a container write to its log by way of /proc/1/fd/1.
func TestStdoutCanBeReopenedThroughProc(t *testing.T) {
	t.Parallel()
	inPlaces(t, func(t *testing.T, p place) {
		l := start(t, p, "--", "/bin/sh", "-c", `echo by the back door > /proc/$PPID/fd/1; cat > /dev/null`)
		l.Out.want("by the back door")
		_ = l.Stdin.Close()
		l.mustEnd(0)
	})
}

// fini never waits for a reader of its stderr, and no broken one ends it or reaches the
// command as SIGPIPE. One that is closed is a case of TestStderrTakesNothing.
func TestStderrThatNobodyReads(t *testing.T) {
	t.Parallel()
	leaky := "--linger=0 -vv -- sh -c"
	script := `trap "echo hit by PIPE" PIPE; setsid sleep 1000 & read go; echo main; exit 6`
	run := func(t *testing.T, p place, stderr *os.File) {
		cmd := p.command(append(strings.Fields(leaky), script)...)
		cmd.Stderr = stderr
		l := startCmd(t, cmd)
		_ = stderr.Close()
		l.signal(syscall.SIGWINCH) // one more line to say
		write(t, l, "go\n")
		if got := l.Out.rest(); !slices.Equal(got, []string{"main"}) {
			t.Errorf("stdout has %q", got)
		}
		l.mustEnd(6)
	}
	inPlaces(t, func(t *testing.T, p place) {
		t.Run("full", func(t *testing.T) {
			_, w := pipe(t)
			if _, err := unix.FcntlInt(w.Fd(), unix.F_SETPIPE_SZ, 4096); err != nil {
				t.Fatal(err)
			}
			if _, err := w.Write(make([]byte, 4096)); err != nil {
				t.Fatal(err)
			}
			run(t, p, w)
		})
		t.Run("broken", func(t *testing.T) {
			r, w := pipe(t)
			_ = r.Close()
			run(t, p, w)
		})
		t.Run("broken socket", func(t *testing.T) {
			r, w := socketpair(t)
			_ = r.Close()
			run(t, p, w)
		})
		t.Run("full disk", func(t *testing.T) {
			w, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
			if err != nil {
				t.Fatal(err)
			}
			run(t, p, w)
		})
	})
}

// A fini that finds no process for a second one goes on alone, and hands on none of the
// descriptors that it had meant for that.
func TestFallbackHandsOnNothing(t *testing.T) {
	t.Parallel()
	need.Root(t)
	list := `for fd in /proc/self/fd/*; do readlink $fd; done | grep pidfd; echo end`
	mount := `mount -t tmpfs none /proc; exec "$0" "$@"` // no /proc/self/exe
	cmd := exec.Command(need.Program(t, "unshare"), "-m", "sh", "-c", mount, finiPath, "--",
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
