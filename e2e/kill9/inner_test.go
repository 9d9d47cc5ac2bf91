package kill9

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/need"
	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/e2e/rig/rest"
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
	const python = "/usr/bin/python3"
	_, err := os.Stat(python)
	need.That(t, err == nil, python)
	return []string{python, "-I", "-S", "-c", senders}
}

// The kernel asks the command to end when the inner fini is killed, but not if the command has other credentials by then:
// the heir asks it.
func TestInnerFiniIsKilled(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		before []string
		kernel bool
	}{
		{"as it was", nil, true},
		{"user", []string{"setpriv", "--reuid=65534", "--clear-groups"}, false},
		{"group", []string{"setpriv", "--regid=65534", "--clear-groups"}, false},
		{"both", []string{"setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"}, false},
		{"real user alone", []string{"setpriv", "--ruid=65534"}, false},
		{"su", []string{"busybox", "su", "-s", "/bin/sh", "nobody", "-c", `exec "$0" "$@"`, "--"}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if tt.before != nil {
				need.Root(t, "to change credentials")
				need.Program(t, tt.before[0])
			}
			l := rig.Start(t, rig.Pair, slices.Concat([]string{"--grace=1h", "--"}, tt.before, sendersCommand(t))...)
			mustBeAsked(t, l, tt.kernel, killed, 128+9)
		})
	}
}

// The kernel does not ask a command that has got capabilities of its file, or one whose parent death signal it has
// refused to set.
func TestInnerFiniIsKilledAndTheKernelIsSilent(t *testing.T) {
	t.Parallel()
	t.Run("capabilities", func(t *testing.T) {
		t.Parallel()
		need.Root(t, "to give a file capabilities")
		command := sendersCommand(t)
		dir := t.TempDir()
		program := filepath.Join(dir, "python3")
		text, err := os.ReadFile(command[0])
		if err == nil {
			err = errors.Join(os.Chmod(dir, 0o755), os.Chmod(filepath.Dir(dir), 0o755), rig.WriteProgram(program, text, 0o755))
		}
		rig.NoError(t, err)
		// VFS_CAP_REVISION_2 and VFS_CAP_FLAGS_EFFECTIVE, then what is permitted and what is inheritable: see
		// capabilities(7).
		value := binary.LittleEndian.AppendUint32(nil, 0x02000001)
		value = append(binary.LittleEndian.AppendUint32(value, 1<<unix.CAP_NET_RAW), make([]byte, 12)...)
		need.That(t, unix.Setxattr(program, "security.capability", value, 0) == nil, "a file system that keeps capabilities")
		cmd := exec.Command(rig.Fini, append([]string{"--grace=1h", "--", program}, command[1:]...)...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		mustBeAsked(t, rig.StartCmd(t, cmd), false, killed, 128+9)
	})
	t.Run("the signal is refused", func(t *testing.T) {
		t.Parallel()
		argv := append(rig.Mode("refuse", "pdeathsig:EPERM", rig.Fini, "--grace=1h", "--"), sendersCommand(t)...)
		mustBeAsked(t, rig.StartCmd(t, exec.Command(argv[0], argv[1:]...)), false, killed, 128+9)
	})
}

// mustBeAsked ends the inner fini of a command that says who sends it what.
func mustBeAsked(t *testing.T, l *rig.Life, kernel bool, end func(inner int) error, status int) {
	t.Helper()
	command := l.Out.WantPID("ready ")
	l.Caught()
	outer, inner := l.PID(), l.Worker()
	rest.Settled(t, []int{inner}) // in a system call
	rig.NoError(t, end(inner))
	mustBeAskedOnce(l, command, inner, outer, kernel)
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
	for _, policy := range []string{"stop", "pipes", "wait", "leave"} {
		for _, code := range []int{0, 2} {
			t.Run(fmt.Sprintf("%s, exit %d", policy, code), func(t *testing.T) {
				t.Parallel()
				l := rig.Start(t, rig.Pair, append([]string{"--orphans=" + policy, "--grace=1h", "--"}, sendersCommand(t)...)...)
				mustBeAsked(t, l, true, func(inner int) error { return injectExit(inner, code) }, 125)
			})
		}
	}
}

// mustBeAskedOnce asserts that a command whose inner fini was killed is asked to end: by the heir, and if the kernel sends the
// parent death signal, by that too. The kernel sends it once for each thread of the inner fini that outlives the one
// before. Its sender is the inner fini, or 0 if the inner fini has been reaped by then. Then the command is told to end by
// signal 64, which would come last.
func mustBeAskedOnce(l *rig.Life, command, inner, outer int, kernel bool) {
	l.T.Helper()
	const said = "fini: stopping the command: the inner fini was killed"
	l.Err.Want(said)
	for asked := false; !asked; {
		asked = (l.Out.Want("signal 15 from ") != fmt.Sprint(outer)) == kernel
	}
	rig.MustKill(l.T, command, 64)
	byKernel, byHeir := 0, 0
	for line := range strings.Lines(l.Out.Whole()) {
		switch line {
		case fmt.Sprintf("ready %d\n", command):
		case fmt.Sprintf("signal 15 from %d\n", inner), "signal 15 from 0\n":
			byKernel++
		case fmt.Sprintf("signal 15 from %d\n", outer):
			byHeir++
		default:
			l.T.Errorf("the command says %q", line)
		}
	}
	if byHeir > 1 || kernel != (byKernel > 0) {
		l.T.Errorf("the command is asked to end %d times by the kernel, and %d times by the heir", byKernel, byHeir)
	}
	rig.WantOnce(l.T, l.Err.Whole(), said)
}
