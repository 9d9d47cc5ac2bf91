package report

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-126c5d8a/fini/signals"
)

// A place is where a report goes.
type place interface {
	write(text []byte) error
}

// A Place is where a report goes. FD is its descriptor, which another process may take over: see At.
type Place struct {
	FD   int
	path string
	to   place
}

// Open opens the place that path names.
func Open(path string) (p Place, err error) {
	p = Place{FD: -1, path: path}
	if number, ok := descriptor(path); ok {
		s, err := openStream(number)
		if err != nil {
			return p, cannotWrite(path, err)
		}
		p.FD, p.to = s.fd, s
		return p, nil
	}
	f, err := openFile(path)
	if err != nil {
		return p, cannotWrite(path, err)
	}
	p.FD, p.to = f.dir, f
	return p, nil
}

// At is the place that another process has opened by this path and handed over as a descriptor.
func At(path string, fd int) Place {
	p := Place{FD: fd, path: path}
	if _, ok := descriptor(path); !ok {
		f := &file{dir: fd, name: filepath.Base(path)}
		f.old, _, _ = f.look()
		_ = f.try()
		p.to = f
		return p
	}
	s := &stream{fd: fd, writeTo: unix.Write}
	var st unix.Stat_t
	flags, _ := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	switch _ = unix.Fstat(fd, &st); {
	case st.Mode&unix.S_IFMT == unix.S_IFSOCK:
		s.writeTo = writeToSocket
	case st.Mode&unix.S_IFMT == unix.S_IFIFO && flags&unix.O_NONBLOCK == 0:
		s.writeTo = writeAtOnce
	}
	p.to = s
	return p
}

// wrongKind is the error for a file of a kind that no report goes to. See inode(7) for the kinds.
func wrongKind(mode uint32) error {
	what := map[uint32]string{
		unix.S_IFDIR: "a directory", unix.S_IFIFO: "a FIFO", unix.S_IFSOCK: "a socket",
		unix.S_IFCHR: "a device", unix.S_IFBLK: "a block device",
	}[mode&unix.S_IFMT]
	return fmt.Errorf("it is %s: want a regular file, - or /dev/fd/N", cmp.Or(what, "no regular file"))
}

// A file is a regular one: a new one, which gets the name when it is whole, in the place of the regular
// file or symbolic link that has it. The directory is opened before the command starts, so that nothing
// that the tree does to names, or fini's own chdir, leads the report elsewhere. It keeps its file
// system from being unmounted, as the report is to go there.
type file struct {
	dir   int    // an O_PATH reference
	name  string // in dir
	fresh access // what a new file gets there
	old   access // of the file that had the name at the start; none if there was no such file
}

// openFile opens the directory of a path, and fails if no report can be written there.
func openFile(path string) (f *file, err error) {
	dir, name := filepath.Split(path) // as it stands: a/../ needs an a
	f = &file{name: name}
	if f.dir, err = unix.Open(cmp.Or(dir, "."), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err != nil {
		return nil, err
	}
	if name == "" {
		return nil, wrongKind(unix.S_IFDIR)
	}
	kind := uint32(0)
	f.old, kind, err = f.look()
	switch {
	case err == unix.ENOENT || kind == unix.S_IFREG:
	case err != nil:
		return nil, err
	case kind == unix.S_IFLNK && filepath.Clean(dir) == "/dev":
		return nil, wrongKind(unix.S_IFCHR) // such as /dev/stdin and /dev/log
	case kind == unix.S_IFLNK:
	default:
		return nil, wrongKind(kind)
	}
	return f, f.try()
}

// create creates a new file in the directory, under a name that follows no link. As PID 1 every fini has
// the same pid, and one that was killed may have left its file.
func (f *file) create(mode uint32) (fd int, name string, err error) {
	name = fmt.Sprintf(".fini-%d-%x", os.Getpid(), time.Now().UnixNano())
	fd, err = unix.Openat(f.dir, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, mode)
	return fd, name, err
}

// try creates an empty file, which goes away again: permissions, a read-only file system and quotas have more
// rules than access(2) knows, and so have the umask and a directory's default ACL for what a new file
// gets. To keep it for the report would leave it behind if fini is killed, and open to others.
func (f *file) try() error {
	const mode = 0o666
	name, fd, err := "", f.createUnnamed(mode), error(nil)
	if fd < 0 {
		if fd, name, err = f.create(mode); err != nil {
			return err
		}
	}
	f.fresh, _, err = accessOf(fd, "")
	_ = unix.Close(fd)
	if name != "" {
		err = cmp.Or(err, unix.Unlinkat(f.dir, name, 0))
	}
	return err
}

// createUnnamed creates a file that nobody finds, also if fini is killed: -1 where that can't be. Before Linux 5.19 it
// disregards the umask on a file system without ACLs. See O_TMPFILE in open(2).
func (f *file) createUnnamed(mode uint32) int {
	fd, err := unix.Openat(f.dir, ".", unix.O_TMPFILE|unix.O_WRONLY|unix.O_CLOEXEC, mode)
	if err != nil {
		return -1
	}
	if _, err := unix.Fgetxattr(fd, aclName, nil); err != nil && err != unix.ENODATA {
		_ = unix.Close(fd)
		return -1
	}
	return fd
}

// write puts a file with text in the place of what has the name: of a link too, and of whatever was put
// there meanwhile. It is whole or not there at all, and nobody else can open it before it has its name.
// A file system that hangs is waited for: another thread could be given up on, but a process does not
// end while one of its threads is in uninterruptible sleep. Nothing is kept open then.
func (f *file) write(text []byte) error {
	defer func() { _ = unix.Close(f.dir) }()
	fd, name, err := f.create(0o600)
	if err != nil {
		return err
	}
	if err = writeWhole(fd, text); err == nil {
		err = f.wanted().give(fd)
	}
	if closeErr := unix.Close(fd); err == nil {
		err = closeErr
	}
	if err == nil {
		err = unix.Renameat(f.dir, name, f.dir, f.name)
	}
	if err != nil {
		_ = unix.Unlinkat(f.dir, name, 0)
	}
	return err
}

// wanted is what the new file is to get: what the file has that it replaces, at the start and now. One that
// was made more private meanwhile stays that, and one that was put there opens nothing.
func (f *file) wanted() access {
	old := f.old
	if now, _, err := f.look(); err == nil && now.known {
		if old.known {
			now.mode &= old.mode
			if now.uid != old.uid || now.gid != old.gid || !bytes.Equal(now.acl, old.acl) {
				now.mode, now.acl = now.mode&0o700, nil
			}
		}
		old = now
	}
	switch {
	case !old.known:
		return f.fresh
	case old.uid != os.Geteuid():
		// The new file is this user's, and another user has no say in who reads it.
		old.mode = f.fresh.mode & (0o700 | old.mode)
		if old.acl != nil || f.fresh.acl != nil {
			old.mode, old.acl = old.mode&0o700, nil
		}
	}
	return old
}

// look is the access to the regular file that has the name, and the file type of what has it.
func (f *file) look() (a access, kind uint32, err error) {
	fd, err := unix.Openat(f.dir, f.name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return a, 0, err
	}
	defer func() { _ = unix.Close(fd) }()
	return accessOf(fd, "/proc/self/fd/"+strconv.Itoa(fd))
}

// access is who may do what with a regular file.
type access struct {
	known    bool
	uid, gid int
	mode     uint32 // the permissions; those of the group are the mask if there is an ACL
	acl      []byte // as the kernel has it, nil for none. See acl(5)
}

const aclName = "system.posix_acl_access" // see xattr(7)

// accessOf is the access to an open file, whose ACL is read by the link if there is one: O_PATH allows
// nothing else. If the ACL can't be read, what it may allow or refuse is left to nobody but the owner.
func accessOf(fd int, link string) (a access, kind uint32, err error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return a, 0, err
	}
	if kind = st.Mode & unix.S_IFMT; kind != unix.S_IFREG {
		return a, kind, nil
	}
	a = access{known: true, uid: int(st.Uid), gid: int(st.Gid), mode: st.Mode & 0o777}
	if a.acl, err = aclOf(fd, link); err != nil {
		a.mode &= 0o700
	}
	return a, kind, nil
}

func aclOf(fd int, link string) (acl []byte, err error) {
	acl = make([]byte, 64<<10) // XATTR_SIZE_MAX
	n := 0
	if link != "" {
		n, err = unix.Getxattr(link, aclName, acl)
	} else {
		n, err = unix.Fgetxattr(fd, aclName, acl)
	}
	switch {
	case errors.Is(err, unix.ENODATA), errors.Is(err, unix.EOPNOTSUPP):
		return nil, nil
	case err != nil:
		return nil, err
	}
	return append([]byte{}, acl[:n]...), nil
}

// give gives a file this access. What the kernel refuses makes it more private, never more public.
func (a access) give(fd int) error {
	now, _, err := accessOf(fd, "")
	if err != nil {
		return err
	}
	mode := a.mode
	if now.gid != a.gid && unix.Fchown(fd, -1, a.gid) != nil {
		// Of the old group and all others, each may do now what both could.
		both := mode >> 3 & mode & 0o7
		mode = mode&0o700 | both<<3 | both
		if a.acl != nil {
			mode, a.acl = mode&0o700, nil
		}
	}
	switch {
	case a.acl != nil:
		err = unix.Fsetxattr(fd, aclName, a.acl, 0)
	case now.acl != nil: // by the directory's default
		err = unix.Fremovexattr(fd, aclName)
	}
	if err != nil {
		mode &= 0o700
	}
	if err = unix.Fchmod(fd, mode); err == nil {
		return nil
	}
	// Some file systems have one mode for all files.
	if now, _, statErr := accessOf(fd, ""); statErr == nil && now.mode&^mode == 0 {
		return nil
	}
	return err
}

// writeWhole writes to a regular file.
func writeWhole(fd int, text []byte) error {
	for len(text) > 0 {
		n, err := unix.Write(fd, text)
		if err != nil && err != unix.EINTR {
			return err
		}
		text = text[max(n, 0):]
	}
	return nil
}

// withoutSignals calls write on a thread that blocks the signals which a write raises: nobody has sent
// them, and SIGTTOU would raise itself for ever.
func withoutSignals(write func() error) error {
	return signals.Blocking(write, unix.SIGPIPE, unix.SIGTTOU, unix.SIGXFSZ)
}
