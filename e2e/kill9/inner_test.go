package kill9

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/e2e/rig/rest"
	"github.com/seed-126c5d8a/fini/internal/tests/need"
	"golang.org/x/sys/unix"
)

// senders is a command that records who sends it what, with one thread, so that no two of a kind
// are one. Signal 64 ends it.
const senders = `
import os, signal
every = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}
signal.pthread_sigmask(signal.SIG_BLOCK, every)
def process(pid): # gVisor tells the thread that has sent it
    try:
        with open("/proc/%d/status" % pid) as status:
            return int([line.split()[1] for line in status if line.startswith("Tgid:")][0])
    except OSError:
        return pid
os.write(1, b"ready %d\n" % os.getpid())
while (got := signal.sigwaitinfo(every)).si_signo != 64:
    os.write(1, b"signal %d from %d\n" % (got.si_signo, process(got.si_pid)))
`

// sendersCommand is its command line, which another user can run too.
func sendersCommand(t *testing.T) []string {
	return []string{need.Program(t, "/usr/bin/python3"), "-I", "-S", "-c", senders}
}

// The kernel asks the command to end when the inner fini is killed, but not if the command has other credentials by then, or
// capabilities of its file, or if the kernel has refused to set its parent death signal: then the heir asks it.
func TestInnerFiniIsKilled(t *testing.T) {
	t.Parallel()
	setpriv := func(flags ...string) []string { return append([]string{"setpriv"}, flags...) }
	for _, tt := range []struct {
		name         string
		fini, before []string // what executes fini, and the command
		kernel       bool
	}{
		{"as it was", nil, nil, true},
		{"user", nil, setpriv("--reuid=65534", "--clear-groups"), false},
		{"group", nil, setpriv("--regid=65534", "--clear-groups"), false},
		{"both", nil, setpriv("--reuid=65534", "--regid=65534", "--clear-groups"), false},
		{"real user alone", nil, setpriv("--ruid=65534"), false},
		{"su", nil, []string{"busybox", "su", "-s", "/bin/sh", "nobody", "-c", `exec "$0" "$@"`, "--"}, false},
		{"capabilities", setpriv("--reuid=65534", "--regid=65534", "--clear-groups"), nil, false},
		{"the signal is refused", rig.Mode("refuse", "pdeathsig:EPERM"), nil, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			for _, words := range [][]string{tt.fini, tt.before} {
				if len(words) > 0 && words[0] != rig.Mode("")[0] {
					need.Root(t, "to change credentials")
					need.Program(t, words[0])
				}
			}
			command := sendersCommand(t)
			if tt.name == "capabilities" {
				command[0] = withCapability(t, command[0])
			}
			argv := slices.Concat(tt.fini, []string{rig.Fini, "--grace=1h", "--"}, tt.before, command)
			mustBeAsked(t, rig.StartCmd(t, rig.CommandOf(argv)), tt.kernel, killed, 128+9)
		})
	}
}

// withCapability copies a program, and gives the copy's file a capability.
func withCapability(t *testing.T, program string) string {
	t.Helper()
	dir := rig.ShortTempDir(t)
	text, err := os.ReadFile(program)
	program = filepath.Join(dir, "program")
	rig.NoError(t, errors.Join(err, os.Chmod(dir, 0o755), rig.WriteProgram(program, text, 0o755)))
	// VFS_CAP_REVISION_2 and VFS_CAP_FLAGS_EFFECTIVE, then what is permitted and what is inheritable: see capabilities(7).
	value := binary.LittleEndian.AppendUint32(nil, 0x02000001)
	value = append(binary.LittleEndian.AppendUint32(value, 1<<unix.CAP_NET_RAW), make([]byte, 12)...)
	need.That(t, unix.Setxattr(program, "security.capability", value, 0) == nil, "a file system that keeps capabilities")
	return program
}

// mustBeAsked ends the inner fini of a command that says who sends it what. The command is asked to end: by the heir, and if the
// kernel sends the parent death signal, by that too. The kernel sends it once for each thread of the inner fini that outlives the
// one before. Its sender is the inner fini, or 0 if the inner fini has been reaped by then. Then the command is told to end by
// signal 64, which would come last.
func mustBeAsked(t *testing.T, l *rig.Life, kernel bool, end func(inner int) error, status int) {
	t.Helper()
	command := l.Out.WantPID("ready ")
	l.Caught()
	outer, inner := l.PID(), l.Worker()
	rest.Settled(t, []int{inner}) // in a system call
	rig.NoError(t, end(inner))
	const said = "fini: stopping the command: the inner fini was killed"
	l.Err.Want(said)
	for asked := false; !asked; {
		asked = (l.Out.Want("signal 15 from ") != fmt.Sprint(outer)) == kernel
	}
	rig.MustKill(t, command, 64)
	byKernel, byHeir := 0, 0
	for line := range strings.Lines(l.Out.Whole()) {
		switch line {
		case fmt.Sprintf("ready %d\n", command):
		case fmt.Sprintf("signal 15 from %d\n", inner), "signal 15 from 0\n":
			byKernel++
		case fmt.Sprintf("signal 15 from %d\n", outer):
			byHeir++
		default:
			t.Errorf("the command says %q", line)
		}
	}
	if byHeir > 1 || kernel != (byKernel > 0) {
		t.Errorf("the command is asked to end %d times by the kernel, and %d times by the heir", byKernel, byHeir)
	}
	rig.WantOnce(t, l.Err.Whole(), said)
	l.MustEnd(status)
}

func killed(inner int) error { return syscall.Kill(inner, syscall.SIGKILL) }

// injectExit makes a process end by exit_group(2), as if it had called it: the Go runtime does
// so where it gives up. It is nil where nothing is written for the architecture.
var injectExit func(pid, code int) error

// Without its word that the work is done, an inner fini that has ended by itself was killed.
func TestInnerFiniEndsByItsRuntime(t *testing.T) {
	t.Parallel()
	need.That(t, injectExit != nil, "the registers of "+runtime.GOARCH)
	for _, code := range []int{0, 2} {
		t.Run(fmt.Sprint("exit ", code), func(t *testing.T) {
			t.Parallel()
			l := rig.Start(t, rig.Pair, append([]string{"--orphans=leave", "--grace=1h", "--"}, sendersCommand(t)...)...)
			mustBeAsked(t, l, true, func(inner int) error { return injectExit(inner, code) }, 125)
		})
	}
}
