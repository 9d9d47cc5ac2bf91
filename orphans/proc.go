package orphans

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// This file reads and parses /proc, in a buffer that does not grow.

// files are the files below /proc, as one thread reads them.
type files struct {
	proc   int // descriptor of /proc, -1 if it can't be used
	buf    []byte
	reader *reader // nil if the caller itself reads
}

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
	return string(bytes.TrimSuffix(readAtOnce("/proc/"+strconv.Itoa(pid)+"/comm"), []byte("\n")))
}

// readAtOnce reads the beginning of a file of the kernel. The read never waits.
func readAtOnce(name string) []byte {
	fd, err := unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	defer func() { _ = unix.Close(fd) }()
	text := make([]byte, 256)
	n, _ := unix.Read(fd, text)
	return text[:max(n, 0)]
}

// A status holds fields of /proc/PID/status. See proc_pid_status(5).
type status struct {
	name                  string
	state                 byte
	group                 int // of threads: the pid of the process
	parent, threads, user int
	uids, gids            string // real, effective, saved and file system, with tabs between
	code                  string // the size of the program, "" if it has no memory
}

// inExec reports whether a process is inside execve(2): it has no code until the call returns.
func (s status) inExec() bool { return strings.TrimSpace(s.code) == "0 kB" }

func (f *files) status(pid int) (status, error) {
	s, err := f.statusIn(strconv.Itoa(pid))
	if err == nil && s.group != 0 && s.group != pid {
		err = fmt.Errorf("%d is a thread of %d", pid, s.group) // in gVisor threads are listed like processes
	}
	return s, err
}

// statusIn is the status of the process or thread that has the directory dir.
func (f *files) statusIn(dir string) (s status, err error) {
	s = status{user: -1}
	err = f.fields(dir, func(name, value []byte) (more bool) {
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
		s.uids = string(value)
		if ids := strings.Fields(s.uids); len(ids) == 4 {
			s.user, _ = strconv.Atoi(ids[1])
		}
	case "Gid":
		s.gids = string(value)
	case "VmExe":
		s.code = string(value)
	case "Threads":
		s.threads = number()
	}
}

// fields calls visit with the fields in the status of a process, until it returns false.
func (f *files) fields(dir string, visit func(name, value []byte) (more bool)) error {
	const long = 1 << 10 // only the line of supplementary groups, at most 65536, may be longer
	return f.scan(dir+"/status", func(text []byte, _ bool) int {
		for {
			line, rest, whole := bytes.Cut(text, []byte("\n"))
			switch {
			case !whole && len(text) > long:
				return 0
			case !whole:
				return len(text)
			}
			// In a name newlines are escaped, so that none looks like a field.
			if name, value, ok := bytes.Cut(line, []byte(":\t")); ok && !visit(name, value) {
				return -1
			}
			text = rest
		}
	})
}

// read returns the first 4 KiB of a file below /proc, which hold everything that callers look for.
// The text is valid until the next read.
func (f *files) read(name string) (text []byte, err error) {
	err = f.scan(name, func(all []byte, _ bool) int {
		text = all
		return len(all)
	})
	if err != nil {
		return nil, err
	}
	return text, nil
}

// readPids reads a file of pids below /proc, of any length.
func (f *files) readPids(name string) (pids []int, err error) {
	err = f.scan(name, func(text []byte, end bool) int {
		whole := len(text)
		if !end {
			whole = bytes.LastIndexByte(text, ' ') + 1
		}
		pids = append(pids, parsePids(text[:whole])...)
		return len(text) - whole
	})
	return pids, err
}

// scan reads a file below /proc and calls take after each read with the text in the buffer: the last keep
// bytes of the call before, and then the new bytes. At the end of the file the text is the kept bytes alone.
// scan also ends if take keeps the whole of a full buffer, or returns less than 0.
func (f *files) scan(name string, take func(text []byte, end bool) (keep int)) error {
	fd, err := f.open(name, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	for n := 0; ; {
		f.step()
		got, err := unix.Read(fd, f.buf[n:])
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		n += got
		keep := take(f.buf[:n], got == 0)
		if got == 0 || keep < 0 || keep == len(f.buf) {
			return nil
		}
		n = copy(f.buf, f.buf[n-keep:n])
	}
}

// each calls visit with each part of the first limit bytes of a file below /proc; the byte end follows each part.
// If a part has no room in the buffer, or no end, visit gets its beginning, and whole is false.
func (f *files) each(name string, end byte, limit int, visit func(part []byte, whole bool)) error {
	total, kept, cut := 0, 0, false // cut: visit has got the beginning of a long part
	return f.scan(name, func(text []byte, over bool) int {
		total += len(text) - kept
		for kept = 0; ; {
			part, after, whole := bytes.Cut(text, []byte{end})
			long := len(text) == len(f.buf)
			if !whole && !over && !long && total < limit {
				kept = len(text)
				return kept
			}
			if !cut && (whole || over || long) {
				visit(part, whole)
			}
			if cut = !whole; cut {
				if total >= limit {
					return -1
				}
				return 0
			}
			text = after
		}
	})
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

// startOf is the time at which a process started, since boot; 0 if it is unknown.
func (f *files) startOf(dir string) time.Duration {
	text, err := f.read(dir + "/stat")
	if err != nil {
		return 0
	}
	return parseStart(text)
}

// parseStart reads the start time in the text of /proc/PID/stat. The name in the text may hold
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

// parsePids reads the text of /proc/PID/task/TID/children: pids, each followed by
// a space.
func parsePids(text []byte) []int {
	var pids []int
	for _, field := range bytes.Fields(text) {
		if pid, err := strconv.Atoi(string(field)); err == nil && pid > 0 {
			pids = append(pids, pid)
		}
	}
	return pids
}
