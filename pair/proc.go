package pair

import (
	"errors"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/seed-126c5d8a/fini/entry"
	"github.com/seed-126c5d8a/fini/reaper"
)

// MountProc gives an isolated inner fini that has no user namespace a /proc of its own; entry does it for one that has.
// The mounts below /proc, which hide parts of it in a container, stay, and nothing that is mounted at or below /proc from
// then on is seen outside. Nothing else of the file system changes: where mounts propagate, a mount that is made outside
// arrives, and one that is made inside goes as far as it did. See mount_namespaces(7).
func MountProc() *RefusedError {
	text, err := reaper.ReadAll("/proc/self/mountinfo")
	if err != nil {
		return refused(entry.CallOpen, err)
	}
	proc, below := procMounts(text)
	if proc == nil {
		return refused(entry.CallOpen, errNotMounted)
	}
	// What is mounted on a shared mount, or on a copy of one, appears outside too. So no mount at or below /proc is
	// shared here, before any is made. A slave still receives, for an automount.
	slave := uintptr(unix.MS_SLAVE)
	if proc.unbindable { // which only MS_PRIVATE takes away, and a copy leaves out
		slave = unix.MS_PRIVATE
	}
	if err := unix.Mount("", "/proc", "", slave|unix.MS_REC, ""); err != nil {
		return refused(entry.CallSlave, err)
	}
	kept := map[string]int{} // with all that is mounted on them
	for _, path := range below {
		fd, err := unix.OpenTree(unix.AT_FDCWD, path, unix.OPEN_TREE_CLONE|unix.AT_RECURSIVE|unix.OPEN_TREE_CLOEXEC|unix.AT_NO_AUTOMOUNT|unix.AT_SYMLINK_NOFOLLOW)
		if err != nil {
			return refused(entry.CallCopy, err)
		}
		kept[path] = fd
	}
	if err := unix.Mount("proc", "/proc", "proc", proc.flags, proc.data()); err != nil {
		return refused(entry.CallMount, err)
	}
	for _, path := range below {
		err := unix.MoveMount(kept[path], "", unix.AT_FDCWD, path, unix.MOVE_MOUNT_F_EMPTY_PATH)
		_ = unix.Close(kept[path])
		if err != nil && err != unix.ENOENT { // it hid what is not there now
			return refused(entry.CallKeep, err)
		}
	}
	return nil
}

var errNotMounted = errors.New("it is not mounted")

// A procMount is how /proc is mounted.
type procMount struct {
	flags      uintptr
	options    []string // of the file system, such as hidepid=2
	unbindable bool     // something below it is: see mount_namespaces(7)
}

// data are the options as mount(2) takes them.
func (p *procMount) data() string {
	return strings.Join(slices.DeleteFunc(slices.Clone(p.options), func(option string) bool {
		return option == "rw" || option == "ro"
	}), ",")
}

var mountFlags = map[string]uintptr{
	"ro": unix.MS_RDONLY, "nosuid": unix.MS_NOSUID, "nodev": unix.MS_NODEV, "noexec": unix.MS_NOEXEC,
	"noatime": unix.MS_NOATIME, "nodiratime": unix.MS_NODIRATIME, "relatime": unix.MS_RELATIME,
}

// procMounts reads the text of /proc/PID/mountinfo: how /proc is mounted, nil if it is not, and
// which paths have something mounted on it. What is mounted on that in turn, or hidden, is not
// among them. See proc_pid_mountinfo(5).
func procMounts(mountinfo string) (proc *procMount, below []string) {
	id := ""
	parents := map[string][]string{} // of each path, by id
	unbindable := false
	for line := range strings.Lines(mountinfo) {
		mount, fs, _ := strings.Cut(line, " - ")
		fields, fsFields := strings.Fields(mount), strings.Fields(fs)
		if len(fields) < 6 || len(fsFields) < 1 {
			continue
		}
		switch path := fields[4]; {
		case path == "/proc" && fsFields[0] == "proc": // the last one is on top
			proc, id = &procMount{}, fields[0]
			for option := range strings.SplitSeq(fields[5], ",") {
				proc.flags |= mountFlags[option]
			}
			if len(fsFields) > 2 {
				proc.options = strings.Split(fsFields[2], ",")
			}
		case path == "/proc":
			proc = nil
		case strings.HasPrefix(path, "/proc/"):
			parents[path] = append(parents[path], fields[1])
			unbindable = unbindable || slices.Contains(fields[6:], "unbindable")
		}
	}
	if proc == nil {
		return nil, nil
	}
	proc.unbindable = unbindable
	for path, ids := range parents {
		if slices.Contains(ids, id) {
			below = append(below, path)
		}
	}
	slices.Sort(below)
	below = slices.DeleteFunc(slices.Clone(below), func(path string) bool {
		return slices.ContainsFunc(below, func(above string) bool { return strings.HasPrefix(path, above+"/") })
	})
	return proc, below
}
