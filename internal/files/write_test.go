package files

import (
	"bufio"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/seed-126c5d8a/fini/internal/tests/check"
	"github.com/seed-126c5d8a/fini/internal/tests/self"
	"github.com/seed-126c5d8a/fini/internal/tests/surroundings"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) {
	surroundings.Own()
	os.Exit(m.Run())
}

// sayTo calls SayLine with a file in the place of standard error. SayLine leaves the signal mask as it was.
func sayTo(t *testing.T, file *os.File) bool {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	mask := func() (now unix.Sigset_t) {
		check.NoError(t, unix.PthreadSigmask(unix.SIG_BLOCK, nil, &now))
		return now
	}
	restore := self.PutAt(t, 2, file)
	before := mask()
	ok := SayLine(line)
	after := mask()
	restore()
	check.Equal(t, "the signal mask", after, before)
	return ok
}

var line = []byte("fini: a line\n")

// pairs are connected files of each kind, by which a line is written and read.
var pairs = map[string]func(t testing.TB) (near, far *os.File){
	"pipe": func(t testing.TB) (near, far *os.File) {
		far, near = check.Pipe(t)
		return near, far
	},
	"socket":   check.Socketpair,
	"terminal": check.Terminal,
	// Opened again, it would be another terminal's.
	"master": func(t testing.TB) (near, far *os.File) {
		far, near = check.Terminal(t)
		t.Cleanup(func() { _ = far.Close() })
		mode, err := unix.IoctlGetTermios(int(far.Fd()), unix.TCGETS)
		check.NoError(t, err)
		mode.Lflag, mode.Iflag = 0, 0 // so that all is kept until it is read, and nothing is echoed
		check.NoError(t, unix.IoctlSetTermios(int(far.Fd()), unix.TCSETS, mode))
		return near, far
	},
}

// toEach runs a test with each of the pairs.
func toEach(t *testing.T, test func(t *testing.T, name string, near, far *os.File)) {
	for name, open := range pairs {
		t.Run(name, func(t *testing.T) {
			near, far := open(t)
			test(t, name, near, far)
		})
	}
}

func TestSayLineArrives(t *testing.T) {
	toEach(t, func(t *testing.T, _ string, near, far *os.File) {
		if !sayTo(t, near) {
			t.Fatal("SayLine = false")
		}
		// A terminal may pass on a line in parts, and ends it with a carriage return too.
		text, err := bufio.NewReader(far).ReadString('\n')
		check.NoError(t, err)
		check.Equal(t, "what arrives", strings.ReplaceAll(text, "\r", ""), string(line))
	})
}

// Lines must follow what is in a log file, whether it was opened for appending or shares its offset with the command.
func TestSayLineToFile(t *testing.T) {
	for name, mode := range map[string]int{"shared offset": 0, "appending": os.O_APPEND} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "log")
			file := self.Open(t, path, os.O_CREATE|os.O_WRONLY|mode)
			_, err := file.WriteString("command\n")
			check.NoError(t, err)
			for range 2 {
				check.Equal(t, "SayLine", sayTo(t, file), true)
			}
			_, err = file.WriteString("command\n")
			check.NoError(t, err)
			check.Equal(t, "the file", check.ReadFile(t, path), "command\n"+string(line)+string(line)+"command\n")
		})
	}
}

func TestSayLineNeverWaits(t *testing.T) {
	toEach(t, func(t *testing.T, name string, near, _ *os.File) {
		check.FillPipe(t, near)
		// A terminal makes room behind the writer's back, so only the others are sure to be full still.
		if sayTo(t, near) && name != "terminal" && name != "master" {
			t.Error("SayLine = true, but nobody can have taken the line")
		}
		if flags, err := unix.FcntlInt(near.Fd(), unix.F_GETFL, 0); err != nil || flags&unix.O_NONBLOCK != 0 {
			t.Errorf("the file description that the command shares has flags %#o, %v; want no O_NONBLOCK", flags, err)
		}
	})
}

// A terminal that has room for a part of a line says that it can be written to.
func TestSayLineToTerminalWithLittleRoom(t *testing.T) {
	near, far := pairs["terminal"](t)
	check.FillPipe(t, near)
	room := []unix.PollFd{{Fd: int32(near.Fd()), Events: unix.POLLOUT}}
	for room[0].Revents&unix.POLLOUT == 0 {
		_, err := far.Read(make([]byte, 64))
		check.NoError(t, err)
		_, _ = unix.Poll(room, 0)
	}
	// The room comes in pages, so some lines may fit; not every one does.
	for range 10000 {
		if !sayTo(t, near) || t.Failed() {
			return
		}
	}
	t.Error("10000 lines found room in a terminal that was full")
}

// Ctrl-S holds a terminal's output for as long as its user likes.
func TestSayLineToStoppedTerminal(t *testing.T) {
	near, _ := pairs["terminal"](t)
	check.NoError(t, unix.IoctlSetInt(int(near.Fd()), unix.TCXONC, unix.TCOOFF))
	check.Equal(t, "SayLine to a terminal that is stopped", sayTo(t, near), false)
}

// A reader that is gone must not end fini, and the SIGPIPE is not one that somebody sent: it must not be forwarded.
func TestSayLineToNobody(t *testing.T) {
	toEach(t, func(t *testing.T, name string, near, far *os.File) {
		_ = far.Close()
		// SIGWINCH comes after SIGPIPE where both are pending, so its arrival proves that there was no SIGPIPE.
		caught := make(chan os.Signal, 10)
		signal.Notify(caught, unix.SIGPIPE, unix.SIGWINCH)
		defer signal.Stop(caught)
		for range 3 {
			if sayTo(t, near) && name != "master" { // a terminal keeps what comes from its master
				t.Error("SayLine = true, but the reader is gone")
			}
		}
		check.NoError(t, unix.Kill(os.Getpid(), unix.SIGWINCH))
		check.Equal(t, "the signal", <-caught, unix.SIGWINCH)
	})
}
