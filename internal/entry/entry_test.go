//go:build amd64 || arm64

package entry

import (
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"github.com/seed-126c5d8a/fini/internal/calls"
	"github.com/seed-126c5d8a/fini/internal/proc"
	"github.com/seed-126c5d8a/fini/internal/tests/check"
	"golang.org/x/sys/unix"
)

// Which command lines begin as a single process.
func TestGuess(t *testing.T) {
	for alone, lines := range map[bool][]string{
		true: {"fini --no-shield x", "fini -q --no-shield -v x", "fini -P", "fini -P --no-shield"},
		false: {
			"fini x", "fini", "fini -- --no-shield", "fini x --no-shield", "fini --no-shield --shield x", "fini --shield --no-shield x",
			"fini --no-shield --no-shield=false x", "fini --no-shield -t 1 --shield x", "fini --no-shields x",
			"fini -P --pause=false x", "fini -q --bind=1 --report=x --shield x",
		},
	} {
		for _, line := range lines {
			argv, err := syscall.SlicePtrFromStrings(strings.Fields(line))
			check.NoError(t, err)
			check.Equal(t, line, guessAlone(uintptr(unsafe.Pointer(&argv[0]))), alone)
			runtime.KeepAlive(argv)
		}
	}
}

// The main goroutine keeps the first thread, so that every test runs on another one: the runtime may take a signal on any
// thread, and an orphan is the first thread's child.
func init() { runtime.LockOSThread() }

// A child that has exited when the heir looks may have left an orphan after the list of children was made. So only a list
// without children proves that none is left.
func TestKillChildrenLooksAgain(t *testing.T) {
	for _, name := range []string{"a child", "a child that is alive", "the main child"} {
		t.Run(name, func(t *testing.T) {
			p, orphan := &process{state: state{Sleeper: Sleeper{Self: os.Getpid()}}}, anOrphan(t)
			switch name {
			case "a child":
				kill(orphan)
			case "the main child":
				p.Main, p.InJob = uint32(orphan), true
			}
			if unix.Gettid() == p.Self || !p.killChildren() {
				t.Fatal("the first look ends the search")
			}
			var status syscall.WaitStatus
			switch name {
			case "a child that is alive":
				_ = syscall.Kill(orphan, syscall.SIGTERM) // too late for a process that was killed
				_, err := syscall.Wait4(orphan, &status, 0, nil)
				check.NoError(t, err)
				check.Equal(t, "what ended the orphan", status.Signal(), syscall.SIGKILL)
			case "the main child":
				for !hasExited(orphan) {
				}
			}
			check.Equal(t, "the second look finds something", p.killChildren(), false)
		})
	}
}

// An inherited child that has exited is reaped, and no other process that gets its pid counts as an inherited child.
func TestReap(t *testing.T) {
	pids := [...]int{anOrphan(t), anOrphan(t), anOrphan(t)}
	p := &process{inner: 1}
	for i, pid := range pids {
		p.inherited[i] = int32(pid)
	}
	reap := func() (known, reaped [3]bool) {
		p.reap()
		for i, pid := range pids {
			_, err := syscall.Wait4(pid, nil, syscall.WNOHANG, nil)
			known[i], reaped[i] = p.findInherited(pid) != nil, err != nil
		}
		return known, reaped
	}
	known, reaped := reap()
	check.Equal(t, "while all live, known and reaped", [2][3]bool{known, reaped}, [2][3]bool{{true, true, true}, {}})
	kill(pids[1])
	known, reaped = reap()
	check.Equal(t, "after the end of the second", [2][3]bool{known, reaped}, [2][3]bool{{true, false, true}, {false, true, false}})
}

// kill makes a child a zombie.
func kill(pid int) {
	_ = syscall.Kill(pid, syscall.SIGKILL)
	for !hasExited(pid) {
	}
}

// hasExited reports whether a child is a zombie.
func hasExited(pid int) bool {
	got, _ := calls.WaitID(unix.P_PID, pid, unix.WEXITED|unix.WNOWAIT)
	return got == pid
}

// anOrphan makes this process a subreaper, and returns a child that another process has left to it.
func anOrphan(t *testing.T) int {
	t.Helper()
	check.NoError(t, unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))
	pid, err := strconv.Atoi(strings.TrimSpace(check.Run(t, "sh", "-c", "sleep 1000 >/dev/null 2>&1 & echo $!")))
	check.NoError(t, err)
	t.Cleanup(func() {
		_ = syscall.Kill(pid, syscall.SIGKILL)
		_, _ = syscall.Wait4(pid, nil, 0, nil)
	})
	return pid
}

// While an heir ends early by one signal, no other thread does the same for the next one.
func TestOneEarlySignal(t *testing.T) {
	const asked = "FINI_TEST_END_EARLY"
	if os.Getenv(asked) != "" {
		current.Role, current.Self = Heir, 1<<30 // a process whose children can't be read may have some
		endEarly(uintptr(syscall.SIGTERM))
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestOneEarlySignal$")
	cmd.Env = append(os.Environ(), asked+"=1")
	check.NoError(t, cmd.Start())
	defer func() { _, _ = cmd.Process.Kill(), cmd.Wait() }()
	files, status := proc.In(unix.AT_FDCWD), proc.Status{}
	for status.Ignored&terminating != terminating {
		if status, _ = files.StatusIn("/proc/" + strconv.Itoa(cmd.Process.Pid)); status.State == 'Z' { // it has given up
			t.Fatal("no signal is ignored until the end")
		}
	}
}
