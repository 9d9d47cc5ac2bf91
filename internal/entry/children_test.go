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

	"golang.org/x/sys/unix"

	"github.com/seed-126c5d8a/fini/internal/proc"
)

// A child that has exited when the heir looks may have left an orphan after the list of children was made. So only a list
// without children proves that none is left.
func TestKillChildrenLooksAgain(t *testing.T) {
	for _, name := range []string{"a child", "the main child"} {
		t.Run(name, func(t *testing.T) {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			p, orphan := &process{state: state{Sleeper: Sleeper{Self: os.Getpid()}}}, anOrphan(t)
			if name == "the main child" {
				p.Main, p.Job = uint32(orphan), InJob
			} else {
				kill(orphan)
			}
			if !p.killChildren() {
				t.Error("the first look ends the search")
			}
			for p.Main != 0 && !hasExited(orphan) {
			}
			if p.killChildren() {
				t.Error("the second look finds something")
			}
		})
	}
}

// The runtime may take a signal on any thread, and an orphan is the first thread's child.
func TestKillChildrenOnAnotherThread(t *testing.T) {
	orphan, left := anOrphan(t), make(chan bool)
	p := &process{state: state{Sleeper: Sleeper{Self: os.Getpid()}}}
	go func() {
		runtime.LockOSThread() // and end with the thread
		if unix.Gettid() == p.Self {
			other := make(chan bool)
			go func() { runtime.LockOSThread(); other <- p.killChildren() }()
			left <- <-other
			return
		}
		left <- p.killChildren()
	}()
	if !<-left {
		t.Error("no child was found")
	}
	if err := syscall.Kill(orphan, 0); err == nil {
		var status syscall.WaitStatus
		_ = syscall.Kill(orphan, syscall.SIGTERM) // too late for a process that was killed
		if _, err := syscall.Wait4(orphan, &status, 0, nil); err != nil || status.Signal() != syscall.SIGKILL {
			t.Errorf("the orphan: %v, %v", err, status)
		}
	}
}

// An earlier child that has exited is reaped, and no other process that gets its pid counts as an earlier child.
func TestReap(t *testing.T) {
	pids := [...]int{anOrphan(t), anOrphan(t), anOrphan(t)}
	p := &process{inner: 1}
	for i, pid := range pids {
		p.earlier[i] = int32(pid)
	}
	p.reap()
	for _, pid := range pids {
		if p.findEarlier(pid) == nil {
			t.Errorf("%d lives, and is not known", pid)
		}
	}
	kill(pids[1])
	p.reap()
	for i, pid := range pids {
		if at := p.findEarlier(pid); (at == nil) != (i == 1) {
			t.Errorf("number %d is known: %t", i, at != nil)
		}
		if got, err := syscall.Wait4(pid, nil, syscall.WNOHANG, nil); (err == nil) != (i != 1) {
			t.Errorf("number %d: wait4 says %d, %v", i, got, err)
		}
	}
}

// kill makes a child a zombie.
func kill(pid int) {
	_ = syscall.Kill(pid, syscall.SIGKILL)
	for !hasExited(pid) {
	}
}

// hasExited reports whether a child is a zombie.
func hasExited(pid int) bool {
	got, _, _ := proc.WaitID(unix.P_PID, pid, unix.WEXITED|unix.WNOWAIT)
	return got == pid
}

// anOrphan makes this process a subreaper, and returns a child that another process has left to it.
func anOrphan(t *testing.T) int {
	t.Helper()
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	text, err := exec.Command("sh", "-c", "sleep 1000 >/dev/null 2>&1 & echo $!").Output()
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
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
		outer.Role, outer.Self = Heir, 1<<30 // a process whose children can't be read may have some
		endEarly(uintptr(syscall.SIGTERM))
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestOneEarlySignal$")
	cmd.Env = append(os.Environ(), asked+"=1")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error)
	go func() { ended <- cmd.Wait() }()
	for {
		select {
		case err := <-ended: // it gives up
			t.Fatalf("no signal is ignored until the end: %v", err)
		default:
		}
		status, _ := os.ReadFile("/proc/" + strconv.Itoa(cmd.Process.Pid) + "/status")
		_, ignored, _ := strings.Cut(string(status), "SigIgn:\t")
		line, _, _ := strings.Cut(ignored, "\n")
		if set, _ := strconv.ParseUint(line, 16, 64); set&terminating == terminating {
			break
		}
	}
	_ = cmd.Process.Kill()
	<-ended
}
