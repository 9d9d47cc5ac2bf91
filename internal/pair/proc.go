package pair

import (
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/seed-126c5d8a/fini/internal/entry"
	"github.com/seed-126c5d8a/fini/reaper"
)

// MountProc gives an isolated inner fini without a user namespace its own /proc. (Package entry mounts /proc if there is a
// user namespace.) The mounts below /proc, which hide parts of it in a container, stay. No later mount at or below /proc is
// visible outside. Nothing else of the file system changes: if mounts propagate, a mount made outside still arrives, and a
// mount made inside still propagates as far as before. See mount_namespaces(7).
func MountProc() *RefusedError {
	text, err := reaper.ReadAll("/proc/self/mountinfo")
	if err != nil {
		return refused(entry.CallOpen, err)
	}
	proc, below := procMounts(text)
	if proc == nil {
		return refused(entry.CallOpen, unix.ENOENT)
	}
	// A new mount on a shared mount, or on a copy of a shared mount, appears outside too. So, before MountProc
	// mounts anything, no mount at or below /proc stays shared. A slave still receives mounts, for an automount.
	slave := uintptr(unix.MS_SLAVE)
	if proc.unbindable { // only MS_PRIVATE removes this mark, and a copy leaves out such mounts
		slave = unix.MS_PRIVATE
	}
	if err := unix.Mount("", "/proc", "", slave|unix.MS_REC, ""); err != nil {
		return refused(entry.CallSlave, err)
	}
	kept := map[string]int{} // copies of the mounts, with all mounts on top of them
	for _, path := range below {
		fd, err := unix.OpenTree(unix.AT_FDCWD, path, unix.OPEN_TREE_CLONE|unix.AT_RECURSIVE|unix.OPEN_TREE_CLOEXEC|unix.AT_NO_AUTOMOUNT|unix.AT_SYMLINK_NOFOLLOW)
		if err != nil {
			return refused(entry.CallCopy, err)
		}
		kept[path] = fd
	}
	if err := unix.Mount("proc", "/proc", "proc", proc.flags, proc.data); err != nil {
		return refused(entry.CallMount, err)
	}
	for _, path := range below {
		err := unix.MoveMount(kept[path], "", unix.AT_FDCWD, path, unix.MOVE_MOUNT_F_EMPTY_PATH)
		_ = unix.Close(kept[path])
		if err != nil && err != unix.ENOENT { // the mount hid a path that does not exist now
			return refused(entry.CallKeep, err)
		}
	}
	return nil
}

// A procMount describes the mount of /proc.
type procMount struct {
	flags      uintptr
	data       string // options of the file system, such as hidepid=2, in the form for mount(2)
	unbindable bool   // a mount below /proc is unbindable: see mount_namespaces(7)
}

var mountFlags = map[string]uintptr{
	"ro": unix.MS_RDONLY, "nosuid": unix.MS_NOSUID, "nodev": unix.MS_NODEV, "noexec": unix.MS_NOEXEC,
	"noatime": unix.MS_NOATIME, "nodiratime": unix.MS_NODIRATIME, "relatime": unix.MS_RELATIME,
}

// procMounts reads the text of /proc/PID/mountinfo. proc describes the mount of /proc, nil if there
// is none. below are the paths of the mounts on /proc, without hidden mounts and without mounts on
// top of these mounts. See proc_pid_mountinfo(5).
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
		case path == "/proc" && fsFields[0] == "proc": // the last mount is on top
			proc, id = &procMount{}, fields[0]
			for option := range strings.SplitSeq(fields[5], ",") {
				proc.flags |= mountFlags[option]
			}
			if len(fsFields) > 2 {
				_, proc.data, _ = strings.Cut(fsFields[2], ",") // after "rw" or "ro"
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
