package rig

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/seed-126c5d8a/fini/e2e/need"
	"golang.org/x/sys/unix"
)

func init() {
	Modes["@fuse"] = helperFuse
	Modes["@dead-end"] = helperDeadEnd
	Modes["@at-dead-end"] = helperAtDeadEnd
	Modes["@in-dead-end"] = helperInDeadEnd
}

// A DeadEnd is what a leftover sits on, and the process that serves it until it is stopped.
type DeadEnd struct {
	t       *testing.T
	name    string
	Command []string // makes the leftover, and waits for a line
	server  *exec.Cmd
	given   *os.File       // what the command has as descriptor 4
	master  *os.File       // of a terminal
	Flushed *bufio.Scanner // a line for each close that the server leaves unanswered
	aborted sync.Once
}

func NewDeadEnd(t *testing.T, name string) *DeadEnd {
	t.Helper()
	need.Root(t, "to mount a file system")
	e := &DeadEnd{t: t, name: name, Command: Mode("dead-end", name, t.TempDir())}
	if strings.Contains(name, "terminal") {
		e.given, e.master = Terminal(t)
		return e
	}
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	need.That(t, err == nil, "/dev/fuse (FUSE)")
	e.given = os.NewFile(uintptr(fd), "/dev/fuse")
	args := Mode("fuse", name)
	e.server = exec.Command(args[0], args[1:]...)
	e.server.ExtraFiles = []*os.File{e.given}
	// A test that is killed leaves nobody on this machine waiting: ps(1) too reads command lines.
	e.server.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	flushed, err := e.server.StdoutPipe()
	if err == nil {
		started := make(chan error)
		lasting() <- func() { started <- e.server.Start() }
		err = <-started
	}
	e.Flushed = bufio.NewScanner(flushed)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Abort)
	return e
}

// lasting takes calls for a thread that never ends: a parent death signal comes when the thread that forked has ended, and
// other tests end theirs.
var lasting = sync.OnceValue(func() chan<- func() {
	calls := make(chan func())
	go func() {
		runtime.LockOSThread()
		for call := range calls {
			call()
		}
	}()
	return calls
})

// Fifo returns a FIFO of the file system, whose server has been stopped since, open for reading and writing. The mount is
// seen by nobody else.
func (e *DeadEnd) Fifo() *os.File {
	e.t.Helper()
	dir, opened, over := e.t.TempDir(), make(chan error), make(chan bool)
	var fd int
	go func() {
		runtime.LockOSThread() // the thread exits with its namespace, and with it the server, if it started the server
		err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS)
		if err == nil {
			err = unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
		}
		if err == nil {
			err = unix.Mount("fini-e2e", dir, "fuse", 0, fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", e.given.Fd()))
		}
		if err == nil {
			fd, err = unix.Open(dir+"/fifo", unix.O_RDWR|unix.O_CLOEXEC, 0)
		}
		opened <- err
		<-over
	}()
	e.t.Cleanup(func() { close(over) })
	if err := <-opened; err != nil {
		e.t.Fatal(err)
	}
	fifo := os.NewFile(uintptr(fd), "fifo")
	e.t.Cleanup(func() { _ = fifo.Close() })
	_ = e.given.Close()
	e.Halt()
	return fifo
}

// Halt stops the server, from which nobody gets an answer then.
func (e *DeadEnd) Halt() {
	e.t.Helper()
	if err := e.server.Process.Signal(syscall.SIGSTOP); err != nil {
		e.t.Fatal(err)
	}
	Until(e.t, "the server is stopped", func() bool { return strings.HasPrefix(ProcStatus(e.server.Process.Pid, "State"), "T") })
}

// Start starts a fini with the command.
func (e *DeadEnd) Start(fini *exec.Cmd) *Life {
	e.t.Helper()
	fini.ExtraFiles = []*os.File{e.given}
	l := StartCmd(e.t, fini)
	_ = e.given.Close()
	e.t.Cleanup(e.Abort) // before it is waited for fini
	return l
}

// Stop stops the server once the leftover of the command of a fini is ready for that.
func (e *DeadEnd) Stop(l *Life, fini int, waits bool) (leftover int) {
	e.t.Helper()
	main := ChildrenOf(e.t, fini)[0]
	leftover = ChildrenOf(e.t, main)[0]
	if e.name == "executable" {
		Until(e.t, "the program runs", func() bool {
			return ProcStatus(leftover, "Name") == "program" && strings.HasPrefix(ProcStatus(leftover, "State"), "S")
		})
	}
	if e.server != nil {
		e.Halt()
	}
	if e.name == "terminal that hung up" {
		_ = e.master.Close()
	}
	Write(e.t, l, "go on\n")
	if waits {
		Until(e.t, "the leftover waits", func() bool {
			states, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", leftover))
			for _, thread := range states {
				text, _ := os.ReadFile(thread + "/wchan")
				for _, at := range []string{"folio_wait_bit", "wait_on_page_bit", "__lock_page", "request_wait_answer", "wait_woken"} {
					if strings.HasPrefix(string(text), at) { // a compiler may append to a function's name
						return true
					}
				}
			}
			return err != nil
		})
	}
	return leftover
}

// Abort ends the server, with which the kernel fails all that waits for it.
func (e *DeadEnd) Abort() {
	e.aborted.Do(func() {
		if e.server != nil {
			_ = e.server.Process.Kill()
			_ = e.server.Wait()
		}
	})
}

// helperDeadEnd mounts the file system, if there is one, starts the leftover, passes a line of
// stdin on to it, and ends with 5 after the next.
func helperDeadEnd(args []string) int {
	runtime.LockOSThread() // which alone gets the mount namespace, and all that it starts
	name, dir := args[0], args[1]
	argv := Mode("at-dead-end", name, dir)
	leftover := exec.Command(argv[0], argv[1:]...)
	leftover.Stdout, leftover.Stderr, leftover.ExtraFiles = os.Stdout, os.Stderr, []*os.File{os.NewFile(3, "witness")}
	leftover.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	given := os.NewFile(4, "given")
	unix.CloseOnExec(4) // the server alone keeps the connection
	if strings.Contains(name, "terminal") {
		leftover.ExtraFiles = append(leftover.ExtraFiles, given)
		leftover.SysProcAttr.Setctty, leftover.SysProcAttr.Ctty = true, 4
	} else {
		if err := mountDeadEnd(dir); err != nil {
			fmt.Fprintln(os.Stderr, "@dead-end:", err)
			return 1
		}
	}
	tell, err := leftover.StdinPipe()
	if err == nil {
		err = leftover.Start()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "@dead-end:", err)
		return 1
	}
	_ = given.Close()
	lines := bufio.NewReader(os.Stdin)
	line, _ := lines.ReadString('\n')
	_, _ = tell.Write([]byte(line))
	_, _ = lines.ReadString('\n')
	return 5
}

// mountDeadEnd mounts the file system of which descriptor 4 is the connection, for this thread and what it starts.
func mountDeadEnd(dir string) error {
	err := unix.Unshare(unix.CLONE_NEWNS)
	if err == nil {
		err = unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
	}
	if err == nil {
		err = unix.Mount("fini-e2e", dir, "fuse", 0, "fd=4,rootmode=40000,user_id=0,group_id=0")
	}
	return err
}

// helperInDeadEnd mounts the file system, and becomes a command in its root directory.
func helperInDeadEnd(args []string) int {
	runtime.LockOSThread()
	unix.CloseOnExec(4)
	err := mountDeadEnd(args[0])
	if err == nil {
		err = unix.Chdir(args[0])
	}
	if err == nil {
		err = unix.Exec(args[1], args[1:], os.Environ())
	}
	fmt.Fprintln(os.Stderr, "@in-dead-end:", err)
	return 1
}

// helperAtDeadEnd is the leftover. It says "ready" when it has what its name says, and does what
// waits for the server, if anything, once it has read a line.
func helperAtDeadEnd(args []string) int {
	name, dir := args[0], args[1]
	must := func(err error) {
		if err != nil {
			fmt.Fprintln(os.Stderr, "@at-dead-end:", name, err)
			os.Exit(1)
		}
	}
	mapped := func(flags, prot int) []byte {
		fd, err := unix.Open(dir+"/program", flags|unix.O_CLOEXEC, 0)
		must(err)
		m, err := unix.Mmap(fd, 0, programSize, prot, unix.MAP_SHARED)
		must(err)
		return m
	}
	must(os.WriteFile("/proc/self/comm", []byte(Silent[0]), 0))
	then := func() {}
	switch name {
	case "working directory":
		must(unix.Chdir(dir))
	case "root directory":
		must(unix.Chroot(dir))
		must(unix.Chdir("/"))
	case "executable":
		fmt.Println("ready")
		must(unix.Exec(dir+"/program", []string{"program", "1000"}, os.Environ()))
	case "mapped file":
		m := mapped(unix.O_RDONLY, unix.PROT_READ)
		fmt.Fprintln(io.Discard, m[0])
	case "descriptor", "close":
		fd, err := unix.Open(dir+"/program", unix.O_RDONLY, 0)
		must(err)
		if name == "close" {
			then = func() { _ = unix.Close(fd) }
		}
	case "page fault":
		m := mapped(unix.O_RDONLY, unix.PROT_READ)
		then = func() { fmt.Println(m[programSize/2]) }
	case "lock of its mappings":
		// What replaces a mapping with changed pages writes them first, under mmap_lock.
		m := mapped(unix.O_RDWR, unix.PROT_READ|unix.PROT_WRITE)
		m[0] = 1
		then = func() {
			_, _ = unix.MmapPtr(-1, 0, unsafe.Pointer(&m[0]), 4096, unix.PROT_READ, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_FIXED)
		}
	case "full terminal":
		then = func() {
			for {
				_, _ = unix.Write(4, make([]byte, 4096))
			}
		}
	case "terminal that hung up":
		signal.Ignore(syscall.SIGHUP)
	}
	fmt.Println("ready")
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
	then()
	time.Sleep(1000 * time.Second)
	return 0
}

// Silent are the names of processes of which some never answer who reads their environment.
var Silent = []string{"dead end", "program"}

// programSize is how large the file is that is served: sleep(1) and what follows it.
const programSize = 8 << 20

// helperFuse serves a file system with one file, "program", and a FIFO, "fifo", to who has mounted it with
// descriptor 3. See include/uapi/linux/fuse.h of the kernel.
func helperFuse(args []string) int {
	content, err := os.ReadFile("/bin/sleep")
	if err != nil || len(content) > programSize {
		fmt.Fprintln(os.Stderr, "@fuse: /bin/sleep:", err)
		return 1
	}
	content = append(content, make([]byte, programSize-len(content))...)
	const root, program, fifo = 1, 2, 3
	const forever = 1 << 30 // seconds that the kernel may go by a name; by attributes it may not
	put32, put64 := binary.NativeEndian.PutUint32, binary.NativeEndian.PutUint64
	get32, get64 := binary.NativeEndian.Uint32, binary.NativeEndian.Uint64
	attr := func(node uint64) []byte { // struct fuse_attr
		a := make([]byte, 88)
		put64(a, node)
		put32(a[60:], syscall.S_IFDIR|0o755)
		put32(a[64:], 1)
		switch node {
		case fifo:
			put32(a[60:], syscall.S_IFIFO|0o600)
		case program:
			put64(a[8:], programSize)
			put32(a[60:], syscall.S_IFREG|0o755)
		}
		return a
	}
	request := make([]byte, 1<<20)
	for {
		n, err := unix.Read(3, request)
		switch err {
		case nil:
		case unix.EINTR, unix.ENOENT: // the caller was interrupted
			continue
		case unix.EPERM: // it is not mounted yet
			time.Sleep(time.Millisecond)
			continue
		default: // the file system is gone
			return 0
		}
		in, body := request[:40], request[40:n] // struct fuse_in_header
		node := get64(in[16:])
		var errno syscall.Errno
		var out []byte
		switch get32(in[4:]) {
		case 26: // FUSE_INIT
			out = make([]byte, 64)
			put32(out, 7)
			put32(out[4:], 31)
			put32(out[8:], 64<<10) // max_readahead
			put32(out[12:], 1)     // FUSE_ASYNC_READ
			put32(out[20:], 64<<10)
			put32(out[24:], 1)
		case 1: // FUSE_LOOKUP
			found := map[string]uint64{"program\x00": program, "fifo\x00": fifo}[string(body)]
			if node != root || found == 0 {
				errno = unix.ENOENT
				break
			}
			out = make([]byte, 40)
			put64(out, found)
			put64(out[16:], forever)
			out = append(out, attr(found)...)
		case 3, 4: // FUSE_GETATTR, FUSE_SETATTR
			out = append(make([]byte, 16), attr(node)...)
		case 14, 27: // FUSE_OPEN, FUSE_OPENDIR
			out = make([]byte, 16)
			if args[0] != "close" && args[0] != "execve" {
				put32(out[8:], 1<<5) // FOPEN_NOFLUSH: a close asks nothing
			}
		case 15: // FUSE_READ
			from := min(get64(body[8:]), programSize)
			out = content[from:min(from+uint64(get32(body[16:])), programSize)]
		case 16: // FUSE_WRITE
			out = make([]byte, 8)
			put32(out, get32(body[16:]))
		case 25: // FUSE_FLUSH
			if args[0] == "execve" {
				fmt.Println("flush")
				continue
			}
			errno = unix.ENOSYS
		case 34: // FUSE_ACCESS: chdir(2) asks each time, unless there is no such call
			if args[0] != "fini's directory" {
				errno = unix.ENOSYS
			}
		case 18, 28, 29: // FUSE_RELEASE, FUSE_READDIR, FUSE_RELEASEDIR
		case 2, 42: // FUSE_FORGET, FUSE_BATCH_FORGET: no answer is wanted
			continue
		default:
			errno = unix.ENOSYS
		}
		answer := make([]byte, 16, 16+len(out)) // struct fuse_out_header
		put32(answer, uint32(16+len(out)))
		put32(answer[4:], uint32(-int32(errno)))
		copy(answer[8:16], in[8:16])
		_, _ = unix.Write(3, append(answer, out...))
	}
}
