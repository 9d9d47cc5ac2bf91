// Package files opens every file that fini writes by its name: the report, the summary of a CI step, and the copy of
// --install. If root runs fini, the folders of such a path may belong to others, who must not choose what root writes. It also
// writes to standard error and other streams, without waiting for a reader.
package files

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/seed-126c5d8a/fini/internal/proc"
)

// maxLinks is how many links a path may contain, as in path_resolution(7).
const maxLinks = 40

// Open opens a file for writing, if check accepts the kind of file, because opening a device may trigger an action of
// the device. It doesn't wait, whatever the file is. It never follows a link at the end of the path. For root it also
// refuses a link in the folders of the path that another user may have put there.
func Open(path string, flags int, check func(*unix.Stat_t) error) (int, error) {
	dir, name, err := folder(path)
	if err != nil {
		return -1, err
	}
	defer proc.Close(dir)
	var st unix.Stat_t
	if unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil {
		if err := check(&st); err != nil {
			return -1, err
		}
	}
	const always = unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_NOCTTY | unix.O_CLOEXEC
	fd, err := unix.Openat(dir, name, flags|always, 0o666)
	if err != nil {
		return -1, err
	}
	if err = unix.Fstat(fd, &st); err == nil { // another file may have got the name meanwhile
		err = cmp.Or(check(&st), Named(fd))
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// Named returns an error if the name by which fd was opened has been removed. A link count of 1 says less: the name may have
// been a second one, for a file to which others may not write, and removed between open and fstat(2). No name comes back
// to a descriptor. Without /proc, Named finds nothing wrong.
func Named(fd int) error {
	text := make([]byte, 2*unix.PathMax)
	n, err := unix.Readlink("/proc/self/fd/"+strconv.Itoa(fd), text)
	if err == nil && strings.HasSuffix(string(text[:n]), " (deleted)") {
		return errors.New("it was removed meanwhile")
	}
	return nil
}

// folder returns what the *at calls need for a path: a reference to its folder, and the name in the folder. For root it
// goes from folder to folder, and sees each link before it follows it. For any other user the kernel resolves the path,
// because this process can then write only what this user may write.
func folder(path string) (dir int, name string, err error) {
	dir = unix.AT_FDCWD
	if unix.Geteuid() != 0 {
		return dir, path, nil
	}
	for links := 0; ; {
		name, rest, more := strings.Cut(path, "/")
		switch {
		case !more:
			return dir, cmp.Or(name, "."), nil // "." after a slash at the end
		case name == "":
			name = "/"
		}
		path = strings.TrimLeft(rest, "/")
		next, target, err := into(dir, name)
		if target != "" {
			path = target + "/" + path
			if links++; links > maxLinks {
				err = unix.ELOOP
			}
		}
		if err != nil {
			proc.Close(dir)
			return -1, "", err
		}
		if target == "" {
			proc.Close(dir)
			dir = next
		}
	}
}

// into goes into a folder or, if the name is that of a link, returns the link's target. A link of /proc leads to a file
// itself, whatever is at its target.
func into(dir int, name string) (next int, target string, err error) {
	const reference = unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC
	next, err = unix.Openat(dir, name, reference|unix.O_DIRECTORY, 0)
	if err != unix.ENOTDIR {
		return next, "", err
	}
	link, err := unix.Openat(dir, name, reference, 0)
	if err != nil {
		return -1, "", err
	}
	defer proc.Close(link)
	var around, st unix.Stat_t
	var system unix.Statfs_t
	text := make([]byte, unix.PathMax)
	err = cmp.Or(unix.Fstatat(dir, ".", &around, 0), unix.Fstat(link, &st), unix.Fstatfs(link, &system))
	switch {
	case err != nil:
		return -1, "", err
	case st.Mode&unix.S_IFMT != unix.S_IFLNK:
		return -1, "", unix.ENOTDIR
	case st.Uid != 0, around.Uid != 0, around.Mode&0o022 != 0 && around.Mode&unix.S_ISVTX == 0, system.Type == unix.PROC_SUPER_MAGIC:
		return -1, "", fmt.Errorf("%s is a link that another user may have put there", name)
	}
	n, err := unix.Readlinkat(link, "", text)
	return -1, string(text[:max(n, 0)]), err
}
