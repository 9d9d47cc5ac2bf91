package signals

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/need"
	"github.com/seed-126c5d8a/fini/e2e/surroundings"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "@catch" {
		catcher()
	}
	surroundings.Own()
	// Under the race detector a program sleeps for a second when it exits.
	_ = os.Setenv("GORACE", "atexit_sleep_ms=0")
	os.Exit(m.Run())
}

// sayTo calls SayLine with fd, -1 for none, in the place of standard error. SayLine leaves the signal mask as it was.
func sayTo(t *testing.T, fd int) bool {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	mask := func() (now unix.Sigset_t) {
		if err := unix.PthreadSigmask(unix.SIG_BLOCK, nil, &now); err != nil {
			t.Fatal(err)
		}
		return now
	}
	saved, err := unix.FcntlInt(2, unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(saved) }()
	if fd < 0 {
		err = unix.Close(2)
	} else {
		err = unix.Dup3(fd, 2, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	before := mask()
	ok := SayLine(line)
	after := mask()
	if err := unix.Dup3(saved, 2, 0); err != nil {
		t.Fatal(err)
	}
	if after != before {
		t.Errorf("the signal mask was %x and is %x", before, after)
	}
	return ok
}

var line = []byte("fini: a line\n")

// fill writes to fd without waiting until nothing more goes in, and leaves the
// descriptor as it was.
func fill(t *testing.T, fd int) {
	t.Helper()
	if err := unix.SetNonblock(fd, true); err != nil {
		t.Fatal(err)
	}
	for _, size := range []int{4096, 1} {
		for {
			if _, err := unix.Write(fd, bytes.Repeat([]byte("x"), size)); err == unix.EAGAIN {
				break
			} else if err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := unix.SetNonblock(fd, false); err != nil {
		t.Fatal(err)
	}
}

// ends is a pair of connected files, by which a line is written and read.
type ends struct{ near, far *os.File }

func (e ends) close() {
	_ = e.near.Close()
	_ = e.far.Close()
}

func pipeEnds(t *testing.T) ends {
	t.Helper()
	far, near, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	e := ends{near, far}
	t.Cleanup(e.close)
	return e
}

func socketEnds(t *testing.T) ends {
	t.Helper()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	e := ends{os.NewFile(uintptr(pair[0]), "near"), os.NewFile(uintptr(pair[1]), "far")}
	t.Cleanup(e.close)
	return e
}

// terminalEnds is a terminal and its master.
func terminalEnds(t *testing.T) ends {
	t.Helper()
	master, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	need.That(t, err == nil, "/dev/ptmx")
	far := os.NewFile(uintptr(master), "master")
	if err := unix.IoctlSetPointerInt(master, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(master, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	slave, err := unix.Open(fmt.Sprintf("/dev/pts/%d", number), unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	need.That(t, err == nil, "/dev/pts")
	e := ends{os.NewFile(uintptr(slave), "terminal"), far}
	t.Cleanup(e.close)
	return e
}

func TestSayLineArrives(t *testing.T) {
	for name, open := range map[string]func(*testing.T) ends{
		"pipe": pipeEnds, "socket": socketEnds, "terminal": terminalEnds,
	} {
		t.Run(name, func(t *testing.T) {
			e := open(t)
			if !sayTo(t, int(e.near.Fd())) {
				t.Fatal("SayLine = false")
			}
			// A terminal may pass on a line in parts, and ends it with a carriage return too.
			text, err := bufio.NewReader(e.far).ReadString('\n')
			if text := strings.ReplaceAll(text, "\r", ""); err != nil || text != string(line) {
				t.Errorf("read %q, %v; want %q", text, err, line)
			}
		})
	}
}

// Lines must follow what is in a log file, whether it was opened for appending or
// shares its offset with the command.
func TestSayLineToFile(t *testing.T) {
	for name, mode := range map[string]int{"shared offset": 0, "appending": os.O_APPEND} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "log")
			file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|mode, 0o600)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = file.Close() }()
			if _, err := file.WriteString("command\n"); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				if !sayTo(t, int(file.Fd())) {
					t.Error("SayLine = false")
				}
			}
			if _, err := file.WriteString("command\n"); err != nil {
				t.Fatal(err)
			}
			got, err := os.ReadFile(path)
			if want := "command\n" + string(line) + string(line) + "command\n"; err != nil || string(got) != want {
				t.Errorf("the file holds %q, %v; want %q", got, err, want)
			}
		})
	}
}

func TestSayLineNeverWaits(t *testing.T) {
	for name, open := range map[string]func(*testing.T) ends{
		"full pipe": pipeEnds, "full socket": socketEnds, "full terminal": terminalEnds,
	} {
		t.Run(name, func(t *testing.T) {
			e := open(t)
			fill(t, int(e.near.Fd()))
			// A terminal makes room behind the writer's back, so only the others are
			// sure to be full still.
			if sayTo(t, int(e.near.Fd())) && name != "full terminal" {
				t.Error("SayLine = true, but nobody can have taken the line")
			}
			if flags, err := unix.FcntlInt(e.near.Fd(), unix.F_GETFL, 0); err != nil || flags&unix.O_NONBLOCK != 0 {
				t.Errorf("the file description that the command shares has flags %#o, %v; want no O_NONBLOCK", flags, err)
			}
		})
	}
}

// A terminal that has room for a part of a line says that it can be written to.
func TestSayLineToTerminalWithLittleRoom(t *testing.T) {
	e := terminalEnds(t)
	fd := int(e.near.Fd())
	fill(t, fd)
	room := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
	for {
		if _, err := unix.Poll(room, 0); err != nil && err != unix.EINTR {
			t.Fatal(err)
		}
		if room[0].Revents&unix.POLLOUT != 0 {
			break
		}
		if _, err := unix.Read(int(e.far.Fd()), make([]byte, 64)); err != nil && err != unix.EINTR {
			t.Fatal(err)
		}
	}
	// The room comes in pages, so some lines may fit; not every one does.
	for range 10000 {
		if !sayTo(t, fd) || t.Failed() {
			return
		}
	}
	t.Error("10000 lines found room in a terminal that was full")
}

// Ctrl-S holds a terminal's output for as long as its user likes.
func TestSayLineToStoppedTerminal(t *testing.T) {
	e := terminalEnds(t)
	if err := unix.IoctlSetInt(int(e.near.Fd()), unix.TCXONC, unix.TCOOFF); err != nil {
		t.Fatal(err)
	}
	if sayTo(t, int(e.near.Fd())) {
		t.Error("SayLine = true, but the terminal is stopped")
	}
}

func TestSayLineToNobody(t *testing.T) {
	for name, open := range map[string]func(*testing.T) int{
		"closed stderr": func(*testing.T) int { return -1 },
		"read-only": func(t *testing.T) int {
			return int(pipeEnds(t).far.Fd())
		},
		"full disk": func(t *testing.T) int {
			full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
			need.That(t, err == nil, "/dev/full")
			t.Cleanup(func() { _ = full.Close() })
			return int(full.Fd())
		},
		"terminal that hung up": func(t *testing.T) int {
			e := terminalEnds(t)
			_ = e.far.Close()
			return int(e.near.Fd())
		},
	} {
		t.Run(name, func(t *testing.T) {
			if sayTo(t, open(t)) {
				t.Error("SayLine = true")
			}
		})
	}
}

// A reader that is gone must not end fini, and the SIGPIPE is not one that somebody
// sent: it must not be forwarded.
func TestSayLineRaisesNoSIGPIPE(t *testing.T) {
	for name, open := range map[string]func(*testing.T) ends{"pipe": pipeEnds, "socket": socketEnds} {
		t.Run(name, func(t *testing.T) {
			e := open(t)
			_ = e.far.Close()
			// SIGWINCH comes after SIGPIPE where both are pending, so its arrival
			// proves that there was no SIGPIPE.
			caught := make(chan os.Signal, 10)
			signal.Notify(caught, unix.SIGPIPE, unix.SIGWINCH)
			defer signal.Stop(caught)
			for range 3 {
				if sayTo(t, int(e.near.Fd())) {
					t.Error("SayLine = true, but the reader is gone")
				}
			}
			if err := unix.Kill(os.Getpid(), unix.SIGWINCH); err != nil {
				t.Fatal(err)
			}
			if sig := <-caught; sig != unix.SIGWINCH {
				t.Errorf("received %v", sig)
			}
		})
	}
}
