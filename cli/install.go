package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
)

// Install copies this binary to path, which has it whole or not at all: the copy is made in
// the same directory and takes the name when it is on the disk. A link there is replaced, and
// so is a binary that is being executed.
func Install(path string) error {
	switch info, err := os.Stat(path); {
	case path == "":
		return cannotWrite(path, syscall.ENOENT)
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
	defer func() { _ = from.Close() }()
	dir, _ := filepath.Split(path)
	if dir == "" {
		dir = "." // and not that of temporary files
	}
	// It takes a moment, in which nobody's request to end leaves a part of it behind.
	signal.Ignore(syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM)
	to, err := os.CreateTemp(dir, ".fini-")
	if err != nil {
		return cannotWrite(path, err)
	}
	_, err = io.Copy(to, from)
	if err == nil {
		err = to.Chmod(0o755) // whatever the umask is
	}
	if err == nil {
		err = to.Sync()
	}
	if err = errors.Join(err, to.Close()); err == nil {
		err = os.Rename(to.Name(), path)
	}
	if err != nil {
		_ = os.Remove(to.Name())
		return cannotWrite(path, err)
	}
	return nil
}

// cannotWrite leaves out what package os says of the temporary file.
func cannotWrite(path string, err error) error {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		err = errno
	}
	return fmt.Errorf("cannot write %q: %w", path, err)
}

// self opens this binary. Without /proc it is the file that it was called by, if that was by a
// path.
func self() (*os.File, error) {
	file, err := os.Open("/proc/self/exe")
	if err != nil && strings.Contains(os.Args[0], "/") {
		return os.Open(os.Args[0])
	}
	return file, err
}
