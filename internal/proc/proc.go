// Package proc reads files in /proc for all of fini. It also finds out what this kernel
// supports. It makes no decisions, and never follows a link.
package proc

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Files reads files below a directory, for a single thread and with a buffer of fixed size.
type Files struct {
	Dir  int // descriptor of a directory such as /proc, or -1 if it can't be used
	Buf  []byte
	Step func() // called before each system call that may hang; may be nil
}

// In returns Files for the directory dir. If dir is AT_FDCWD, files are named by their full paths.
func In(dir int) Files { return Files{Dir: dir, Buf: make([]byte, 4<<10)} }

// Mounted opens /proc, and reports whether it belongs to the PID namespace of this process. The /proc of another
// namespace would show other processes.
func Mounted() (dir int, own bool, err error) {
	dir, err = unix.Open("/proc", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, false, fmt.Errorf("cannot open /proc: %w", err)
	}
	f := In(dir)
	return dir, f.Link("self") == strconv.Itoa(unix.Getpid()), nil
}

// Name returns the kernel's name for a process, or "" if it is unknown or if reading it may hang. See proc_pid_comm(5).
func Name(pid int) string {
	if HidesProcesses() {
		return ""
	}
	f := In(unix.AT_FDCWD)
	text, _ := f.Read("/proc/" + strconv.Itoa(pid) + "/comm")
	return string(bytes.TrimSuffix(text, []byte("\n")))
}

// ParentOf returns the parent of a process, even of a zombie. It returns 0 if that is unknown or if reading it may
// hang.
func ParentOf(pid int) int {
	var text [4096]byte
	parent := ParentNow(pid, &text, false) // first without a file, because a zombie may be reaped at any moment
	if parent == 0 && !HidesProcesses() {
		parent = ParentNow(pid, &text, true)
	}
	return parent
}

// Adopted reports whether the sessions prove that child was reparented to parent. A process is in the session of its
// parent unless one of the two has created a session later, which it then leads. PID 1 is an exception because it
// creates its session before it starts a process. See credentials(7) and setsid(2).
func Adopted(child, session, parent, parentSession int) bool {
	return session != child && session != parentSession && (parentSession != parent || parent == 1)
}

// A Status contains fields of /proc/PID/status. See proc_pid_status(5).
type Status struct {
	Name                  string
	State                 byte
	TGID                  int // thread group: the pid of the process
	Parent, Threads, User int
	Code                  string // size of the program, or "" if the process has no memory
	Descriptors           int    // size of the descriptor table, 0 once the process has begun to exit, or -1 if unknown
	Ignored               uint64 // signals; bit n-1 is signal n
}

// InExec reports whether a process whose program has this size is inside execve(2). The size is 0 until that call
// returns.
func InExec(code string) bool { return strings.TrimSpace(code) == "0 kB" }

// Status returns the status of a process.
func (f *Files) Status(pid int) (Status, error) {
	s, err := f.StatusIn(strconv.Itoa(pid))
	if err == nil && s.TGID != 0 && s.TGID != pid {
		err = unix.ESRCH // gVisor lists threads like processes
	}
	return s, err
}

// StatusIn returns the status of the process or thread with the given directory.
func (f *Files) StatusIn(dir string) (s Status, err error) {
	s = Status{User: -1, Descriptors: -1}
	err = f.Each(dir+"/status", '\n', MaxText, func(line []byte, _ bool) (more bool) {
		// Newlines in a name are escaped, so a name can't imitate another field.
		name, value, _ := bytes.Cut(line, []byte(":\t"))
		s.set(string(name), value)
		return string(name) != "SigIgn" // the last field that is needed
	})
	if err == nil && s.State == 0 {
		err = fmt.Errorf("cannot read the status of %s", dir)
	}
	return s, err
}

var unescape = strings.NewReplacer(`\\`, `\`, `\n`, "\n")

func (s *Status) set(name string, value []byte) {
	number := func() int {
		n, _ := strconv.Atoi(string(value))
		return n
	}
	switch name {
	case "Name":
		s.Name = unescape.Replace(string(value))
	case "State":
		s.State = append(value, 0)[0]
	case "Tgid":
		s.TGID = number()
	case "PPid":
		s.Parent = number()
	case "Uid":
		if ids := strings.Fields(string(value)); len(ids) == 4 { // real, effective, saved and file system
			s.User, _ = strconv.Atoi(ids[1])
		}
	case "FDSize":
		s.Descriptors = number()
	case "SigIgn":
		s.Ignored, _ = strconv.ParseUint(string(value), 16, 64)
	case "VmExe":
		s.Code = string(value)
	case "Threads":
		s.Threads = number()
	}
}

// Read returns the first 4 KiB of a file, which is enough for all callers.
func (f *Files) Read(name string) ([]byte, error) { return f.Whole(name, 1) }

// ReadPids reads /proc/PID/task/TID/children, where each pid is followed by a space.
func (f *Files) ReadPids(name string) (pids []int, err error) {
	err = f.Each(name, ' ', math.MaxInt, func(field []byte, _ bool) (more bool) {
		if pid, err := strconv.Atoi(string(field)); err == nil && pid > 0 {
			pids = append(pids, pid)
		}
		return true
	})
	return pids, err
}

// MaxText limits how much is read from a long file.
const MaxText = 1 << 20

// Each calls the function visit for each part of a file, until it returns false or limit bytes have been read. A part
// ends with a given byte. If a part doesn't fit into the buffer or doesn't end, visit receives only its beginning, and
// whole is false.
func (f *Files) Each(name string, end byte, limit int, visit func(part []byte, whole bool) (more bool)) error {
	fd, err := f.open(name, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	kept, cut := 0, false // cut: visit has received the beginning of a long part
	for {
		f.step()
		n, err := unix.Read(fd, f.Buf[kept:])
		if err != nil {
			return err
		}
		limit -= n
		text := f.Buf[:kept+n]
		for whole := true; whole; {
			var part, after []byte
			part, after, whole = bytes.Cut(text, []byte{end})
			if !whole && n > 0 && len(text) < len(f.Buf) {
				break // the rest of this part has not been read yet
			}
			if !cut && !visit(part, whole) {
				return nil
			}
			text, cut = after, !whole
		}
		if n == 0 || limit <= 0 {
			return nil
		}
		kept = copy(f.Buf, text)
	}
}

// List calls the function visit for each directory entry that is a number, until it returns false.
func (f *Files) List(name string, visit func(int) bool) error {
	fd, err := f.open(name, unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	buf := make([]byte, 4<<10) // not f.Buf, because visit may call List too
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

// Link is like Readlink, but returns "" for an error.
func (f *Files) Link(name string) string {
	text, err := f.Readlink(name)
	if err != nil {
		return ""
	}
	return text
}

// Readlink returns the text of a link. It does not follow the link, so it accesses no other file system.
func (f *Files) Readlink(name string) (string, error) {
	f.step()
	n, err := unix.Readlinkat(f.Dir, name, f.Buf)
	if err == nil && n == len(f.Buf) {
		err = unix.ENAMETOOLONG
	}
	return string(f.Buf[:max(n, 0)]), err
}

// An Opened is what a descriptor refers to, or the reason why that is unknown. The zero Opened is unknown.
type Opened struct {
	text  string
	known bool
	why   error
}

// Text returns the text of the link in /proc/PID/fd, such as "pipe:[4711]". It returns "" if the descriptor is not
// open, or if the text is too long for a pipe or a socket. If the text is unknown, the error says why.
func (o Opened) Text() (string, error) {
	if !o.known {
		return "", cmp.Or(o.why, errors.New("it was not read"))
	}
	return o.text, nil
}

// Descriptor returns what a descriptor of the process with directory dir refers to. A process that may list descriptors
// may not always read their links. Listing requires permission for the directory, for which CAP_DAC_OVERRIDE is enough,
// but reading requires permission to trace the process. See proc_pid_fd(5).
func (f *Files) Descriptor(dir string, fd int) Opened {
	text, err := f.Readlink(dir + "/fd/" + strconv.Itoa(fd))
	switch {
	case err == nil:
		return Opened{text: text, known: true}
	case IsGone(err), err == unix.ENAMETOOLONG:
		return Opened{known: true}
	}
	return Opened{why: err}
}

// Whole returns the text of a file. It reads 4 KiB at a time until it has at least limit bytes.
func (f *Files) Whole(name string, limit int) (text []byte, err error) {
	fd, err := f.open(name, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = unix.Close(fd) }()
	for n := 1; n > 0 && err == nil && len(text) < limit; {
		f.step()
		n, err = unix.Read(fd, f.Buf)
		text = append(text, f.Buf[:max(n, 0)]...)
	}
	return text, err
}

func (f *Files) open(name string, flags int) (int, error) {
	f.step()
	return unix.Openat(f.Dir, name, unix.O_RDONLY|unix.O_CLOEXEC|flags, 0)
}

func (f *Files) step() {
	if f.Step != nil {
		f.Step()
	}
}

// Tick is the unit of times in /proc/PID/stat. It is 1/USER_HZ, and USER_HZ is 100 on every architecture that fini
// supports. See proc_pid_stat(5).
const Tick = 10 * time.Millisecond

// ParseStart returns the time from boot to the start of a process, given its /proc/PID/stat. It returns 0 if unknown.
func ParseStart(text []byte) time.Duration {
	start, _ := ticks(text, 22)
	return start
}

// ParseCPU returns the processor time that a process has used, given its /proc/PID/stat. It returns -1 if unknown.
func ParseCPU(text []byte) time.Duration {
	user, ok := ticks(text, 14)
	system, ok2 := ticks(text, 15)
	if !ok || !ok2 {
		return -1
	}
	return user + system
}

// ParseExiting reports whether a process or thread has begun to exit, given its stat file. It may have closed its files
// by then, although it is not a zombie yet.
func ParseExiting(text []byte) bool {
	const exiting = 4 // PF_EXITING in the kernel's include/linux/sched.h
	flags, _ := statField(text, 9)
	return flags&exiting != 0
}

// ticks returns a time from /proc/PID/stat by the field's number in the man page.
func ticks(text []byte, number int) (time.Duration, bool) {
	n, ok := statField(text, number)
	if !ok || n > uint64(1<<63-1)/uint64(Tick) {
		return 0, false
	}
	return time.Duration(n) * Tick, true
}

// statField returns a number from /proc/PID/stat. It counts fields from the last ")", because the process name before
// that may contain spaces, newlines and ")".
func statField(text []byte, number int) (uint64, bool) {
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:]) // the first is number 3, the state
	if len(fields) <= number-3 {
		return 0, false
	}
	n, err := strconv.ParseUint(string(fields[number-3]), 10, 63)
	return n, err == nil
}

// Stream returns unix.S_IFIFO for a pipe, unix.S_IFSOCK for a socket, and 0 for anything else. It doesn't use fstat(2),
// which may hang because it accesses the file system. For an O_PATH descriptor, only the link shows the kind.
func Stream(fd int) uint32 {
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETPIPE_SZ, 0); err == nil {
		return unix.S_IFIFO
	}
	if _, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE); err == nil {
		return unix.S_IFSOCK
	}
	text, _ := OwnDescriptor(fd).Text()
	switch {
	case strings.HasPrefix(text, "pipe:["):
		return unix.S_IFIFO
	case strings.HasPrefix(text, "socket:["):
		return unix.S_IFSOCK
	}
	return 0
}

// OwnDescriptor returns what a descriptor of this process refers to.
func OwnDescriptor(fd int) Opened {
	f := In(unix.AT_FDCWD)
	return f.Descriptor("/proc/self", fd)
}

// PtyMaster is the kind of a pseudoterminal's master. Opening /dev/ptmx again would create another terminal.
const PtyMaster = 1

// Kind returns the kind of file that a descriptor of this process refers to, as a file type of inode(7) or PtyMaster.
// It may hang unless the file is a Stream.
func Kind(fd int) (uint32, error) {
	if stream := Stream(fd); stream != 0 {
		return stream, nil
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return 0, err
	}
	if st.Mode&unix.S_IFMT == unix.S_IFCHR {
		if _, err := unix.IoctlGetInt(fd, unix.TIOCGPTN); err == nil {
			return PtyMaster, nil
		}
	}
	return st.Mode & unix.S_IFMT, nil
}

// IsGone reports whether an error for a file in /proc means that the process has ended.
func IsGone(err error) bool { return err == unix.ENOENT || err == unix.ESRCH }

// HidesProcesses reports whether /proc is mounted with hidepid (see proc(5)). The kernel then takes exec_update_lock to
// check whether the reader may see the process, so reading any file may hang.
var HidesProcesses = sync.OnceValue(func() (hides bool) {
	f := In(unix.AT_FDCWD)
	_ = f.Each("/proc/self/mountinfo", '\n', MaxText, func(line []byte, _ bool) (more bool) {
		fields := strings.Fields(string(line))
		if len(fields) > 5 && fields[4] == "/proc" { // the last mount counts
			hides = strings.Contains(fields[len(fields)-1], "hidepid=")
		}
		return true
	})
	return hides
})

// Release returns the kernel release, or "" if uname(2) fails.
func Release() string {
	var name unix.Utsname
	if unix.Uname(&name) != nil {
		return ""
	}
	return unix.ByteSliceToString(name.Release[:])
}

// Autoreap reports whether this kernel may support CLONE_AUTOREAP.
func Autoreap() bool { return hasAutoreap(Release()) }

// hasAutoreap reports whether a kernel release may support CLONE_AUTOREAP, which was added in 7.1. It returns true if
// the release is unknown.
func hasAutoreap(release string) bool {
	numbers := strings.FieldsFunc(release, func(r rune) bool { return r < '0' || r > '9' })
	if len(numbers) < 2 {
		return true
	}
	x, _ := strconv.Atoi(numbers[0])
	y, _ := strconv.Atoi(numbers[1])
	return x > 7 || x == 7 && y >= 1
}
