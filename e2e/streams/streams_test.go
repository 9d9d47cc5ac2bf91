package streams

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/e2e/rig/containers"
	"github.com/seed-126c5d8a/fini/e2e/rig/stdin"
	"github.com/seed-126c5d8a/fini/internal/tests/need"
)

func TestMain(m *testing.M) { rig.Main(m) }

// A command that closes what it inherited closes it for good, while it lives: fini keeps none of it, but for standard error,
// to speak. The end of stdout is in room promises.
func TestFiniLetsGoOfStreams(t *testing.T) {
	t.Parallel()
	rig.InPlaces(t, rig.PID1, func(t *testing.T, p rig.Place) {
		l := rig.Start(t, p, "--", "/bin/sh", "-c", "exec <&- 3>&-; echo closed; exec sleep 1000")
		l.Out.Want("closed")
		rig.Until(t, "the end of descriptor 3", func() bool { return rig.HungUp(l.Witness) })
		rig.Until(t, "EPIPE on stdin", func() bool {
			_, err := l.Stdin.Write([]byte("x"))
			return errors.Is(err, syscall.EPIPE)
		})
		l.Signal(syscall.SIGTERM)
		l.MustEnd(128 + 15)
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

// In a chroot there may be no /dev/null to stand for a closed stream, and the Go runtime would abort. The command sees what it
// would see without fini.
func TestClosedStreamsWithoutDevNull(t *testing.T) {
	t.Parallel()
	need.Root(t)
	chroot, busybox := need.Program(t, "chroot"), need.Program(t, "busybox")
	need.That(t, containers.IsStatic(busybox), "a static busybox (busybox-static)")
	root := t.TempDir()
	for name, from := range map[string]string{"fini": rig.Fini, "busybox": busybox} {
		rig.Put(t, filepath.Join(root, name), rig.ReadFile(t, from), 0o755)
	}
	const asked = `/busybox cat || s=$s.stdin; echo x || s=$s.stdout; echo x >&2 || s=$s.stderr; case $s in "") exit 7;; .stdin) exit 8;;
		.stdout) exit 9;; .stderr) exit 10;; *) exit 11;; esac`
	for _, tt := range []struct {
		closed string
		status int
	}{{"<&-", 8}, {">&-", 9}, {"2>&-", 10}, {"<&- >&- 2>&-", 11}} {
		for _, words := range []string{"", "/fini --linger=0 --", "/fini --no-shield --linger=0 --"} {
			rig.Case(t, words != "", strings.TrimSpace(words+" "+tt.closed), func(t *testing.T) {
				t.Parallel()
				start := func(script string) *rig.Life {
					return rig.StartCmd(t, exec.Command("/bin/sh", "-c", fmt.Sprintf(`exec %s %s %s /busybox sh -c '%s' %s`, chroot, root, words, script, tt.closed)))
				}
				l := start(asked)
				_ = l.Stdin.Close()
				l.MustEnd(tt.status)
				if words != "" {
					l = start("kill -9 $PPID; exec /busybox sleep 1000")
					l.MustHaveStatus(137)
					// A fini alone is reaped when the kernel has sent the command SIGKILL, which need not have ended by then.
					rig.Until(t, "the end of the command", func() bool { return rig.HungUp(l.Witness) })
				}
			})
		}
	}
}

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
