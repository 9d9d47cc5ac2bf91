package reaper

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// patience ends a wait that fails. No test passes because of it.
const patience = 10 * time.Second

// The signal for the parent's death, which facts asks for, is the first thread's.
func init() { runtime.LockOSThread() }

func TestMain(m *testing.M) {
	// Under the race detector a program sleeps for a second when it exits.
	_ = os.Setenv("GORACE", "atexit_sleep_ms=0")
	if len(os.Args) > 1 && strings.HasPrefix(os.Args[1], "@") && os.Args[1] != "@alone" {
		os.Exit(program(os.Args[1], os.Args[2:]))
	}
	if len(os.Args) > 1 && os.Args[1] == "@alone" {
		isAlone = true
		os.Args = append(os.Args[:1], os.Args[2:]...)
	}
	os.Exit(m.Run())
}

// program is what this binary is as a process that a test starts.
func program(name string, args []string) int {
	switch name {
	case "@stay": // until the end of the descriptor that it is told
		fd, _ := strconv.Atoi(args[0])
		_, _ = io.Copy(io.Discard, os.NewFile(uintptr(fd), "until"))
		return 0
	case "@orphans": // leaves so many to its parent, which stay until the end of a descriptor
		n, _ := strconv.Atoi(args[0])
		fd, _ := strconv.Atoi(args[1])
		for range n {
			cmd := exec.Command("/bin/sh", "-c", "read line")
			cmd.Stdin = os.NewFile(uintptr(fd), "until")
			if cmd.Start() != nil {
				return 1
			}
		}
		return 7
	case "@facts": // of itself, into a file
		return facts(args)
	case "@letgo":
		return letGo(args)
	}
	return 99
}

// need skips a test where something it needs is missing, which is an error under
// FINI_MUST_RUN=1.
func need(t *testing.T, ok bool, what string) {
	t.Helper()
	switch {
	case ok:
	case os.Getenv("FINI_MUST_RUN") == "1":
		t.Fatalf("FINI_MUST_RUN=1, but this is missing: %s", what)
	default:
		t.Skipf("SKIPPED, for this is missing: %s", what)
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func pipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	check(t, err)
	t.Cleanup(func() { _ = r.Close(); _ = w.Close() })
	return r, w
}

func self(t *testing.T) string {
	t.Helper()
	path, err := os.Executable()
	check(t, err)
	return path
}

// isAlone says that this process was started by alone.
var isAlone bool

// alone runs body in a process of its own: it becomes a subreaper and reaps every
// child there is, neither of which can be had from the test's own process.
func alone(t *testing.T, body func(t *testing.T)) {
	t.Helper()
	if isAlone {
		body(t)
		return
	}
	cmd := exec.Command(self(t), "@alone", "-test.run=^"+t.Name()+"$", "-test.v", "-test.timeout=3m")
	text, err := cmd.CombinedOutput()
	switch {
	case err != nil:
		t.Errorf("%v\n%s", err, text)
	case strings.Contains(string(text), "--- SKIP: "):
		need(t, false, "something in the process of its own:\n"+string(text))
	case !strings.Contains(string(text), "--- PASS: "+t.Name()):
		t.Errorf("the test did not run:\n%s", text)
	}
}

// inheritedEnd is a pipe whose reading end children inherit, and lasts until the
// writing end is closed.
func inheritedEnd(t *testing.T) (fd string, w *os.File) {
	t.Helper()
	r, w := pipe(t)
	end, err := unix.Dup(int(r.Fd())) // without close-on-exec
	check(t, err)
	t.Cleanup(func() { _ = unix.Close(end) })
	return strconv.Itoa(end), w
}

func spawnSelf(t *testing.T, args ...string) Child {
	t.Helper()
	child, err := Spawn(Command{Args: append([]string{self(t)}, args...), Env: os.Environ(), Terminal: -1})
	check(t, err)
	return child
}

// hasEnded waits until a child can be reaped.
func hasEnded(t *testing.T) {
	t.Helper()
	for {
		err := unix.Waitid(unix.P_ALL, 0, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if err != unix.EINTR {
			check(t, err)
			return
		}
	}
}

func TestReapCommandAndOrphans(t *testing.T) {
	alone(t, func(t *testing.T) {
		const orphans = 50
		check(t, Subreaper())
		until, end := inheritedEnd(t)
		child := spawnSelf(t, "@orphans", strconv.Itoa(orphans), until)

		hasEnded(t)
		exits, none := Reap()
		if len(exits) != 1 || exits[0].Pid != child.Pid || exits[0].Status.ExitStatus() != 7 {
			t.Errorf("the command has ended, and Reap says %v; want %d with status 7", exits, child.Pid)
		}
		if none {
			t.Error("orphans are alive, and Reap says that there is none")
		}
		if exits, none := Reap(); len(exits) != 0 || none {
			t.Errorf("nobody else has ended, and Reap says %v, %t", exits, none)
		}

		_ = end.Close()
		reaped := map[int]bool{}
		for none = false; !none; {
			hasEnded(t)
			exits, none = Reap()
			for _, x := range exits {
				if reaped[x.Pid] {
					t.Errorf("%d was reaped twice", x.Pid)
				}
				reaped[x.Pid] = true
				if !x.Status.Exited() || x.Status.ExitStatus() != 1 {
					t.Errorf("%d ended with %v, want status 1 for the end of its input", x.Pid, x.Status)
				}
			}
		}
		if len(reaped) != orphans {
			t.Errorf("reaped %d orphans, want %d", len(reaped), orphans)
		}
		if exits, none := Reap(); len(exits) != 0 || !none {
			t.Errorf("no child is left, and Reap says %v, %t", exits, none)
		}
	})
}

func TestReapTellsSignalFromStatus(t *testing.T) {
	alone(t, func(t *testing.T) {
		until, end := inheritedEnd(t)
		defer func() { _ = end.Close() }()
		child := spawnSelf(t, "@stay", until)
		check(t, unix.Kill(child.Pid, unix.SIGKILL))
		hasEnded(t)
		exits, none := Reap()
		if len(exits) != 1 || exits[0].Pid != child.Pid || exits[0].Status.Signal() != unix.SIGKILL || !none {
			t.Errorf("Reap = %v, %t; want %d, ended by SIGKILL, and none left", exits, none, child.Pid)
		}
	})
}

func TestReapTellsOfAStop(t *testing.T) {
	alone(t, func(t *testing.T) {
		until, end := inheritedEnd(t)
		defer func() { _ = end.Close() }()
		child := spawnSelf(t, "@stay", until)
		check(t, unix.Kill(child.Pid, unix.SIGSTOP))
		defer func() { check(t, unix.Kill(child.Pid, unix.SIGKILL)) }()
		for {
			err := unix.Waitid(unix.P_PID, child.Pid, nil, unix.WSTOPPED|unix.WNOWAIT, nil)
			if err != unix.EINTR {
				check(t, err)
				break
			}
		}
		exits, none := Reap()
		if len(exits) != 1 || exits[0].Pid != child.Pid || exits[0].Status.StopSignal() != unix.SIGSTOP || none {
			t.Errorf("Reap = %v, %t; want %d, stopped by SIGSTOP, and still there", exits, none, child.Pid)
		}
	})
}

func TestReapWithoutChild(t *testing.T) {
	alone(t, func(t *testing.T) {
		if exits, none := Reap(); len(exits) != 0 || !none {
			t.Errorf("there is no child, and Reap says %v, %t", exits, none)
		}
	})
}

// letGo is the program of TestLetGo. Its descriptor 3 lasts until the test has seen
// enough, and is close-on-exec as what fini opens itself.
func letGo(args []string) int {
	unix.CloseOnExec(3)
	if len(args) > 1 {
		if err := unix.Chroot(args[1]); err != nil {
			fmt.Fprintln(os.Stderr, "failed:", err)
			return 1
		}
	}
	fmt.Println("before")
	err := LetGo(args[0] == "keep")
	fmt.Fprintf(os.Stderr, "done %v\n", err)
	return program("@stay", []string{"3"})
}

// holding is a process that has called LetGo, and the far ends of what it had.
type holding struct {
	pid    int
	stdin  *os.File
	stdout *os.File
	stderr *bufio.Reader
	said   string // what LetGo returned
}

// startLetGo starts letGo with these descriptors from 4 on. A nil stdout is a pipe.
func startLetGo(t *testing.T, stdout *os.File, more []*os.File, args ...string) holding {
	t.Helper()
	inR, inW := pipe(t)
	outR, outW := pipe(t)
	errR, errW := pipe(t)
	untilR, untilW := pipe(t)
	cmd := exec.Command(self(t), append([]string{"@letgo"}, args...)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = inR, outW, errW
	if stdout != nil {
		cmd.Stdout = stdout
	}
	cmd.ExtraFiles = append([]*os.File{untilR}, more...)
	check(t, cmd.Start())
	t.Cleanup(func() {
		_ = untilW.Close()
		_ = cmd.Wait()
	})
	for _, f := range append([]*os.File{inR, outW, errW, stdout}, more...) {
		if f != nil {
			_ = f.Close()
		}
	}
	for _, f := range []*os.File{outR, errR, inW} {
		check(t, f.SetDeadline(time.Now().Add(patience)))
	}
	h := holding{pid: cmd.Process.Pid, stdin: inW, stdout: outR, stderr: bufio.NewReader(errR)}
	line, err := h.stderr.ReadString('\n')
	check(t, err)
	var ok bool
	if h.said, ok = strings.CutPrefix(strings.TrimSpace(line), "done "); !ok {
		t.Fatalf("the process said %q", line)
	}
	return h
}

func mustReadToEnd(t *testing.T, what string, r *os.File, want string) {
	t.Helper()
	_ = r.SetReadDeadline(time.Now().Add(patience)) // a socket's descriptor may have none
	got, err := io.ReadAll(r)
	if err != nil || string(got) != want {
		t.Errorf("the reader of %s got %q and then %v; want %q and the end", what, got, err, want)
	}
}

func TestLetGo(t *testing.T) {
	for _, keep := range []string{"keep", "drop"} {
		t.Run(keep, func(t *testing.T) {
			// As many as take more than one getdents(2).
			extraR, extraW := pipe(t)
			var more []*os.File
			for range 300 {
				more = append(more, extraW)
			}
			h := startLetGo(t, nil, more, keep)
			if h.said != "<nil>" {
				t.Errorf("LetGo: %s", h.said)
			}
			mustReadToEnd(t, "standard output", h.stdout, "before\n")
			mustReadToEnd(t, "the inherited descriptors", extraR, "")

			_, err := h.stdin.WriteString("x")
			if kept := err == nil; kept != (keep == "keep") || !kept && !errors.Is(err, unix.EPIPE) {
				t.Errorf("write to standard input: %v", err)
			}

			// Standard output can still be reached from elsewhere, as /dev/stdout of
			// PID 1 is in containers.
			again, err := os.OpenFile(fmt.Sprintf("/proc/%d/fd/1", h.pid), os.O_WRONLY, 0)
			check(t, err)
			_, err = again.WriteString("again\n")
			check(t, err)
			check(t, again.Close())
			mustReadToEnd(t, "standard output", h.stdout, "again\n")

			for fd, want := range map[int]bool{0: true, 1: true, 2: true, 3: true, 4: false, 303: false} {
				_, err := os.Lstat(fmt.Sprintf("/proc/%d/fd/%d", h.pid, fd))
				if (err == nil) != want {
					t.Errorf("descriptor %d: %v; want it to be there: %t", fd, err, want)
				}
			}
		})
	}
}

func TestLetGoOfSocket(t *testing.T) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	check(t, err)
	near, far := os.NewFile(uintptr(pair[0]), "near"), os.NewFile(uintptr(pair[1]), "far")
	defer func() { _ = far.Close() }()
	h := startLetGo(t, near, nil, "drop")
	if h.said != "<nil>" {
		t.Errorf("LetGo: %s", h.said)
	}
	mustReadToEnd(t, "the socket", far, "before\n")
}

// Without /proc nothing can be referred to or listed, and the readers get their end
// all the same.
func TestLetGoWithoutProc(t *testing.T) {
	need(t, os.Getuid() == 0, "root, to change the root directory")
	h := startLetGo(t, nil, nil, "drop", t.TempDir())
	if h.said == "<nil>" || strings.HasPrefix(h.said, "failed") {
		t.Errorf("LetGo: %s; want an error that says what is missing", h.said)
	}
	mustReadToEnd(t, "standard output", h.stdout, "before\n")
	if _, err := h.stdin.WriteString("x"); !errors.Is(err, unix.EPIPE) {
		t.Errorf("write to standard input: %v, want EPIPE", err)
	}
}

// facts writes what a command sees of itself to a file.
func facts(args []string) int {
	var deathsig int32
	err := unix.Prctl(unix.PR_GET_PDEATHSIG, uintptr(unsafe.Pointer(&deathsig)), 0, 0, 0)
	text := fmt.Sprintf("name=%s args=%q leader=%t deathsig=%d error=%v\n",
		os.Args[0], args[1:], unix.Getpgrp() == os.Getpid(), deathsig, err)
	if os.WriteFile(args[0], []byte(text), 0o600) != nil {
		return 1
	}
	return 42
}
