package main

import (
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/seed-126c5d8a/fini/reaper"
)

func TestIsolateFlag(t *testing.T) {
	for _, c := range []struct {
		args    []string
		env     string
		want    isolation
		refused string
	}{
		{[]string{"x"}, "", "", ""},
		{[]string{"--isolate", "x"}, "", isolate, ""},
		{[]string{"--isolate", "try"}, "", isolate, ""}, // try is the command
		{[]string{"--isolate=try", "--", "x"}, "", tryIsolate, ""},
		{[]string{"-v", "--isolate", "x"}, "", isolate, ""},
		{[]string{"-v", "--isolate=1", "x"}, "", isolate, ""},
		{[]string{"-v", "--isolate=TRY", "x"}, "", tryIsolate, ""},
		{[]string{"x"}, "1", isolate, ""},
		{[]string{"x"}, "true", isolate, ""},
		{[]string{"x"}, "try", tryIsolate, ""},
		{[]string{"x"}, "0", "", ""},
		{[]string{"--isolate", "x"}, "try", isolate, ""},
		{[]string{"--isolate=no", "x"}, "1", "", ""},
		{[]string{"--isolate=perhaps", "x"}, "", "", `cannot use "perhaps": want try, or no value`},
		{[]string{"x"}, "perhaps", "", `cannot use "perhaps"`},
	} {
		var environ []string
		if c.env != "" {
			t.Setenv("FINI_ISOLATE", c.env)
			environ = append(environ, "FINI_ISOLATE="+c.env)
		} else {
			_ = os.Unsetenv("FINI_ISOLATE")
		}
		got, err := parse(c.args, environ)
		switch {
		case c.refused != "":
			if err == nil || !strings.Contains(err.Error(), c.refused) {
				t.Errorf("%q, %q: got %v, want %q", c.args, c.env, err, c.refused)
			}
		case err != nil || got.Isolate != c.want:
			t.Errorf("%q, %q: got %+v, %v", c.args, c.env, got, err)
		case len(got.Command) != 1:
			t.Errorf("%q: the command is %q", c.args, got.Command)
		}
	}
}

// What the outer one of an isolated pair says in --inner arrives.
func TestIsolatedIsPassedOn(t *testing.T) {
	said := inner{job: 9, word: 5, line: 6, parentPid: 1, parent: -1, bound: []int{7, 8},
		isolated: &isolated{pid: 4711, leader: true, word: 10, pidfd: 11, by: reaper.Isolation{User: true, Bounding: 1<<40 | 5}}}
	var heard inner
	if err := heard.UnmarshalText([]byte(said.String())); err != nil || heard.String() != said.String() || *heard.isolated != *said.isolated {
		t.Errorf("said %v, heard %v, %v", said, heard, err)
	}
	for _, text := range []string{"9,5,7,1,-1/", "9,5,7,1,-1/1,true,10,11,true", "9,5,7,1,-1/1,true,2,11,true,0",
		"9,5,7,1,-1/1,true,10,2,true,0", "9,5,7,1,-1/1,x,10,11,true,0", "9,5,7,1,-1/1,true,10,11,true,0,0"} {
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
		"Docker, SYS_ADMIN":      {surroundings{filter: true, root: true, masked: true}, "mount(/proc, MS_PRIVATE)", false, syscall.EACCES, "AppArmor"},
		"podman":                 {surroundings{filter: true, root: true, masked: true}, mount, true, syscall.EPERM, "procMount: Unmasked"},
		"Ubuntu":                 {surroundings{apparmor: true}, mount, true, syscall.EACCES, "kernel.apparmor_restrict_unprivileged_userns"},
		"Ubuntu 23.10":           {surroundings{apparmor: true}, cloneUser, true, syscall.EACCES, "userns,"},
		"old Debian":             {surroundings{disabled: true}, cloneUser, true, syscall.EPERM, "kernel.unprivileged_userns_clone"},
		"none allowed":           {surroundings{limit: "user.max_user_namespaces"}, cloneUser, true, syscall.ENOSPC, "user.max_user_namespaces"},
		"too many":               {surroundings{}, clonePID, false, syscall.ENOSPC, "as many such namespaces"},
		"a kernel without":       {surroundings{root: true}, clonePID, false, syscall.EINVAL, "this kernel"},
		"root with nothing":      {surroundings{root: true}, uidMap, true, syscall.EPERM, "CAP_SETFCAP"},
		"root, another reason":   {surroundings{root: true}, cloneUser, true, syscall.EPERM, "CAP_SYS_ADMIN"},
		"a user, another reason": {surroundings{}, cloneUser, true, syscall.EPERM, "chroot"},
	} {
		err := c.here.explain(&reaper.RefusedError{Call: c.call, Err: c.err, User: c.user})
		if text := err.Error(); !strings.HasPrefix(text, c.call+": "+c.err.Error()+": ") || !strings.Contains(text, c.want) || strings.Contains(text, "\n") {
			t.Errorf("%s: got %q, want something about %s", name, text, c.want)
		}
	}
}
