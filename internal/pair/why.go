package pair

import (
	"fmt"
	"os"
	"strings"
	"syscall"

	"github.com/seed-126c5d8a/fini/internal/entry"
	"github.com/seed-126c5d8a/fini/reaper"
)

// A RefusedError names the call of an isolation that the kernel refused.
type RefusedError struct {
	Call int // see entry.CallClonePID
	Err  syscall.Errno
	User bool // the isolation should have had a user namespace
}

var calls = [...]string{
	entry.CallClonePID:  "clone(CLONE_NEWPID | CLONE_NEWNS)",
	entry.CallCloneUser: "clone(CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNS)",
	entry.CallMap:       "write to uid_map",
	entry.CallOpen:      "open(/proc)",
	entry.CallSlave:     "mount(/proc, MS_SLAVE | MS_REC)",
	entry.CallCopy:      "open_tree(a mount below /proc)",
	entry.CallMount:     "mount(proc, /proc)",
	entry.CallKeep:      "move_mount(a mount below /proc)",
	entry.CallCapset:    "capset",
}

func refused(call int, err error) *RefusedError {
	errno, _ := err.(syscall.Errno)
	return &RefusedError{Call: call, Err: errno}
}

func (e *RefusedError) Error() string { return calls[e.Call] + ": " + e.Err.Error() }

// Refused says why the isolation of the inner fini failed, with the likely reason and the remedy. It is nil if the kernel
// refused nothing.
func Refused() error {
	call, errno := entry.Refused()
	if errno == 0 {
		return nil
	}
	_, user := entry.Isolated()
	return surroundingsHere().explain(&RefusedError{call, errno, user})
}

// AskPlain tells the outer fini which call was refused, and exits: see entry.Message.
func (l Line) AskPlain(why *RefusedError) {
	l.Ask(entry.Message{Kind: entry.BePlain, Value: uint32(why.Call), Flags: uint32(why.Err)})
}

// surroundings are the facts about a system that may explain why it refuses an isolation.
type surroundings struct {
	root     bool   // the user is root
	apparmor bool   // only programs with a profile may have user namespaces
	disabled bool   // only root may have user namespaces
	limit    string // a sysctl that is 0 and so allows no namespace: "user.max_user_namespaces"
	filter   bool   // a seccomp filter is in force
	masked   bool   // there is a mount below /proc
	without  bool   // the kernel has no PID, mount or user namespaces
}

// surroundingsHere are the surroundings of this process.
func surroundingsHere() (s surroundings) {
	text := func(path string) string {
		text, _ := reaper.ReadAll(path)
		return strings.TrimSpace(text)
	}
	s.root = os.Geteuid() == 0
	s.apparmor = text("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == "1"
	s.disabled = text("/proc/sys/kernel/unprivileged_userns_clone") == "0"
	for _, name := range []string{"user", "pid", "mnt"} {
		if text("/proc/sys/user/max_"+name+"_namespaces") == "0" {
			s.limit = "user.max_" + name + "_namespaces"
		}
		if syscall.Access("/proc/self/ns/"+name, 0) == syscall.ENOENT {
			s.without = true
		}
	}
	s.filter = strings.Contains(text("/proc/self/status"), "\nSeccomp:\t2")
	s.masked = strings.Contains(text("/proc/self/mountinfo"), " /proc/")
	return s
}

// explain adds the likely reason and the remedy to a refusal. An error number alone is no reason:
// if nothing else points to a reason, explain adds none.
func (s surroundings) explain(refused *RefusedError) error {
	user := refused.User
	mounts := refused.Call >= entry.CallSlave && refused.Call <= entry.CallKeep
	namespaces := refused.Call <= entry.CallMap
	denied := refused.Err == syscall.EPERM || refused.Err == syscall.EACCES || refused.Err == syscall.ENOSYS && s.filter
	why := ""
	switch {
	case refused.Err == syscall.ENOSPC && mounts:
		why = "the limit of mounts is reached; see the sysctl fs.mount-max"
	case refused.Err == syscall.ENOSPC && s.limit != "":
		why = "no such namespace is allowed here; raise the sysctl " + s.limit
	case refused.Err == syscall.ENOSPC && namespaces:
		why = "the limit of such namespaces, or of namespaces inside each other, is reached; see the sysctls user.max_*_namespaces"
	case namespaces && s.without && (refused.Err == syscall.EINVAL || refused.Err == syscall.ENOSYS):
		why = "this kernel has no such namespaces"
	case !denied || !mounts && !namespaces:
	case refused.Call == entry.CallMount && user && s.masked && refused.Err == syscall.EPERM:
		why = "parts of /proc are masked, as in a container or by systemd's ProtectKernelTunables=; run fini as a container's PID 1, which promises the same, or unmask these parts (docker run --security-opt systempaths=unconfined, procMount: Unmasked in Kubernetes, ProtectKernelTunables=no and ProtectKernelLogs=no in a unit)"
	case user && s.apparmor:
		why = "AppArmor lets only programs with a profile create user namespaces; run fini as root, give fini a profile with `userns,`, or set the sysctl kernel.apparmor_restrict_unprivileged_userns to 0"
	case user && s.disabled:
		why = "only root may create user namespaces; run fini as root, or set the sysctl kernel.unprivileged_userns_clone to 1"
	case mounts:
		why = "a security module, such as AppArmor in a container, refuses mounts; run fini as the container's PID 1, which promises the same, or remove the profile (docker run --security-opt apparmor=unconfined)"
	case s.root && refused.Call == entry.CallMap:
		why = "root has too few capabilities here; give fini CAP_SYS_ADMIN or CAP_SETFCAP"
	case s.filter:
		why = "a seccomp filter, such as a container's, refuses namespaces; run fini as the container's PID 1, which promises the same, or give the container CAP_SYS_ADMIN (docker run --cap-add SYS_ADMIN)"
	case s.root:
		why = "fini lacks CAP_SYS_ADMIN"
	default:
		why = "only root may create user namespaces here, or fini runs in a chroot"
	}
	if why == "" {
		return refused
	}
	return fmt.Errorf("%w: %s", refused, why)
}
