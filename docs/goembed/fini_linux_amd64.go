// Package fini carries fini's binary, for a program that can't rely on an installed one. Copy this file into a package of
// yours, and fini-linux-amd64 of a release beside it. A copy called fini_linux_arm64.go embeds fini-linux-arm64.
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

// Path returns the path of the binary, for exec.Command(path, "-k", "5s", "--", "server"). The binary is in the user's cache
// folder, under its sum. It is written if it is not there, or is not what was embedded.
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

// write writes a file that gets its name when it is whole: another program may do the same, and execute it. No process
// may be started meanwhile. It would inherit the open file for a moment, and the kernel doesn't execute a file that is
// open for writing.
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
