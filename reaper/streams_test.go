package reaper

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/seed-126c5d8a/fini/e2e/need"
	"golang.org/x/sys/unix"
)

// patience ends a wait that fails. No test passes because of it.
const patience = 5 * time.Minute

// closeInherited is the program of TestCloseInherited. Its descriptor 3 lasts until the test has seen
// enough, and is close-on-exec as what fini opens itself. Further arguments are where to move
// descriptor 4, and what to make the root directory.
func closeInherited(args []string) int {
	unix.CloseOnExec(3)
	var err error
	if len(args) > 1 && args[1] != "" {
		to, _ := strconv.Atoi(args[1])
		if err = unix.Dup3(4, to, 0); err == nil {
			err = unix.Close(4)
		}
	}
	if len(args) > 2 && err == nil {
		err = unix.Chroot(args[2])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "failed:", err)
		return 1
	}
	fmt.Println("before")
	CloseInherited(args[0] == "keep")
	fmt.Fprintln(os.Stderr, "done")
	return program("@stay", []string{"3"})
}

// holding is a process that has called CloseInherited, and the far ends of what it had.
type holding struct {
	pid    int
	stdin  *os.File
	stdout *os.File
}

// startCloseInherited starts closeInherited with these descriptors from 4 on. A nil stdout is a pipe.
func startCloseInherited(t *testing.T, stdout *os.File, more []*os.File, args ...string) holding {
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
	line, err := bufio.NewReader(errR).ReadString('\n')
	check(t, err)
	if line != "done\n" {
		t.Fatalf("the process said %q", line)
	}
	return holding{pid: cmd.Process.Pid, stdin: inW, stdout: outR}
}

func mustReadToEnd(t *testing.T, what string, r *os.File, want string) {
	t.Helper()
	_ = r.SetReadDeadline(time.Now().Add(patience)) // a socket's descriptor may have none
	got, err := io.ReadAll(r)
	if err != nil || string(got) != want {
		t.Errorf("the reader of %s got %q and then %v; want %q and the end", what, got, err, want)
	}
}

func TestCloseInherited(t *testing.T) {
	for _, keep := range []string{"keep", "drop"} {
		t.Run(keep, func(t *testing.T) {
			extraR, extraW := pipe(t)
			var more []*os.File
			for range 300 {
				more = append(more, extraW)
			}
			h := startCloseInherited(t, nil, more, keep)
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

func TestCloseInheritedOfSocket(t *testing.T) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	check(t, err)
	near, far := os.NewFile(uintptr(pair[0]), "near"), os.NewFile(uintptr(pair[1]), "far")
	defer func() { _ = far.Close() }()
	startCloseInherited(t, near, nil, "drop")
	mustReadToEnd(t, "the socket", far, "before\n")
}

// Without /proc nothing can be referred to, and the readers get their end all the same.
func TestCloseInheritedWithoutProc(t *testing.T) {
	need.That(t, os.Getuid() == 0, "root, to change the root directory")
	extraR, extraW := pipe(t)
	h := startCloseInherited(t, nil, []*os.File{extraW}, "drop", "2000", t.TempDir())
	mustReadToEnd(t, "descriptor 2000", extraR, "")
	mustReadToEnd(t, "standard output", h.stdout, "before\n")
	if _, err := h.stdin.WriteString("x"); !errors.Is(err, unix.EPIPE) {
		t.Errorf("write to standard input: %v, want EPIPE", err)
	}
}

// Each inherited descriptor is closed, and what is this process's own stays, however high.
func TestCloseInheritedKeepsItsOwn(t *testing.T) {
	alone(t, func(t *testing.T) {
		r, w := pipe(t)
		var inherited []int
		for range 700 { // more than fit in one answer
			fd, err := unix.FcntlInt(w.Fd(), unix.F_DUPFD, 200)
			check(t, err)
			inherited = append(inherited, fd)
		}
		check(t, w.Close())
		own := inherited[350]
		unix.CloseOnExec(own)
		stdout, err := unix.FcntlInt(1, unix.F_DUPFD_CLOEXEC, 0)
		check(t, err)

		CloseInherited(true)

		check(t, unix.Dup2(stdout, 1)) // for the result of the test
		for _, fd := range inherited {
			if isOpen(fd) != (fd == own) {
				t.Errorf("descriptor %d: open: %t", fd, isOpen(fd))
			}
		}
		check(t, unix.Close(own))
		mustReadToEnd(t, "all of them", r, "")
	})
}

func isOpen(fd int) bool {
	_, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
	return err == nil
}
