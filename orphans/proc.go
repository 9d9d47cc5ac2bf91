package orphans

import (
	"bytes"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// This file reads and parses /proc, in a buffer that does not grow.

// files are the files below /proc, as one thread reads them.
type files struct {
	proc   int // descriptor of /proc, -1 if it can't be used
	buf    []byte
	reader *reader // nil if the caller itself reads
}

func filesIn(proc int) files { return files{proc: proc, buf: make([]byte, 4<<10)} }

// dir is the directory of a process below /proc. If the first thread has ended, dir is the directory of another thread,
// because the directory of the process no longer shows its files.
func (p Process) dir() string {
	if p.thread == 0 || p.thread == p.Pid {
		return strconv.Itoa(p.Pid)
	}
	return strconv.Itoa(p.Pid) + "/task/" + strconv.Itoa(p.thread)
}

// Name is the name of a process, "" if it is unknown, or if a read of it may wait. See proc_pid_comm(5).
func Name(pid int) string {
	if hidesProcesses() {
		return ""
	}
	f := filesIn(unix.AT_FDCWD)
	text, _ := f.read("/proc/" + strconv.Itoa(pid) + "/comm")
	return string(bytes.TrimSuffix(text, []byte("\n")))
}

// ParentOf is the parent of a process, 0 if it is unknown, or if a read of it may wait. A zombie has one, too.
func ParentOf(pid int) int {
	// Raw calls, which do not wait, because every microsecond counts: a zombie may be reaped.
	if fd, _, errno := unix.RawSyscall(unix.SYS_PIDFD_OPEN, uintptr(pid), 0, 0); errno == 0 {
		var info unix.PidfdInfo
		_, _, errno = unix.RawSyscall(unix.SYS_IOCTL, fd, unix.PIDFD_GET_INFO, uintptr(unsafe.Pointer(&info)))
		_ = unix.Close(int(fd))
		if errno == 0 { // from Linux 6.13 on
			return int(info.Ppid)
		}
	}
	if hidesProcesses() {
		return 0
	}
	f := filesIn(unix.AT_FDCWD)
	s, _ := f.statusIn("/proc/" + strconv.Itoa(pid))
	return s.parent
}

// A status holds fields of /proc/PID/status. See proc_pid_status(5).
type status struct {
	name                  string
	state                 byte
	group                 int // of threads: the pid of the process
	parent, threads, user int
	code                  string // the size of the program, "" if it has no memory
}

// inExec reports whether a process with this size of its program is inside execve(2): it has no code until the call
// returns.
func inExec(code string) bool { return strings.TrimSpace(code) == "0 kB" }

func (f *files) status(pid int) (status, error) {
	s, err := f.statusIn(strconv.Itoa(pid))
	if err == nil && s.group != 0 && s.group != pid {
		err = unix.ESRCH // it is a thread: in gVisor threads are listed like processes
	}
	return s, err
}

// statusIn is the status of the process or thread that has the directory dir.
func (f *files) statusIn(dir string) (s status, err error) {
	s = status{user: -1}
	err = f.each(dir+"/status", '\n', maxText, func(line []byte, _ bool) (more bool) {
		// In a name newlines are escaped, so that none looks like a field.
		name, value, _ := bytes.Cut(line, []byte(":\t"))
		s.set(string(name), value)
		return string(name) != "Threads" // the last wanted field
	})
	if err == nil && s.state == 0 {
		err = fmt.Errorf("cannot read the status of %s", dir)
	}
	return s, err
}

var unescape = strings.NewReplacer(`\\`, `\`, `\n`, "\n")

func (s *status) set(name string, value []byte) {
	number := func() int {
		n, _ := strconv.Atoi(string(value))
		return n
	}
	switch name {
	case "Name":
		s.name = unescape.Replace(string(value))
	case "State":
		s.state = append(value, 0)[0]
	case "Tgid":
		s.group = number()
	case "PPid":
		s.parent = number()
	case "Uid":
		if ids := strings.Fields(string(value)); len(ids) == 4 { // real, effective, saved and file system
			s.user, _ = strconv.Atoi(ids[1])
		}
	case "VmExe":
		s.code = string(value)
	case "Threads":
		s.threads = number()
	}
}

// read returns the first 4 KiB of a file below /proc, which hold everything that callers look for.
// The text is valid until the next read.
func (f *files) read(name string) ([]byte, error) {
	fd, err := f.open(name, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = unix.Close(fd) }()
	f.step()
	n, err := unix.Read(fd, f.buf)
	return f.buf[:max(n, 0)], err
}

// readPids reads the text of /proc/PID/task/TID/children: pids, each followed by a space.
func (f *files) readPids(name string) (pids []int, err error) {
	err = f.each(name, ' ', math.MaxInt, func(field []byte, _ bool) (more bool) {
		if pid, err := strconv.Atoi(string(field)); err == nil && pid > 0 {
			pids = append(pids, pid)
		}
		return true
	})
	return pids, err
}

const maxText = 1 << 20 // bytes read of a file that may be long

// each calls visit with each part of the first limit bytes of a file below /proc, until it returns false; the byte end
// follows each part. If a part has no room in the buffer, or no end, visit gets its beginning, and whole is false.
func (f *files) each(name string, end byte, limit int, visit func(part []byte, whole bool) (more bool)) error {
	fd, err := f.open(name, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	kept, cut := 0, false // cut: visit has got the beginning of a long part
	for {
		f.step()
		n, err := unix.Read(fd, f.buf[kept:])
		if err != nil {
			return err
		}
		limit -= n
		text := f.buf[:kept+n]
		for whole := true; whole; {
			var part, after []byte
			part, after, whole = bytes.Cut(text, []byte{end})
			if !whole && n > 0 && len(text) < len(f.buf) {
				break // the rest of the part is yet to be read
			}
			if !cut && !visit(part, whole) {
				return nil
			}
			text, cut = after, !whole
		}
		if n == 0 || limit <= 0 {
			return nil
		}
		kept = copy(f.buf, text)
	}
}

// list calls visit with each entry of a directory below /proc that is a number, until it
// returns false.
func (f *files) list(name string, visit func(int) bool) error {
	fd, err := f.open(name, unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	buf := make([]byte, 4<<10) // each call has its own buffer, because visit may call list too
	for {
		f.step()
		n, err := unix.ReadDirent(fd, buf)
		if err != nil || n <= 0 {
			return err
		}
		_, _, names := unix.ParseDirent(buf[:n], -1, nil)
		for _, name := range names {
			if number, err := strconv.Atoi(name); err == nil && !visit(number) {
				return nil
			}
		}
	}
}

// link is the text of a link below /proc, "" if it can't be read. link does not follow the link, and so asks
// no other file system.
func (f *files) link(name string) string {
	f.step()
	n, err := unix.Readlinkat(f.proc, name, f.buf)
	if err != nil || n == len(f.buf) {
		return ""
	}
	return string(f.buf[:n])
}

func (f *files) open(name string, flags int) (int, error) {
	f.step()
	return unix.Openat(f.proc, name, unix.O_RDONLY|unix.O_CLOEXEC|flags, 0)
}

func (f *files) step() {
	if f.reader != nil {
		f.reader.thread.Store(int64(unix.Gettid()))
		f.reader.steps.Add(1)
	}
}

// tick is the unit of the times in /proc/PID/stat: 1/USER_HZ, which is 100 on
// every architecture that fini is built for. See proc_pid_stat(5).
const tick = 10 * time.Millisecond

// parseStart is the time at which a process started, since boot, in the text of /proc/PID/stat; 0 if it is unknown. The name in the text may hold
// spaces, newlines and ")", so parseStart counts the fields from the last ")".
func parseStart(text []byte) time.Duration {
	// fields[0] is field 3 of the man page, the state.
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	if len(fields) < 20 {
		return 0
	}
	start, err := strconv.ParseUint(string(fields[22-3]), 10, 63)
	if err != nil || start > uint64(1<<63-1)/uint64(tick) {
		return 0
	}
	return time.Duration(start) * tick
}
