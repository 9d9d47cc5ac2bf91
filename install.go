package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// install copies this binary to path, which has it whole or not at all: the copy is made in
// the same directory and takes the name when it is on the disk. A link there is replaced, and
// so is a binary that is being executed.
func install(path string) error {
	failed := func(err error) error { return fmt.Errorf("cannot write %q: %w", path, err) }
	if path == "" {
		return failed(unix.ENOENT)
	}
	switch info, err := os.Stat(path); {
	case err != nil:
	case info.IsDir():
		return fmt.Errorf("cannot write %q: it is a directory; want the name of a file, as in %s", path, filepath.Join(path, "fini"))
	case !info.Mode().IsRegular(): // such as /dev/null, which others need
		return fmt.Errorf("cannot write %q: it is no regular file", path)
	}
	from, err := self()
	if err != nil {
		return fmt.Errorf("cannot read this binary: %w", err)
	}
	defer func() { _ = unix.Close(from) }()

	dir, _ := filepath.Split(path)
	temporary := fmt.Sprintf("%s.fini-%d-%x", dir, os.Getpid(), time.Now().UnixNano())
	to, err := unix.Open(temporary, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o700)
	if err != nil {
		return failed(err)
	}
	if err = copyAll(to, from); err == nil {
		err = unix.Fchmod(to, 0o755) // whatever the umask is
	}
	if err == nil {
		err = unix.Fsync(to)
	}
	if closeErr := unix.Close(to); err == nil {
		err = closeErr
	}
	if err == nil {
		err = unix.Rename(temporary, path)
	}
	if err != nil {
		_ = unix.Unlink(temporary)
		return failed(err)
	}
	return nil
}

// copyAll copies what is left of a file.
func copyAll(to, from int) error {
	buf := make([]byte, 256<<10)
	for {
		n, err := unix.Read(from, buf)
		if err == unix.EINTR {
			continue
		}
		if err != nil || n == 0 {
			return err
		}
		for part := buf[:n]; len(part) > 0; {
			n, err := unix.Write(to, part)
			if err != nil && err != unix.EINTR {
				return err
			}
			part = part[max(n, 0):]
		}
	}
}

// self opens this binary. Without /proc it is the file that it was called by, if that was by a
// path.
func self() (int, error) {
	fd, err := unix.Open("/proc/self/exe", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil && strings.Contains(os.Args[0], "/") {
		fd, err = unix.Open(os.Args[0], unix.O_RDONLY|unix.O_CLOEXEC, 0)
	}
	return fd, err
}
