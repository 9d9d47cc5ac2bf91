package signals

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"syscall"
	"testing"

	"github.com/seed-126c5d8a/fini/internal/handler"
	"github.com/seed-126c5d8a/fini/internal/tests/check"
	"github.com/seed-126c5d8a/fini/internal/tests/surroundings"
	"golang.org/x/sys/unix"
)

func init() {
	if len(os.Args) > 1 && os.Args[1] == "@catch" {
		runtime.LockOSThread() // the tests look at the main thread
	}
}

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "@catch" {
		catcher()
	}
	surroundings.Own()
	_ = os.Setenv("GORACE", "atexit_sleep_ms=0") // under the race detector a program sleeps for a second when it exits
	os.Exit(m.Run())
}

// withHandler is whether the handler is fini's own.
var withHandler = handler.Threads == 0

// catcher is the program of the tests of Catch: it says each signal that it takes, with its sender, until SIGTERM. SIGUSR1 has
// it catch SIGCHLD, SIGHUP has it start a child and wait for its end, SIGXCPU has it take nothing before it can read
// something. It runs on the main thread: see init.
func catcher() {
	var blocked unix.Sigset_t
	blocked.Val[0] = 1 << (unix.SIGIO - 1)
	_ = unix.PthreadSigmask(unix.SIG_BLOCK, &blocked, nil)
	c, err := Catch(1<<(unix.SIGWINCH-1)|1<<(unix.SIGCHLD-1), nil)
	if err != nil {
		fmt.Println("failed:", err)
		os.Exit(1)
	}
	c.Unblock()
	fmt.Println("ready")
	for {
		fds := []unix.PollFd{{Fd: int32(c.FD), Events: unix.POLLIN}}
		_, _ = unix.Poll(fds, -1)
		for _, got := range c.Take() {
			switch got.Signal {
			case unix.SIGUSR1:
				c.Children()
			case unix.SIGHUP:
				if err := exec.Command("/bin/true").Run(); err != nil {
					fmt.Println("failed:", err)
				}
			case unix.SIGQUIT:
				work()
			case unix.SIGXCPU:
				_, _ = os.Stdin.Read(make([]byte, 1))
			}
			fmt.Println(Name(got.Signal), got.Sender)
			if got.Signal == unix.SIGTERM {
				os.Exit(0)
			}
		}
	}
}

// work needs the runtime's own handlers: a fault becomes a panic, and a goroutine that never gives way is preempted.
func work() {
	defer func() { fmt.Println("recovered:", recover() != nil) }()
	go func() {
		//lint:ignore SA5002 it is to spin
		for {
		}
	}()
	runtime.GC()
	var nothing *int
	*nothing = 1
}

// caughtBy is a catcher that runs.
type caughtBy struct {
	T     testing.TB
	cmd   *exec.Cmd
	Stdin io.Writer
	Out   *check.Lines
}

func (c caughtBy) PID() int { return c.cmd.Process.Pid }

func (c caughtBy) Signal(sig syscall.Signal) {
	c.T.Helper()
	check.MustKill(c.T, c.PID(), sig)
}

func startCatcher(t *testing.T) caughtBy {
	t.Helper()
	cmd := exec.Command(os.Args[0], "@catch")
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	check.NoError(t, err)
	read, write := check.Pipe(t) // StdoutPipe would be closed by Wait
	cmd.Stdout = write
	check.NoError(t, cmd.Start())
	check.NoError(t, write.Close())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	c := caughtBy{t, cmd, stdin, check.NewLines(t, read)}
	c.Out.WantNext("ready")
	return c
}

// says sends a signal and wants to be told of it, and of nothing else before.
func (c caughtBy) says(sig syscall.Signal) {
	c.T.Helper()
	c.Signal(sig)
	c.Out.WantNext(c.is(sig))
}

// is how it says a signal that this process sent.
func (c caughtBy) is(sig syscall.Signal) string {
	if withHandler {
		return fmt.Sprintf("%s %d", Name(sig), os.Getpid())
	}
	return Name(sig) + " 0"
}

func TestCatchEverySignal(t *testing.T) {
	c := startCatcher(t)
	for sig := syscall.Signal(1); sig <= rtMax; sig++ {
		if !Catchable(sig) || sig == unix.SIGTERM || sig == unix.SIGWINCH {
			continue
		}
		c.Signal(sig)
		switch sig {
		case unix.SIGQUIT:
			c.Out.WantNext("recovered: true")
		case unix.SIGXCPU:
			_, _ = c.Stdin.Write([]byte("\n"))
		}
		c.Out.WantNext(c.is(sig))
	}
	// One that was ignored from the start stays so: it would be said before a signal with a greater number.
	c.Signal(unix.SIGWINCH)
	c.says(unix.SIGSYS)
	c.says(unix.SIGTERM)
}

// The end of a child is told where that is asked for. Although SIGCHLD was ignored at the start, the child has a status.
func TestCatchChildren(t *testing.T) {
	c := startCatcher(t)
	c.says(unix.SIGHUP)
	c.says(unix.SIGUSR1)
	for range 3 {
		c.says(unix.SIGHUP)
		c.Out.WantNext("SIGCHLD 0")
	}
	c.says(unix.SIGTERM)
}

// What reaches fini while it is not looking is not lost, and merged by kind.
func TestCatchMany(t *testing.T) {
	c := startCatcher(t)
	for range 10000 {
		c.Signal(unix.SIGCONT)
	}
	c.Out.WantNext(c.is(unix.SIGCONT))
	c.Signal(unix.SIGTERM) // if both came at once, SIGTERM would be said first, and the program would end
	line := c.is(unix.SIGCONT)
	for line == c.is(unix.SIGCONT) {
		line, _ = c.Out.Next()
	}
	check.Equal(t, "at last", line, c.is(unix.SIGTERM))
}

// Where the kernel has no memory for what comes with tgkill(2), the runtime's own are still known.
func TestCatchWithoutInfo(t *testing.T) {
	c := startCatcher(t)
	check.NoError(t, unix.Prlimit(c.PID(), unix.RLIMIT_SIGPENDING, &unix.Rlimit{}, nil))
	for range 5 {
		c.Signal(unix.SIGQUIT) // which has it preempt a goroutine
		c.Out.WantNext("recovered: true")
		c.Out.WantNext(c.is(unix.SIGQUIT))
	}
	c.says(unix.SIGTERM)
}

func TestCatchable(t *testing.T) {
	// What can't be caught, what speaks of fini's own children, and what is the C library's.
	not := []syscall.Signal{unix.SIGKILL, unix.SIGSTOP, unix.SIGCHLD, 32, 33, -1, 0, 65}
	if !withHandler {
		not = append(not, unix.SIGURG, unix.SIGPROF, 34) // what the Go runtime keeps
	}
	for sig := syscall.Signal(-1); sig <= rtMax+1; sig++ {
		check.Equal(t, Name(sig), Catchable(sig), !slices.Contains(not, sig))
	}
}
