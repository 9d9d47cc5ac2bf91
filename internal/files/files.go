// Package files opens every file that fini writes to by name, such as a report or the copy that --install makes. When
// root runs fini, a directory in such a path may belong to another user, who must not be able to choose what root
// overwrites. Package files also writes to streams without waiting for a reader.
package files

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/seed-126c5d8a/fini/internal/calls"
)

// maxLinks is how many symbolic links a path may contain. See path_resolution(7).
const maxLinks = 40

// Open opens a file for writing if check accepts it. It checks before it opens, because opening a device may have side
// effects. Open never blocks and never follows a symbolic link at the end of path. For root, it also refuses symbolic
// links in the directories of path if another user may have created them.
func Open(path string, flags int, check func(*unix.Stat_t) error) (int, error) {
	dir, name, err := folder(path)
	if err != nil {
		return -1, err
	}
	defer calls.Close(dir)
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
	if err = unix.Fstat(fd, &st); err == nil { // the file may have been replaced in the meantime
		err = cmp.Or(check(&st), Named(fd))
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// Named returns an error if fd was opened under a name that has been removed since. A link count of 1 doesn't rule that
// out, because the name may have been a second link to another user's file. Without /proc, Named returns nil.
func Named(fd int) error {
	text := make([]byte, 2*unix.PathMax)
	n, err := unix.Readlink("/proc/self/fd/"+strconv.Itoa(fd), text)
	if err == nil && strings.HasSuffix(string(text[:n]), " (deleted)") {
		return errors.New("it was removed meanwhile")
	}
	return nil
}

// folder opens the directory of path, for openat(2) and similar calls, and returns it with the rest of the path. For
// root it walks the path one directory at a time and checks every symbolic link before following it. For any other user
// it leaves that to the kernel, because this process can only write what this user may write anyway.
func folder(path string) (dir int, name string, err error) {
	dir = unix.AT_FDCWD
	if unix.Geteuid() != 0 {
		return dir, path, nil
	}
	for links := 0; ; {
		name, rest, more := strings.Cut(path, "/")
		switch {
		case !more:
			return dir, cmp.Or(name, "."), nil // path ends with a slash
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
			calls.Close(dir)
			return -1, "", err
		}
		if target == "" {
			calls.Close(dir)
			dir = next
		}
	}
}

// into opens a directory. If name is a symbolic link, it returns the link's target instead. It refuses the links in
// /proc, because they lead directly to a file rather than to the name that they show.
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
	defer calls.Close(link)
	var around, st unix.Stat_t
	var system unix.Statfs_t
	text := make([]byte, unix.PathMax)
	err = cmp.Or(unix.Fstatat(dir, ".", &around, 0), unix.Fstat(link, &st), unix.Fstatfs(link, &system))
	switch {
	case err != nil:
		return -1, "", err
	case st.Mode&unix.S_IFMT != unix.S_IFLNK:
		return -1, "", unix.ENOTDIR
	case st.Uid != 0, around.Uid != 0, around.Mode&0o022 != 0 && around.Mode&unix.S_ISVTX == 0,
		system.Type == unix.PROC_SUPER_MAGIC:
		return -1, "", fmt.Errorf("%s is a link that another user may have put there", name)
	}
	n, err := unix.Readlinkat(link, "", text)
	return -1, string(text[:max(n, 0)]), err
}
