package report

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-126c5d8a/fini/internal/files"
	"github.com/seed-126c5d8a/fini/internal/proc"
)

// A Place is where a report is written to. fini opens it before the main child starts and writes to it once, at the
// end. If the tree renames or replaces the file in the meantime, the report still reaches the opened file.
//
// An existing file keeps its owner, mode and ACL. It keeps its contents if fini is killed before it writes the report.
// Open refuses symbolic links and files with several names, because a user without write permission for the target may
// have created the link. See package files. It refuses a file that is also a standard stream of the command. Like
// write, it refuses a file that contains anything but an earlier report, because the name may have been given by
// mistake.
//
// A stream is an inherited descriptor. It remains open until the report is written, so its reader receives EOF only
// then.
type Place struct {
	FD   int // the heir receives a copy
	Path string
}

// Open opens a regular file, or an inherited descriptor if path is "-", /dev/stdout, /dev/stderr or /dev/fd/N. closed
// says which standard streams were closed when fini started, because /dev/null is open in their place now.
func Open(path string, closed [3]bool) (Place, error) {
	fd, isStream := descriptor(path)
	var err error
	switch {
	case isStream && fd >= 0 && fd < len(closed) && closed[fd]:
		err = unix.EBADF
	case isStream:
		fd, err = openStream(fd)
	default:
		fd, err = openFile(path)
	}
	if err != nil {
		return Place{}, cannotWrite(path, err)
	}
	return Place{fd, path}, nil
}

// isXML reports whether the report is to be written as JUnit XML, which depends on the file name.
func (p Place) isXML() bool {
	return !p.IsStream() && strings.EqualFold(filepath.Ext(p.Path), ".xml")
}

func cannotWrite(path string, err error) error {
	return fmt.Errorf("--report: cannot write %q: %w", path, err)
}

// descriptor parses a path that names a descriptor. It accepts /proc/self/fd/N too, because some shells pass such names
// for process substitutions.
func descriptor(path string) (fd int, ok bool) {
	if fd, ok = map[string]int{"-": 1, "/dev/stdout": 1, "/dev/stderr": 2}[path]; ok {
		return fd, true
	}
	number, ok := strings.CutPrefix(path, "/dev/fd/")
	if !ok {
		number, ok = strings.CutPrefix(path, "/proc/self/fd/")
	}
	fd, err := strconv.Atoi(number)
	if err != nil {
		fd = -1
	}
	return fd, ok
}

// IsStream reports whether the place is a stream, where a failed write can't be undone.
func (p Place) IsStream() bool {
	_, isStream := descriptor(p.Path)
	return isStream
}

// openFile opens a regular file for writing and creates it if necessary.
func openFile(path string) (int, error) {
	fd, err := files.Open(path, unix.O_RDWR|unix.O_CREAT, func(st *unix.Stat_t) error {
		return cmp.Or(wrongFile(st), standardStream(st))
	})
	if dir := filepath.Dir(path); err == unix.ENOENT && dir != "." {
		return -1, fmt.Errorf("%w; mkdir -p %s makes the directory", err, dir)
	}
	if err == nil {
		if err = replaceable(fd); err != nil {
			_ = unix.Close(fd)
		}
	}
	return fd, err
}

// standardStream returns an error if the file is also open as a standard stream, which the command inherits.
func standardStream(st *unix.Stat_t) error {
	for fd, name := range []string{"stdin", "stdout", "stderr"} {
		var stream unix.Stat_t
		switch {
		case unix.Fstat(fd, &stream) != nil || stream.Dev != st.Dev || stream.Ino != st.Ino:
		case fd == 0:
			return errors.New("the command reads it as stdin: name another file")
		default:
			return fmt.Errorf("it is the command's %s: name another file, or /dev/%[1]s to append the report", name)
		}
	}
	return nil
}

// xmlMark is the beginning of every XML report. It is followed by the version of fini.
const xmlMark = `<?xml version="1.0" encoding="UTF-8"?>` + "\n<!-- fini "

// replaceable returns an error unless the file is empty or contains a report. Reports begin in a way that other JSON
// and XML files, such as package.json, don't.
func replaceable(fd int) error {
	var begin [128]byte
	n, err := unix.Pread(fd, begin[:], 0)
	if err != nil || n == 0 {
		return err
	}
	text := string(begin[:n])
	rest, isJSON := strings.CutPrefix(text, "{\n  \"version\": ")
	isJSON = isJSON && strings.HasPrefix(strings.TrimLeft(rest, "0123456789"), ",\n  \"fini\": \"")
	if isJSON || strings.HasPrefix(text, xmlMark) {
		return nil
	}
	return errors.New("it holds something other than a report of fini: remove it, or name another file")
}

// wrongFile returns the reason why fini refuses a file, or nil if it is suitable.
func wrongFile(st *unix.Stat_t) error {
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return wrongKind(st.Mode)
	case st.Nlink > 1:
		return fmt.Errorf("it has %d names (hard links)", st.Nlink)
	}
	return nil
}

// wrongKind returns the error for a file type that can't hold a report. See inode(7) for the types.
func wrongKind(mode uint32) error {
	what := map[uint32]string{
		unix.S_IFDIR: "a directory", unix.S_IFIFO: "a FIFO", unix.S_IFSOCK: "a socket",
		unix.S_IFCHR: "a device", unix.S_IFBLK: "a block device", unix.S_IFLNK: "a symbolic link",
	}[mode&unix.S_IFMT]
	return fmt.Errorf("it is %s: want a regular file, - or /dev/fd/N", cmp.Or(what, "no regular file"))
}

// openStream duplicates a descriptor that the main child inherits as well. The duplicate remains open when
// entry.CloseInherited closes the original.
func openStream(fd int) (int, error) {
	// A close-on-exec descriptor was opened by this process itself, so the user can't mean it.
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
	mode, _ := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err != nil || flags&unix.FD_CLOEXEC != 0 || mode&unix.O_PATH != 0 || mode&unix.O_ACCMODE == unix.O_RDONLY {
		return -1, unix.EBADF
	}
	kind, err := proc.Kind(fd)
	if err != nil {
		return -1, err
	}
	switch kind {
	case unix.S_IFREG, unix.S_IFSOCK, unix.S_IFIFO, proc.PtyMaster:
		return unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3)
	case unix.S_IFCHR:
		own, err := files.Own(fd)
		if err != nil {
			err = fmt.Errorf("it can't be opened again, to be written without waiting: %w", err)
		}
		return own, err
	}
	return -1, wrongKind(kind)
}

// write writes text and closes the place. If it fails, a named file is left empty rather than with part of a report. On
// a file system that hangs, write blocks. A separate thread would not help, because a process can't exit while one of
// its threads is in uninterruptible sleep.
func (p Place) write(text []byte) error {
	if p.IsStream() {
		return cmp.Or(writeAll(p.FD, text), unix.Close(p.FD))
	}
	var st unix.Stat_t
	if err := unix.Fstat(p.FD, &st); err != nil {
		return err
	}
	if st.Nlink == 0 {
		return errors.New("it was removed meanwhile")
	}
	if err := cmp.Or(files.Named(p.FD), replaceable(p.FD)); err != nil {
		return err
	}
	// Don't truncate the file first, because ext4 would then flush it to disk on close. See auto_da_alloc in ext4(5).
	_, err := unix.Seek(p.FD, 0, 0)
	if err == nil {
		err = writeAll(p.FD, text)
	}
	if err == nil {
		err = unix.Ftruncate(p.FD, int64(len(text)))
	}
	if err != nil {
		_ = unix.Ftruncate(p.FD, 0)
	}
	return cmp.Or(err, unix.Close(p.FD))
}

// patience is how long writeAll waits for the reader of a stream.
const patience = 5 * time.Second

func writeAll(fd int, text []byte) error {
	end := time.Now().Add(patience)
	for len(text) > 0 {
		n, err := files.WriteNow(fd, text)
		text = text[max(n, 0):]
		left := int(time.Until(end) / time.Millisecond)
		switch {
		case err == nil || err == unix.EINTR:
			continue
		case err != unix.EAGAIN:
			return err
		case left <= 0:
			return fmt.Errorf("nobody read it within %v", patience)
		}
		// poll(2) may return at once although the text does not fit, so pause to avoid a busy loop.
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
		if n, _ := unix.Poll(fds, left); n > 0 {
			_, _ = unix.Poll(nil, 10)
		}
	}
	return nil
}
