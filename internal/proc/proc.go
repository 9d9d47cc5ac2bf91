// Package proc is the one reader of the kernel's files, those of /proc and of the cgroup file system. It also knows
// what this kernel supports. It never decides, and never follows a link.
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

// Files are the files below a directory, as one thread reads them, in a buffer that does not grow.
type Files struct {
	Dir  int // descriptor of the directory, such as /proc; -1 if it can't be used
	Buf  []byte
	Step func() // is called before each call that may wait; may be nil
}

// In are the files below a directory. With AT_FDCWD they are named by their whole path.
func In(dir int) Files { return Files{Dir: dir, Buf: make([]byte, 4<<10)} }

// Name is the name of a process, "" if it is unknown, or if a read of it may wait. See proc_pid_comm(5).
func Name(pid int) string {
	if HidesProcesses() {
		return ""
	}
	f := In(unix.AT_FDCWD)
	text, _ := f.Read("/proc/" + strconv.Itoa(pid) + "/comm")
	return string(bytes.TrimSuffix(text, []byte("\n")))
}

// ParentOf is the parent of a process, 0 if it is unknown, or if a read of it may wait. A zombie has one, too.
func ParentOf(pid int) int {
	var text [4096]byte
	parent := ParentNow(pid, &text, false) // first, because every microsecond counts: a zombie may be reaped
	if parent == 0 && !HidesProcesses() {
		parent = ParentNow(pid, &text, true)
	}
	return parent
}

// Adopted reports whether the sessions prove that parent has inherited child from a process that has exited.
// A child is in the session of its parent, unless the child leads a session, or the parent has made a session since,
// which the parent leads. PID 1 has made its session before it starts a process. See credentials(7), setsid(2).
func Adopted(child, session, parent, parentSession int) bool {
	return session != child && session != parentSession && (parentSession != parent || parent == 1)
}

// A Status holds fields of /proc/PID/status. See proc_pid_status(5).
type Status struct {
	Name                  string
	State                 byte
	Group                 int // of threads: the pid of the process
	Parent, Threads, User int
	Code                  string // the size of the program, "" if it has no memory
	Descriptors           int    // how many there is room for, 0 once the process has begun to exit; -1 if unknown
	Ignored               uint64 // signals: bit n-1 is signal n
}

// InExec reports whether a process whose program has this size is inside execve(2), because the size is 0 until the
// call returns.
func InExec(code string) bool { return strings.TrimSpace(code) == "0 kB" }

// Status is the status of a process.
func (f *Files) Status(pid int) (Status, error) {
	s, err := f.StatusIn(strconv.Itoa(pid))
	if err == nil && s.Group != 0 && s.Group != pid {
		err = unix.ESRCH // it is a thread: in gVisor threads are listed like processes
	}
	return s, err
}

// StatusIn is the status of the process or thread that has the directory dir.
func (f *Files) StatusIn(dir string) (s Status, err error) {
	s = Status{User: -1, Descriptors: -1}
	err = f.Each(dir+"/status", '\n', MaxText, func(line []byte, _ bool) (more bool) {
		// In a name newlines are escaped, so that none looks like a field.
		name, value, _ := bytes.Cut(line, []byte(":\t"))
		s.set(string(name), value)
		return string(name) != "SigIgn" // the last wanted field
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
		s.Group = number()
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

// Read returns the first 4 KiB of a file below /proc, which hold everything that callers look for.
func (f *Files) Read(name string) ([]byte, error) { return f.Whole(name, 1) }

// ReadPids reads the text of /proc/PID/task/TID/children: pids, each followed by a space.
func (f *Files) ReadPids(name string) (pids []int, err error) {
	err = f.Each(name, ' ', math.MaxInt, func(field []byte, _ bool) (more bool) {
		if pid, err := strconv.Atoi(string(field)); err == nil && pid > 0 {
			pids = append(pids, pid)
		}
		return true
	})
	return pids, err
}

// MaxText is how many bytes are read of a file that may be long.
const MaxText = 1 << 20

// Each calls visit with each part of the first limit bytes of a file below /proc, until it returns false; the byte end
// follows each part. If a part doesn't fit into the buffer, or doesn't end, visit gets its beginning, and whole is
// false.
func (f *Files) Each(name string, end byte, limit int, visit func(part []byte, whole bool) (more bool)) error {
	fd, err := f.open(name, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	kept, cut := 0, false // cut: visit has got the beginning of a long part
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
		kept = copy(f.Buf, text)
	}
}

// List calls visit with each entry of a directory below /proc that is a number, until it
// returns false.
func (f *Files) List(name string, visit func(int) bool) error {
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

// Link is Readlink, "" for an error.
func (f *Files) Link(name string) string {
	text, err := f.Readlink(name)
	if err != nil {
		return ""
	}
	return text
}

// Readlink is the text of a link below the directory. It does not follow the link, and so asks no other file system.
func (f *Files) Readlink(name string) (string, error) {
	f.step()
	n, err := unix.Readlinkat(f.Dir, name, f.Buf)
	if err == nil && n == len(f.Buf) {
		err = unix.ENAMETOOLONG
	}
	return string(f.Buf[:max(n, 0)]), err
}

// An Opened is what a descriptor of some process refers to, or the reason why that is unknown. The zero Opened is unknown.
type Opened struct {
	text  string
	known bool
	why   error
}

// Text is the text of the link in /proc/PID/fd, such as "pipe:[4711]"; "" if no such descriptor is open, or the text is
// too long for a pipe's or a socket's. An error says why the text is unknown.
func (o Opened) Text() (string, error) {
	if !o.known {
		return "", cmp.Or(o.why, errors.New("it was not read"))
	}
	return o.text, nil
}

// Descriptor is what a descriptor of the process refers to that has the directory dir. A process that may list the
// descriptors may not always read their links: the one needs permission for the directory, which CAP_DAC_OVERRIDE
// gives, the other needs that to trace the process. See proc_pid_fd(5).
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

// Whole is the text of a file. It reads 4 KiB at a time, until it has limit bytes.
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

// Tick is the unit of the times in /proc/PID/stat: 1/USER_HZ, which is 100 on
// every architecture that fini is built for. See proc_pid_stat(5).
const Tick = 10 * time.Millisecond

// ParseStart is the time from boot to the start of a process, in the text of /proc/PID/stat; 0 if it is unknown.
func ParseStart(text []byte) time.Duration {
	start, _ := ticks(text, 22)
	return start
}

// ParseCPU is the processor time that a process has used, in the text of /proc/PID/stat; -1 if it is unknown.
func ParseCPU(text []byte) time.Duration {
	user, ok := ticks(text, 14)
	system, ok2 := ticks(text, 15)
	if !ok || !ok2 {
		return -1
	}
	return user + system
}

// ticks is a field of /proc/PID/stat that is a time, by its number in the man page. The name in the text may hold spaces,
// newlines and ")", so ticks counts the fields from the last ")".
func ticks(text []byte, number int) (time.Duration, bool) {
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:]) // from number 3 on, the state
	if len(fields) <= number-3 {
		return 0, false
	}
	n, err := strconv.ParseUint(string(fields[number-3]), 10, 63)
	if err != nil || n > uint64(1<<63-1)/uint64(Tick) {
		return 0, false
	}
	return time.Duration(n) * Tick, true
}

// Stream is unix.S_IFIFO for a pipe, unix.S_IFSOCK for a socket, and 0 for anything else. It does not ask their file
// system, as fstat(2) does, because that may never answer. Only the link of an O_PATH reference tells.
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

// OwnDescriptor is what a descriptor of this process refers to.
func OwnDescriptor(fd int) Opened {
	f := In(unix.AT_FDCWD)
	return f.Descriptor("/proc/self", fd)
}

// PtyMaster is the kind of the master of a pseudoterminal: whoever opens /dev/ptmx once more gets another terminal.
const PtyMaster = 1

// Kind returns what a descriptor of this process is: a type of file as in inode(7), or PtyMaster. It may wait, unless the
// descriptor is a Stream.
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

// IsGone reports whether an error of a file below /proc means that the process has ended.
func IsGone(err error) bool { return err == unix.ENOENT || err == unix.ESRCH }

// HidesProcesses reports whether /proc is mounted with hidepid: see proc(5). With hidepid the kernel takes
// exec_update_lock to check whether a reader may see the process, so a read of any file may wait.
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

// Release is the release of the kernel, "" if uname(2) fails.
func Release() string {
	var name unix.Utsname
	if unix.Uname(&name) != nil {
		return ""
	}
	return unix.ByteSliceToString(name.Release[:])
}

// Autoreap reports whether this kernel may have CLONE_AUTOREAP: see hasAutoreap.
func Autoreap() bool { return hasAutoreap(Release()) }

// hasAutoreap reports whether a kernel of this release may have CLONE_AUTOREAP, which came
// with 7.1. If the release can't be read, the kernel may be of any release.
func hasAutoreap(release string) bool {
	numbers := strings.FieldsFunc(release, func(r rune) bool { return r < '0' || r > '9' })
	if len(numbers) < 2 {
		return true
	}
	x, _ := strconv.Atoi(numbers[0])
	y, _ := strconv.Atoi(numbers[1])
	return x > 7 || x == 7 && y >= 1
}
