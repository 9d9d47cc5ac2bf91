package cli

import (
	"errors"
	"fmt"
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
	binary, err := os.ReadFile("/proc/self/exe")
	if err != nil && strings.Contains(os.Args[0], "/") { // without /proc
		binary, err = os.ReadFile(os.Args[0])
	}
	if err != nil {
		return fmt.Errorf("cannot read this binary: %w", err)
	}
	// A terminating signal would leave a part of the copy behind.
	signal.Ignore(syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM)
	to, err := os.CreateTemp(filepath.Dir(path), ".fini-")
	if err != nil {
		return cannotWrite(path, err)
	}
	_, err = to.Write(binary)
	// The mode does not depend on the umask.
	if err = errors.Join(err, to.Chmod(0o755), to.Sync(), to.Close()); err == nil {
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
