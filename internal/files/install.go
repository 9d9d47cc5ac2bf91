package files

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/seed-126c5d8a/fini/internal/calls"
)

// Install copies this binary to path. It writes to a temporary file in the same directory and renames it when the copy
// is on disk, so path never contains part of a copy. It may replace a symbolic link or a binary that is being executed.
func Install(path string) error {
	dir, name, err := folder(path)
	if err != nil {
		return cannotWrite(path, err)
	}
	defer calls.Close(dir)
	var st unix.Stat_t
	switch err := unix.Fstatat(dir, name, &st, 0); {
	case err != nil:
	case st.Mode&unix.S_IFMT == unix.S_IFDIR:
		return fmt.Errorf("cannot write %q: it is a directory; want the name of a file, as in %s", path,
			filepath.Join(path, "fini"))
	case st.Mode&unix.S_IFMT != unix.S_IFREG: // such as /dev/null, which other programs need
		return fmt.Errorf("cannot write %q: it is no regular file", path)
	}
	binary, err := os.ReadFile("/proc/self/exe")
	if err != nil && strings.Contains(os.Args[0], "/") { // without /proc
		binary, err = os.ReadFile(os.Args[0])
	}
	if err != nil {
		return fmt.Errorf("cannot read this binary: %w", err)
	}
	// Ignore terminating signals, which would leave the temporary file behind.
	signal.Ignore(syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM)
	other := filepath.Join(filepath.Dir(name), ".fini-"+strconv.FormatUint(rand.Uint64(), 10))
	fd, err := unix.Openat(dir, other, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return cannotWrite(path, err)
	}
	to := os.NewFile(uintptr(fd), other)
	_, err = to.Write(binary)
	// Set the mode explicitly because O_CREAT applies the umask.
	if err = errors.Join(err, to.Chmod(0o755), to.Sync(), to.Close()); err == nil {
		err = unix.Renameat(dir, other, dir, name)
	}
	if err != nil {
		_ = unix.Unlinkat(dir, other, 0)
		return cannotWrite(path, err)
	}
	return nil
}

// cannotWrite wraps an error without the name of the temporary file, which errors of package os contain.
func cannotWrite(path string, err error) error {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		err = errno
	}
	return fmt.Errorf("cannot write %q: %w", path, err)
}
