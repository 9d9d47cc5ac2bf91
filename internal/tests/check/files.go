package check

import (
	"bytes"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// Linked returns the path of a link to this test binary with another name.
func Linked(t testing.TB, name string) string {
	t.Helper()
	self, err := os.Executable()
	NoError(t, err)
	path := filepath.Join(t.TempDir(), name)
	if os.Link(self, path) == nil {
		return path
	}
	binary, err := os.ReadFile(self)
	if err == nil {
		err = WriteProgram(path, binary, 0o755)
	}
	NoError(t, err)
	return path
}

// ShortTempDir returns a directory for sockets, which need shorter names than t.TempDir provides.
func ShortTempDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "fini-")
	NoError(t, err)
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// Put writes a file, creates its directory if necessary, and returns its name.
func Put(t testing.TB, name, text string, mode os.FileMode) string {
	t.Helper()
	NoError(t, os.MkdirAll(filepath.Dir(name), 0o755))
	NoError(t, WriteProgram(name, []byte(text), mode))
	return name
}

// WriteProgram is like os.WriteFile, but for a program that will be executed. It prevents parallel tests from forking
// while the file is open, because a file that a process has open for writing can't be executed. See ETXTBSY in
// execve(2).
func WriteProgram(path string, text []byte, mode os.FileMode) error {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	return os.WriteFile(path, text, mode)
}

func ReadFile(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	NoError(t, err)
	return string(text)
}

// Socketpair returns the sockets that Node and uvloop use as pipes to a child.
func Socketpair(t testing.TB) (ours, theirs *os.File) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	NoError(t, err)
	ours, theirs = os.NewFile(uintptr(fds[0]), "ours"), os.NewFile(uintptr(fds[1]), "theirs")
	t.Cleanup(func() { _ = ours.Close(); _ = theirs.Close() })
	return ours, theirs
}

func Pipe(t testing.TB) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	NoError(t, err)
	t.Cleanup(func() { _ = r.Close(); _ = w.Close() })
	return r, w
}

// Device opens a device for writing.
func Device(t testing.TB, path string) *os.File {
	t.Helper()
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	NoError(t, err)
	t.Cleanup(func() { _ = file.Close() })
	return file
}

// FillPipe writes to a pipe, a socket or a terminal until it does not accept a single byte more.
func FillPipe(t testing.TB, w *os.File) {
	t.Helper()
	fd := int(w.Fd())
	NoError(t, unix.SetNonblock(fd, true))
	for _, size := range []int{4096, 1} {
		for err := error(nil); err != unix.EAGAIN; _, err = unix.Write(fd, bytes.Repeat([]byte("x"), size)) {
			NoError(t, err)
		}
	}
	NoError(t, unix.SetNonblock(fd, false))
}
