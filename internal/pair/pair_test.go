package pair

import (
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/seed-126c5d8a/fini/internal/entry"
)

// A refusal is explained by what there is to be seen of the system.
func TestRefusalIsExplained(t *testing.T) {
	for name, c := range map[string]struct {
		here surroundings
		call int
		user bool
		err  syscall.Errno
		want string
	}{
		"Docker":                 {surroundings{filter: true, root: true, masked: true}, entry.CallCloneUser, true, syscall.EPERM, "seccomp"},
		"Docker, SYS_ADMIN":      {surroundings{filter: true, root: true, masked: true}, entry.CallSlave, false, syscall.EACCES, "AppArmor"},
		"podman":                 {surroundings{filter: true, root: true, masked: true}, entry.CallMount, true, syscall.EPERM, "procMount: Unmasked"},
		"Ubuntu":                 {surroundings{apparmor: true}, entry.CallMount, true, syscall.EACCES, "kernel.apparmor_restrict_unprivileged_userns"},
		"Ubuntu 23.10":           {surroundings{apparmor: true}, entry.CallCloneUser, true, syscall.EACCES, "userns,"},
		"old Debian":             {surroundings{disabled: true}, entry.CallCloneUser, true, syscall.EPERM, "kernel.unprivileged_userns_clone"},
		"none allowed":           {surroundings{limit: "user.max_user_namespaces"}, entry.CallCloneUser, true, syscall.ENOSPC, "user.max_user_namespaces"},
		"too many":               {surroundings{}, entry.CallClonePID, false, syscall.ENOSPC, "the limit of such namespaces"},
		"a kernel without":       {surroundings{root: true, without: true}, entry.CallClonePID, false, syscall.EINVAL, "this kernel"},
		"root with nothing":      {surroundings{root: true}, entry.CallMap, true, syscall.EPERM, "CAP_SETFCAP"},
		"root, another reason":   {surroundings{root: true}, entry.CallCloneUser, true, syscall.EPERM, "CAP_SYS_ADMIN"},
		"as many mounts":         {surroundings{}, entry.CallMount, true, syscall.ENOSPC, "fs.mount-max"},
		"a filter's ENOSYS":      {surroundings{filter: true}, entry.CallCloneUser, true, syscall.ENOSYS, "seccomp"},
		"Ubuntu, masked":         {surroundings{apparmor: true, masked: true}, entry.CallMount, true, syscall.EPERM, "ProtectKernelTunables="},
		"a user, another reason": {surroundings{}, entry.CallCloneUser, true, syscall.EPERM, "chroot"},
	} {
		err := c.here.explain(&RefusedError{Call: c.call, Err: c.err, User: c.user})
		if text := err.Error(); !strings.HasPrefix(text, calls[c.call]+": "+c.err.Error()+": ") || !strings.Contains(text, c.want) || strings.Contains(text, "\n") {
			t.Errorf("%s: got %q, want something about %s", name, text, c.want)
		}
	}
	// Of what can have several causes none is named without a sign of it.
	for call, errnos := range map[int][]syscall.Errno{
		entry.CallSlave:    {syscall.EINVAL, syscall.ENOMEM, syscall.ENOSYS},
		entry.CallCopy:     {syscall.EINVAL, syscall.ENOENT, syscall.ENOSYS, syscall.EMFILE},
		entry.CallMount:    {syscall.EINVAL, syscall.ENOMEM},
		entry.CallKeep:     {syscall.EINVAL, syscall.ELOOP},
		entry.CallOpen:     {syscall.ENOENT, syscall.EPERM, syscall.EMFILE},
		entry.CallClonePID: {syscall.EINVAL, syscall.EAGAIN, syscall.ENOMEM, syscall.ENOSYS},
		entry.CallCapset:   {syscall.EPERM},
	} {
		for _, errno := range errnos {
			for _, here := range []surroundings{{}, {root: true}, {masked: true}, {apparmor: true}} {
				err := &RefusedError{Call: call, Err: errno, User: !here.root}
				if text := here.explain(err).Error(); text != err.Error() {
					t.Errorf("%+v: got %q", here, text)
				}
			}
		}
	}
}

// What one process of a pair says arrives in the other whole, with a descriptor; the hang-up comes behind it.
func TestLine(t *testing.T) {
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	inner, outer := Line{ends[0]}, Line{ends[1]}
	if messages, open := outer.Receive(); len(messages) != 0 || !open {
		t.Errorf("nothing was said: %v, %t", messages, open)
	}
	inner.Starting()
	inner.Started(7, entry.InJob, -1)
	inner.Done(3 << 8)
	_ = unix.Close(inner.FD)
	want := []entry.Message{{Kind: entry.Starting}, {Kind: entry.Started, Value: 7, Flags: entry.InJob}, {Kind: entry.Done, Value: 3 << 8}}
	if messages, open := outer.Receive(); !slices.Equal(messages, want) || open {
		t.Errorf("%v, %t, want %v and no more", messages, open, want)
	}
	_ = unix.Close(outer.FD)
}

func TestEachCallHasAName(t *testing.T) {
	for call, name := range calls {
		if err := error(refused(call, syscall.EPERM)); name == "" || err.Error() != name+": "+syscall.EPERM.Error() {
			t.Errorf("call %d: %v", call, err)
		}
	}
}
