package main

import (
	"strings"
	"syscall"
	"testing"

	"github.com/seed-126c5d8a/fini/reaper"
)

// What the outer one of an isolated pair says in --inner arrives.
func TestIsolatedIsPassedOn(t *testing.T) {
	said := orders{job: 9, word: 5, line: 6, parentPid: 1, parent: -1, bound: []int{7, 8},
		isolated: &isolated{pid: 4711, leader: true, word: 10, by: reaper.Isolation{User: true, Bounding: 1<<40 | 5}, names: "fini\nbash, -\n\xff"}}
	var heard orders
	if err := heard.UnmarshalText([]byte(said.String())); err != nil || heard.String() != said.String() || *heard.isolated != *said.isolated {
		t.Errorf("said %v, heard %v, %v", said, heard, err)
	}
	for _, text := range []string{"9,5,7,1,-1/", "9,5,7,1,-1/1,true,10,true,00", "9,5,7,1,-1/1,true,2,true,0,00",
		"9,5,7,1,-1/1,x,10,true,0,00", "9,5,7,1,-1/1,true,10,true,0,x", "9,5,7,1,-1/1,true,10,true,0,00,0"} {
		if heard.UnmarshalText([]byte(text)) == nil {
			t.Errorf("%s was taken", text)
		}
	}
}

// A refusal is explained by what there is to be seen of the system.
func TestRefusalIsExplained(t *testing.T) {
	const (
		cloneUser = "clone(CLONE_NEWUSER)"
		clonePID  = "clone(CLONE_NEWPID | CLONE_NEWNS)"
		mount     = "mount(proc, /proc)"
		uidMap    = "write to uid_map"
	)
	for name, c := range map[string]struct {
		here surroundings
		call string
		user bool
		err  syscall.Errno
		want string
	}{
		"Docker":                 {surroundings{filter: true, root: true, masked: true}, cloneUser, true, syscall.EPERM, "seccomp"},
		"Docker, SYS_ADMIN":      {surroundings{filter: true, root: true, masked: true}, "mount(/proc, MS_SLAVE | MS_REC)", false, syscall.EACCES, "AppArmor"},
		"podman":                 {surroundings{filter: true, root: true, masked: true}, mount, true, syscall.EPERM, "procMount: Unmasked"},
		"Ubuntu":                 {surroundings{apparmor: true}, mount, true, syscall.EACCES, "kernel.apparmor_restrict_unprivileged_userns"},
		"Ubuntu 23.10":           {surroundings{apparmor: true}, cloneUser, true, syscall.EACCES, "userns,"},
		"old Debian":             {surroundings{disabled: true}, cloneUser, true, syscall.EPERM, "kernel.unprivileged_userns_clone"},
		"none allowed":           {surroundings{limit: "user.max_user_namespaces"}, cloneUser, true, syscall.ENOSPC, "user.max_user_namespaces"},
		"too many":               {surroundings{}, clonePID, false, syscall.ENOSPC, "as many such namespaces"},
		"a kernel without":       {surroundings{root: true, without: true}, clonePID, false, syscall.EINVAL, "this kernel"},
		"root with nothing":      {surroundings{root: true}, uidMap, true, syscall.EPERM, "CAP_SETFCAP"},
		"root, another reason":   {surroundings{root: true}, cloneUser, true, syscall.EPERM, "CAP_SYS_ADMIN"},
		"as many mounts":         {surroundings{}, mount, true, syscall.ENOSPC, "fs.mount-max"},
		"a filter's ENOSYS":      {surroundings{filter: true}, cloneUser, true, syscall.ENOSYS, "seccomp"},
		"Ubuntu, masked":         {surroundings{apparmor: true, masked: true}, mount, true, syscall.EPERM, "ProtectKernelTunables="},
		"a user, another reason": {surroundings{}, cloneUser, true, syscall.EPERM, "chroot"},
	} {
		err := c.here.explain(&reaper.RefusedError{Call: c.call, Err: c.err, User: c.user})
		if text := err.Error(); !strings.HasPrefix(text, c.call+": "+c.err.Error()+": ") || !strings.Contains(text, c.want) || strings.Contains(text, "\n") {
			t.Errorf("%s: got %q, want something about %s", name, text, c.want)
		}
	}
	// Of what can have several causes none is named without a sign of it.
	for call, errnos := range map[string][]syscall.Errno{
		"mount(/proc, MS_SLAVE | MS_REC)":         {syscall.EINVAL, syscall.ENOMEM, syscall.ENOSYS},
		"open_tree(what is mounted below /proc)":  {syscall.EINVAL, syscall.ENOENT, syscall.ENOSYS, syscall.EMFILE},
		mount:                                     {syscall.EINVAL, syscall.ENOMEM},
		"move_mount(what is mounted below /proc)": {syscall.EINVAL, syscall.ELOOP},
		"open(/proc)":                             {syscall.ENOENT, syscall.EPERM, syscall.EMFILE},
		clonePID:                                  {syscall.EINVAL, syscall.EAGAIN, syscall.ENOMEM, syscall.ENOSYS},
		"execve(fini)":                            {syscall.EACCES, syscall.ENOMEM},
		"capset":                                  {syscall.EPERM},
	} {
		for _, errno := range errnos {
			for _, here := range []surroundings{{}, {root: true}, {masked: true}, {apparmor: true}} {
				err := &reaper.RefusedError{Call: call, Err: errno, User: !here.root}
				if text := here.explain(err).Error(); text != err.Error() {
					t.Errorf("%+v: got %q", here, text)
				}
			}
		}
	}
}
