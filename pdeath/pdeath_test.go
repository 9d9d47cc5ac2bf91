package pdeath

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/seed-126c5d8a/fini/internal/tests/check"
	"github.com/seed-126c5d8a/fini/internal/tests/need"
	"github.com/seed-126c5d8a/fini/internal/tests/self"
	"golang.org/x/sys/unix"
)

// Standard input is watched if it has a far end. See socketpair(2), null(4).
func TestStdin(t *testing.T) {
	pipe, _ := check.Pipe(t)
	stream, _ := check.Socketpair(t)
	datagrams, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	check.NoError(t, err)
	for name, c := range map[string]struct {
		file *os.File
		says string
	}{
		"a pipe":              {pipe, "<nil>"},
		"a reference":         {self.Open(t, fmt.Sprintf("/proc/self/fd/%d", pipe.Fd()), unix.O_PATH), "a file has no far end; want a pipe, a socket or a terminal"},
		"a stream socket":     {stream, "<nil>"},
		"a datagram socket":   {os.NewFile(uintptr(datagrams[0]), ""), "a datagram socket has no end"},
		"/dev/null":           {self.Open(t, "/dev/null", os.O_RDWR), "it has ended already"},
		"/dev/zero":           {self.Open(t, "/dev/zero", os.O_RDWR), "a device has no end"},
		"a terminal's master": {self.Open(t, "/dev/ptmx", os.O_RDWR|unix.O_NOCTTY), "<nil>"},
		"a file":              {self.Open(t, t.TempDir()+"/file", os.O_RDWR|os.O_CREATE), "a file has no far end; want a pipe, a socket or a terminal"},
	} {
		restore := self.PutAt(t, 0, c.file)
		got, err := Stdin()
		restore()
		check.Equal(t, name, got.FD == 0, err == nil)
		check.Equal(t, name, fmt.Sprint(err), c.says)
	}
}

// A process that has ended can't be watched any more, whether it was reaped or not.
func TestProcess(t *testing.T) {
	cmd := check.Bystander(t, "sleep", "1000")
	lives, err := Process(cmd.Process.Pid)
	need.That(t, err == nil || err == ErrGone, "pidfd_open(2) (kernel)")
	check.NoError(t, err)
	ended := make(chan error)
	go func() { ended <- lives.Wait() }()
	check.NoError(t, cmd.Process.Kill())
	check.NoError(t, <-ended)
	lives.Close()
	_, err = Process(cmd.Process.Pid)
	check.Equal(t, "of a zombie", err, ErrGone)
	_ = cmd.Wait()
	_, err = Process(cmd.Process.Pid)
	check.Equal(t, "of nobody", err, ErrGone)
}

// A Watch of standard input reads nothing, and ends with the last writer.
func TestWaitForStdin(t *testing.T) {
	read, write := check.Pipe(t)
	_, err := write.WriteString("to be read")
	check.NoError(t, err)
	restore := self.PutAt(t, 0, read)
	defer restore()
	stdin, err := Stdin()
	check.NoError(t, err)
	ended := make(chan error)
	go func() { ended <- stdin.Wait() }()
	check.NoError(t, write.Close())
	check.NoError(t, <-ended)
	text := make([]byte, 20)
	n, err := read.Read(text)
	check.NoError(t, err)
	check.Equal(t, "what is left to read", string(text[:n]), "to be read")
}

// A descriptor that is closed doesn't look like an end.
func TestWaitForNothing(t *testing.T) {
	check.Equal(t, "the error", fmt.Sprint(Watch{1 << 20, unix.POLLIN}.Wait()), "cannot poll: bad file descriptor")
}

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == "@child" {
		parent, err := Parent()
		fmt.Println(parent.FD >= 0, err)
		fmt.Println(parent.Wait())
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestParent(t *testing.T) {
	w, err := Parent()
	check.NoError(t, err)
	w.Close()
	cmd := exec.Command("/bin/sh", "-c", `"$0" @child & read line`, os.Args[0])
	stdin, err := cmd.StdinPipe()
	check.NoError(t, err)
	out, err := cmd.StdoutPipe()
	check.NoError(t, err)
	check.NoError(t, cmd.Start())
	lines := bufio.NewScanner(out)
	lines.Scan()
	check.Equal(t, "while the parent lives", lines.Text(), "true <nil>")
	_ = stdin.Close()
	lines.Scan()
	check.Equal(t, "what Wait says when it has exited", lines.Text(), "<nil>")
	_ = cmd.Wait()
}
