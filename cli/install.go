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

// Install copies this binary to path, whole or not at all: it writes the copy to the same directory, and renames it when
// it is on the disk. A link at path is replaced, and so is a binary that is being executed.
func Install(path string) error {
	switch info, err := os.Stat(path); {
	case err != nil:
	case info.IsDir():
		return fmt.Errorf("cannot write %q: it is a directory; want the name of a file, as in %s", path, filepath.Join(path, "fini"))
	case !info.Mode().IsRegular(): // such as /dev/null, which other programs need
		return fmt.Errorf("cannot write %q: it is no regular file", path)
	}
	from, err := self()
	if err != nil {
		return fmt.Errorf("cannot read this binary: %w", err)
	}
	defer func() { _ = from.Close() }()
	dir, _ := filepath.Split(path)
	if dir == "" {
		dir = "." // CreateTemp would take "" for /tmp
	}
	// A terminating signal would leave a part of the copy behind.
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

// cannotWrite leaves out the name of the temporary file, which the error of package os has.
func cannotWrite(path string, err error) error {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		err = errno
	}
	return fmt.Errorf("cannot write %q: %w", path, err)
}

// self opens this binary. Without /proc it opens the path that fini was started by.
func self() (*os.File, error) {
	file, err := os.Open("/proc/self/exe")
	if err != nil && strings.Contains(os.Args[0], "/") {
		return os.Open(os.Args[0])
	}
	return file, err
}
