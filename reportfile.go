package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-126c5d8a/fini/signals"
)

// A reportFile is where a report goes. It is opened before the command starts, so that nothing
// that the tree does to names, or fini's own chdir, leads the report elsewhere:
//
//	what the path names                          what is opened        how it is written
//	a regular file, a symbolic link, or nothing  its directory         a new file, renamed over it
//	a fifo, a character device                   that inode            the inode is opened for writing
//	a descriptor of this process                 a duplicate           as it is
//
// A directory, a socket and a block device are refused. What is opened keeps its file system from
// being unmounted, as the report is to go there.
type reportFile struct {
	dir  int    // an O_PATH reference of the directory
	name string // in dir
	node int    // an O_PATH reference of a fifo or a character device, or -1
	fd   int    // a duplicate of an inherited descriptor, or -1
	mode int    // the permissions of a file of this user's that is replaced, or -1
}

// openReportFile opens what path names. An error says that the report can't be written.
func openReportFile(path string) (*reportFile, error) {
	f := &reportFile{node: -1, fd: -1, mode: -1}
	if number, ok := descriptor(path); ok {
		var err error
		f.fd, err = duplicate(number)
		return f, err
	}
	dir, name := filepath.Split(path) // as it stands: a/../ needs an a
	f.name = name
	var err error
	if f.dir, err = unix.Open(cmp.Or(dir, "."), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err != nil {
		return nil, err
	}
	if name == "" {
		return nil, unix.EISDIR
	}
	fd, err := unix.Openat(f.dir, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err == unix.ENOENT {
		return f, f.try()
	}
	if err != nil {
		return nil, err
	}
	kind, err := fileType(fd)
	switch {
	case err != nil:
		return nil, err
	case kind == unix.S_IFREG || kind == unix.S_IFLNK:
		f.mode = ownMode(fd)
		_ = unix.Close(fd)
		return f, f.try()
	case kind == unix.S_IFSOCK:
		return nil, errors.New("it is a socket")
	}
	// Opening a device can start something, and closing a fifo ends its reader's input: so
	// whether this can be written is asked, not tried.
	f.node = fd
	return f, unix.Faccessat(f.dir, name, unix.W_OK, unix.AT_EACCESS)
}

// fileType is the file type of a descriptor, or why no report can go there. See inode(7).
func fileType(fd int) (uint32, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return 0, err
	}
	switch kind := st.Mode & unix.S_IFMT; kind {
	case unix.S_IFDIR:
		return 0, unix.EISDIR
	case unix.S_IFBLK:
		return 0, errors.New("it is a block device")
	default:
		return kind, nil
	}
}

// ownMode is the permissions of a regular file that belongs to this user, or -1.
func ownMode(fd int) int {
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFREG || int(st.Uid) != os.Geteuid() {
		return -1
	}
	return int(st.Mode & 0o777)
}

// descriptor reports whether a path names a descriptor of this process, and which.
func descriptor(path string) (fd string, ok bool) {
	switch path {
	case "/dev/stdin":
		return "0", true
	case "/dev/stdout":
		return "1", true
	case "/dev/stderr":
		return "2", true
	}
	if fd, ok = strings.CutPrefix(path, "/dev/fd/"); ok {
		return fd, true
	}
	return strings.CutPrefix(path, "/proc/self/fd/")
}

// duplicate returns a duplicate of a descriptor that the command inherits, which CloseInherited closes.
func duplicate(number string) (int, error) {
	fd, err := strconv.Atoi(number)
	if err != nil {
		return -1, unix.ENOENT
	}
	// What this process has opened itself is closed on exec, and not meant.
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
	mode, _ := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err != nil || flags&unix.FD_CLOEXEC != 0 || mode&unix.O_PATH != 0 || mode&unix.O_ACCMODE == unix.O_RDONLY {
		return -1, unix.EBADF
	}
	if _, err := fileType(fd); err != nil {
		return -1, err
	}
	return unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3)
}

// temporaryName is a name for a file that gets its own when it is whole. As PID 1 every fini has the
// same pid, and one that was killed may have left its file.
func temporaryName() string {
	return fmt.Sprintf(".fini-%d-%x", os.Getpid(), time.Now().UnixNano())
}

// create creates a new file in the directory, under a name that follows no link.
func (f *reportFile) create() (fd int, name string, err error) {
	name = temporaryName()
	fd, err = unix.Openat(f.dir, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, 0o666)
	return fd, name, err
}

// try creates a file and removes it: permissions, a read-only file system and quotas have more
// rules than access(2) knows. To keep it for the report would leave it behind if fini is killed.
func (f *reportFile) try() error {
	fd, name, err := f.create()
	if err != nil {
		return err
	}
	_ = unix.Close(fd)
	return unix.Unlinkat(f.dir, name, 0)
}

// write writes text, whole or not at all if it makes a file. It waits reportPatience in all for
// the reader of a pipe or a socket and for a terminal. A file system that hangs is waited for:
// another thread could be given up on, but the runtime aborts if it can't make one, and a process
// does not end while one of its threads is in uninterruptible sleep.
func (f *reportFile) write(text []byte) error {
	// Nobody sent the signals that a write raises, and SIGTTOU would raise itself for ever.
	var own, before unix.Sigset_t
	for _, sig := range []unix.Signal{unix.SIGPIPE, unix.SIGTTOU, unix.SIGXFSZ} {
		own.Val[0] |= 1 << (sig - 1)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.PthreadSigmask(unix.SIG_BLOCK, &own, &before); err != nil {
		return err
	}
	defer func() { _ = unix.PthreadSigmask(unix.SIG_SETMASK, &before, nil) }()
	switch {
	case f.fd >= 0:
		return writeAll(f.fd, text)
	case f.node >= 0:
		fd, err := f.reopen()
		if err != nil {
			return err
		}
		defer func() { _ = unix.Close(fd) }()
		return writeAll(fd, text)
	}
	return f.replace(text)
}

// replace puts a file with text in the place of what has the name: of a link too, and of a fifo
// that was put there meanwhile. What was private stays private.
func (f *reportFile) replace(text []byte) error {
	fd, name, err := f.create()
	if err != nil {
		return err
	}
	if f.mode >= 0 {
		err = unix.Fchmod(fd, uint32(f.mode))
	}
	if err == nil {
		err = writeAll(fd, text)
	}
	if closeErr := unix.Close(fd); err == nil {
		err = closeErr
	}
	if err == nil {
		err = unix.Renameat(f.dir, name, f.dir, f.name)
	}
	if err != nil {
		_ = unix.Unlinkat(f.dir, name, 0)
	}
	return err
}

// reopen opens the fifo or character device for writing, and nothing that has its name since. A
// fifo without a reader is an error and not waited for.
func (f *reportFile) reopen() (int, error) {
	const flags = unix.O_WRONLY | unix.O_NONBLOCK | unix.O_NOCTTY | unix.O_CLOEXEC
	fd, err := unix.Open("/proc/self/fd/"+strconv.Itoa(f.node), flags, 0)
	if err != unix.ENOENT {
		return fd, err
	}
	// There is no /proc. What has the name is written if it is the same inode.
	if fd, err = unix.Openat(f.dir, f.name, flags|unix.O_NOFOLLOW, 0); err != nil {
		return -1, err
	}
	var meant, opened unix.Stat_t
	err = cmp.Or(unix.Fstat(f.node, &meant), unix.Fstat(fd, &opened))
	if err == nil && (meant.Dev != opened.Dev || meant.Ino != opened.Ino || meant.Mode&unix.S_IFMT != opened.Mode&unix.S_IFMT) {
		err = errors.New("something else has its name by now")
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// The writing of a report waits no longer than this, in all.
const reportPatience = 5 * time.Second

// writeAll writes to a file, a pipe, a socket or a terminal.
func writeAll(fd int, text []byte) error {
	kind, err := fileType(fd)
	if err != nil {
		return err
	}
	for end := time.Now().Add(reportPatience); len(text) > 0; {
		left := max(time.Until(end), 0)
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
		switch n, err := unix.Poll(fds, int(left/time.Millisecond)); {
		case err == unix.EINTR:
			continue
		case err != nil:
			return err
		case n == 0 || left == 0:
			return fmt.Errorf("it was not taken within %v", reportPatience)
		}
		// A pipe that can be written to has room for this much. See PIPE_BUF in pipe(7).
		switch n, err := writePage(fd, kind, text[:min(len(text), 4096)]); err {
		case nil:
			text = text[n:]
		case unix.EINTR, unix.EAGAIN:
		default:
			return err
		}
	}
	return nil
}

// writePage writes to a pipe or a socket without waiting, for another writer may have taken the
// room. The file description is shared, so it stays in blocking mode.
func writePage(fd int, kind uint32, page []byte) (int, error) {
	if kind == unix.S_IFIFO || kind == unix.S_IFSOCK {
		if n, can, err := signals.WriteAtOnce(fd, page); can {
			return n, err
		}
	}
	return unix.Write(fd, page)
}
