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

// A Place is the destination of a report: one descriptor, which fini opens before the main child starts and writes once,
// at the end. If the tree renames or replaces files in between, the report still goes to the opened file.
//
// fini creates a named file empty, as any program creates it. A file that exists keeps its owner, mode and ACL. If fini
// is killed before it writes the report, the file stays as it was. Open refuses a symbolic link, and a file with
// more than one name: a user who may not write to the target may have put the link there. See package files. It also
// refuses a file that the command reads or writes as a standard stream, and, as write does, a file that holds anything but
// an earlier report: the user may have given the wrong name, or none, so that the next word was taken for it.
//
// A stream is a descriptor that this process inherited. It stays open until fini has written the report, so a reader
// gets its EOF then, and not at the end of the main child.
type Place struct {
	FD   int // the heir gets a copy of it
	Path string
}

// Open opens the place that path names: a regular file or a new one, "-" for standard output, or /dev/stdout,
// /dev/stderr or /dev/fd/N for a descriptor that this process inherited. closed says which standard streams were closed
// when fini started: in their place the Go runtime has opened /dev/null.
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

// isXML reports whether the report goes there in JUnit's XML: by the name of a file.
func (p Place) isXML() bool {
	return !p.IsStream() && strings.EqualFold(filepath.Ext(p.Path), ".xml")
}

func cannotWrite(path string, err error) error {
	return fmt.Errorf("--report: cannot write %q: %w", path, err)
}

// descriptor reports whether a path names a descriptor, and returns the descriptor. Some shells use
// names in /proc for process substitutions.
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

// IsStream reports whether the place is a stream. What was written there stays written.
func (p Place) IsStream() bool {
	_, isStream := descriptor(p.Path)
	return isStream
}

// openFile opens a regular file for writing, and creates it if it does not exist.
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

// standardStream returns an error if a file is also a standard stream of this process and so of the command.
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

// xmlMark is how each report in XML begins. The version of fini follows.
const xmlMark = `<?xml version="1.0" encoding="UTF-8"?>` + "\n<!-- fini "

// replaceable returns an error unless a file is empty or holds a report. A report begins with a mark that other files in
// JSON or XML, such as package.json, lack.
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

// wrongFile is the reason why fini refuses a named file; nil for a good file.
func wrongFile(st *unix.Stat_t) error {
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return wrongKind(st.Mode)
	case st.Nlink > 1:
		return fmt.Errorf("it has %d names", st.Nlink)
	}
	return nil
}

// wrongKind is the error for a file of a kind that can't hold a report. See inode(7) for the kinds.
func wrongKind(mode uint32) error {
	what := map[uint32]string{
		unix.S_IFDIR: "a directory", unix.S_IFIFO: "a FIFO", unix.S_IFSOCK: "a socket",
		unix.S_IFCHR: "a device", unix.S_IFBLK: "a block device", unix.S_IFLNK: "a symbolic link",
	}[mode&unix.S_IFMT]
	return fmt.Errorf("it is %s: want a regular file, - or /dev/fd/N", cmp.Or(what, "no regular file"))
}

// openStream makes a copy of a descriptor that the main child inherits too. CloseInherited of package reaper closes
// the descriptor itself, and not the copy.
func openStream(fd int) (int, error) {
	// A user can't mean a descriptor that this process opened itself. Such a descriptor is close-on-exec.
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

// write writes text, and closes the place. A named file then holds nothing else: no text from before and, if write
// fails, no part of the report. write waits for a file system that hangs. Another thread would not help: a process
// does not exit while one of its threads is in uninterruptible sleep.
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
	// Truncated to nothing first, the file would be flushed to the disk when it is closed: see auto_da_alloc in ext4(5).
	_, err := unix.Seek(p.FD, 0, 0)
	if err == nil {
		err = writeAll(p.FD, text)
	}
	if err = cmp.Or(err, unix.Ftruncate(p.FD, int64(len(text)))); err != nil {
		_ = unix.Ftruncate(p.FD, 0)
	}
	return cmp.Or(err, unix.Close(p.FD))
}

// patience is the longest time to wait for the reader of a stream, in all.
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
			return fmt.Errorf("it was not taken within %v", patience)
		}
		// A stream may have too little room for the text: the pause then avoids a busy loop.
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
		if n, _ := unix.Poll(fds, left); n > 0 {
			_, _ = unix.Poll(nil, 10)
		}
	}
	return nil
}
