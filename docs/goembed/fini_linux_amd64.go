// Package fini embeds fini, for a program that can't rely on an installed one. Copy this file and fini-linux-amd64 from
// a release into a package of yours. A copy of it named fini_linux_arm64.go embeds fini-linux-arm64.
package fini

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

//go:embed fini-linux-amd64
var binary []byte

// Path returns the path of the binary, for use as in exec.Command(path, "-k", "5s", "--", "server"). It writes the
// binary to the user's cache directory, unless it is there already. The file name contains a checksum.
func Path() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "fini")
	path := filepath.Join(dir, fmt.Sprintf("fini-%x", sha256.Sum256(binary)))
	if content, err := os.ReadFile(path); err == nil && bytes.Equal(content, binary) {
		return path, nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	temporary, err := write(dir)
	if err == nil {
		err = os.Rename(temporary, path)
	}
	return path, err
}

// write writes the binary under a temporary name, because another program may write and execute it at the same time. No
// process may be started until the file is closed. It would inherit the descriptor for a moment, and the kernel doesn't
// execute a file that is open for writing.
func write(dir string) (name string, err error) {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	f, err := os.CreateTemp(dir, "new-*")
	if err != nil {
		return "", err
	}
	_, err = f.Write(binary)
	if err = errors.Join(err, f.Chmod(0o700), f.Close()); err != nil {
		os.Remove(f.Name())
	}
	return f.Name(), err
}
