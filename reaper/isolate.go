package reaper

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Isolation is a PID namespace that a child is the init of: when that ends, however it does,
// the kernel kills whatever else is in the namespace. See pid_namespaces(7).
//
// It comes with a mount namespace, for a /proc that shows these processes: see Settle. Who may
// not make the two makes them in a user namespace, which it owns. There its user and group are
// the only ones, and keep their numbers. See user_namespaces(7).
type Isolation struct {
	User     bool   // it has a user namespace
	Bounding uint64 // then the capabilities that nobody in it is to go beyond: bit n is capability n
}

// NewIsolation is the isolation that this process may be able to make.
func NewIsolation() *Isolation {
	if effective()&(1<<unix.CAP_SYS_ADMIN) != 0 {
		return &Isolation{}
	}
	return &Isolation{User: true, Bounding: bounding()}
}

// bounding are the capabilities in the bounding set of this thread.
func bounding() (set uint64) {
	for capability := range 64 {
		if has, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, uintptr(capability), 0, 0, 0); err == nil && has == 1 {
			set |= 1 << capability
		}
	}
	return set
}

// effective are the capabilities of this thread, none if they can't be told. See capget(2).
func effective() uint64 {
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if unix.Capget(&head, &data[0]) != nil {
		return 0
	}
	return uint64(data[1].Effective)<<32 | uint64(data[0].Effective)
}

// apply makes a child the init of the isolation. In a user namespace it has two capabilities
// until Settle drops them; only ambient ones outlast execve(2) for a user who is not root.
func (i *Isolation) apply(sys *syscall.SysProcAttr) {
	sys.Cloneflags = unix.CLONE_NEWPID | unix.CLONE_NEWNS
	if i.User {
		sys.Cloneflags |= unix.CLONE_NEWUSER
		sys.UidMappings = []syscall.SysProcIDMap{{ContainerID: os.Geteuid(), HostID: os.Geteuid(), Size: 1}}
		sys.GidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getegid(), HostID: os.Getegid(), Size: 1}}
		sys.AmbientCaps = []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_SETPCAP}
	}
}

// RefusedError says which call of an isolation was refused. Err is a syscall.Errno, if there
// is one.
type RefusedError struct {
	Call string
	Err  error
	User bool // it was to have a user namespace
}

// Mounts reports whether it was a mount.
func (e *RefusedError) Mounts() bool {
	return slices.Contains(calls[callSlave:callKeep+1], e.Call)
}

// Namespaces reports whether it was the making of a namespace.
func (e *RefusedError) Namespaces() bool {
	return slices.Contains(calls[callClonePID:callMap+1], e.Call)
}

// Fresh reports whether it was the mount of a new /proc.
func (e *RefusedError) Fresh() bool { return e.Call == calls[callMount] }

// Mapping reports whether it was that of the user namespace's users.
func (e *RefusedError) Mapping() bool { return e.Call == calls[callMap] }

func (e *RefusedError) Error() string { return fmt.Sprintf("%s: %v", e.Call, e.Err) }
func (e *RefusedError) Unwrap() error { return e.Err }

// The calls of an isolation. What Settle does is told by the number.
const (
	callClonePID = iota
	callCloneUser
	callMap
	callExec
	callOpen
	callSlave
	callCopy
	callMount
	callKeep
	callCapset
)

var calls = [...]string{
	callClonePID:  "clone(CLONE_NEWPID | CLONE_NEWNS)",
	callCloneUser: "clone(CLONE_NEWUSER)",
	callMap:       "write to uid_map",
	callExec:      "execve(fini)",
	callOpen:      "open(/proc)",
	callSlave:     "mount(/proc, MS_SLAVE | MS_REC)",
	callCopy:      "open_tree(what is mounted below /proc)",
	callMount:     "mount(proc, /proc)",
	callKeep:      "move_mount(what is mounted below /proc)",
	callCapset:    "capset",
}

func refusedCall(call int, err error) *RefusedError {
	return &RefusedError{Call: calls[call], Err: err}
}

// refusal finds out which call has made the start of a child fail: a path that does not
// exist is reached if the calls before execve succeed.
func (i *Isolation) refusal(err error) *RefusedError {
	reached := func(sys *syscall.SysProcAttr) bool {
		_, err := syscall.ForkExec("/proc/self/exe/nothing", nil, &syscall.ProcAttr{Sys: sys})
		return err == unix.ENOTDIR || err == unix.ENOENT
	}
	all := &syscall.SysProcAttr{}
	i.apply(all)
	switch {
	case reached(all):
		return refusedCall(callExec, err)
	case !i.User, reached(&syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER, UidMappings: all.UidMappings, GidMappings: all.GidMappings}):
		return refusedCall(callClonePID, err)
	case reached(&syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER}):
		return refusedCall(callMap, err)
	}
	return refusedCall(callCloneUser, err)
}

// Settle is what the init of an isolation does before all else: it gives the namespace a /proc of
// its own, and drops the capabilities that it needs for that. The mounts below /proc, which hide
// parts of it in a container, stay, and nothing that is mounted at or below /proc from then on is
// seen outside. Nothing else of the file system changes: a mount that is made outside arrives, and
// one that is made inside goes as far as it did. The error is a *RefusedError.
func (i *Isolation) Settle() error {
	text, err := ReadAll("/proc/self/mountinfo")
	if err != nil {
		return refusedCall(callOpen, err)
	}
	proc, below := procMounts(text)
	if proc == nil {
		return refusedCall(callOpen, errors.New("it is not mounted"))
	}
	// What is mounted on a shared mount, or on a copy of one, appears outside too. So here none
	// at or below /proc is shared, before any is made. As a slave it still receives, for an automount.
	slave := uintptr(unix.MS_SLAVE)
	if proc.unbindable { // which only MS_PRIVATE takes away, and a copy leaves out
		slave = unix.MS_PRIVATE
	}
	if err := unix.Mount("", "/proc", "", slave|unix.MS_REC, ""); err != nil {
		return refusedCall(callSlave, err)
	}
	// With all that is mounted on them: in a user namespace these are locked together.
	kept := map[string]int{}
	for _, path := range below {
		fd, err := unix.OpenTree(unix.AT_FDCWD, path, unix.OPEN_TREE_CLONE|unix.AT_RECURSIVE|unix.OPEN_TREE_CLOEXEC|unix.AT_NO_AUTOMOUNT|unix.AT_SYMLINK_NOFOLLOW)
		if err != nil {
			return refusedCall(callCopy, err)
		}
		kept[path] = fd
	}
	if err := unix.Mount("proc", "/proc", "proc", proc.flags, proc.data(i.User)); err != nil {
		return refusedCall(callMount, err)
	}
	for _, path := range below {
		err := unix.MoveMount(kept[path], "", unix.AT_FDCWD, path, unix.MOVE_MOUNT_F_EMPTY_PATH)
		_ = unix.Close(kept[path])
		if err != nil && err != unix.ENOENT { // it hid what is not there now
			return refusedCall(callKeep, err)
		}
	}
	if i.User {
		return i.drop()
	}
	return nil
}

// drop drops all capabilities, and from the bounding set those that it did not have outside.
func (i *Isolation) drop() error {
	extra := bounding() &^ i.Bounding
	for capability := range 64 {
		if extra&(1<<capability) == 0 {
			continue
		}
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(capability), 0, 0, 0); err != nil {
			return refusedCall(callCapset, err)
		}
	}
	// With the permitted and inheritable ones the ambient ones go. Every thread has its own.
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	_, _, errno := syscall.AllThreadsSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&head)), uintptr(unsafe.Pointer(&none[0])), 0)
	if errno != 0 {
		return refusedCall(callCapset, errno)
	}
	return nil
}

// ReadAll reads a file of the kernel's. Package os would make the runtime set up epoll(7) for it, and
// abort if it can't.
func ReadAll(path string) (string, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	defer func() { _ = unix.Close(fd) }()
	var text []byte
	buf := make([]byte, 4<<10)
	for {
		n, err := unix.Read(fd, buf)
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return "", err
		case n == 0:
			return string(text), nil
		}
		text = append(text, buf[:n]...)
	}
}

// A procMount is how /proc is mounted.
type procMount struct {
	flags      uintptr
	options    []string // of the file system, such as hidepid=2
	unbindable bool     // something below it is: see mount_namespaces(7)
}

// data are the options as mount(2) takes them. In a user namespace no other group has a number.
func (p *procMount) data(user bool) string {
	return strings.Join(slices.DeleteFunc(slices.Clone(p.options), func(option string) bool {
		return option == "rw" || option == "ro" || user && strings.HasPrefix(option, "gid=")
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
