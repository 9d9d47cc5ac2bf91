package e2e

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/need"
	"golang.org/x/sys/unix"
)

// An ACL as the kernel has it, of the user's permissions, those of one more user, of the group and of
// all others; the mask is what of the middle two is in force. See acl(5).
func acl(user, more, group, mask, other uint16) []byte {
	text := binary.LittleEndian.AppendUint32(nil, 2)
	for _, e := range []struct {
		tag, perm uint16
		id        uint32
	}{{0x01, user, ^uint32(0)}, {0x02, more, nobodyElse}, {0x04, group, ^uint32(0)}, {0x10, mask, ^uint32(0)}, {0x20, other, ^uint32(0)}} {
		text = binary.LittleEndian.AppendUint16(text, e.tag)
		text = binary.LittleEndian.AppendUint16(text, e.perm)
		text = binary.LittleEndian.AppendUint32(text, e.id)
	}
	return text
}

const accessACL, defaultACL = "system.posix_acl_access", "system.posix_acl_default"

func setACL(t testing.TB, path, name string, acl []byte) {
	t.Helper()
	err := unix.Setxattr(path, name, acl, 0)
	need.That(t, !errors.Is(err, unix.EOPNOTSUPP), "a file system with ACLs")
	if err != nil {
		t.Fatal(err)
	}
}

// accessTo is who may do what with a file: its owner and group, the mode, and the ACL if there is one.
func accessTo(t testing.TB, path string) string {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf("%d %d %#o", st.Uid, st.Gid, st.Mode&0o7777)
	value := make([]byte, 1<<16)
	if n, err := unix.Lgetxattr(path, accessACL, value); err == nil {
		text += fmt.Sprintf(" %x", value[:n])
	}
	return text
}

// umask is a command under a umask.
func umask(mask string, args []string) *exec.Cmd {
	return exec.Command("/bin/sh", append([]string{"-c", `umask ` + mask + `; exec "$@"`, "sh"}, args...)...)
}

// Who could not read the file that a report replaces can't read the report, and who could can, as far
// as the kernel lets fini have it so.
func TestReportKeepsWhatIsPrivate(t *testing.T) {
	t.Parallel()
	need.Root(t)
	const group = 54321
	own := func(uid, gid int, mode os.FileMode) func(*testing.T, string) {
		return func(t *testing.T, path string) {
			t.Helper()
			if err := errors.Join(os.WriteFile(path, []byte("old"), 0o600), os.Chown(path, uid, gid), os.Chmod(path, mode)); err != nil {
				t.Fatal(err)
			}
		}
	}
	with := func(acl []byte, before func(*testing.T, string)) func(*testing.T, string) {
		return func(t *testing.T, path string) {
			t.Helper()
			before(t, path)
			setACL(t, path, accessACL, acl)
		}
	}
	byDefault := func(acl []byte, before func(*testing.T, string)) func(*testing.T, string) {
		return func(t *testing.T, path string) {
			t.Helper()
			setACL(t, filepath.Dir(path), defaultACL, acl)
			if before != nil {
				before(t, path)
				if err := unix.Removexattr(path, accessACL); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	const unprivileged, noProc = "unprivileged", "no /proc"
	tests := []struct {
		name   string
		before func(t *testing.T, path string) // nil for no file
		umask  string
		as     string
		want   string // "" for what it was, or, if there was none, what a new file has there
	}{
		{"group", own(0, group, 0o640), "022", "", ""},
		{"group that all but it may read", own(0, group, 0o604), "022", "", ""},
		{"more than the umask gives", own(0, group, 0o666), "077", "", ""},
		{"ACL", with(acl(6, 4, 0, 4, 0), own(0, 0, 0o600)), "022", "", ""},
		{"ACL that refuses one", with(acl(6, 0, 4, 4, 4), own(0, group, 0o644)), "022", "", ""},
		{"no ACL, but by default", byDefault(acl(7, 7, 7, 7, 7), own(0, 0, 0o640)), "022", "", ""},
		{"new", nil, "027", "", "0 0 0640"},
		{"new for all", nil, "0", "", "0 0 0666"},
		{"new with an ACL by default", byDefault(acl(6, 4, 4, 4, 0), nil), "022", "", ""},
		{"another user's", own(nobodyElse, group, 0o666), "077", "", "0 54321 0600"},
		{"another user's, more private", own(nobodyElse, group, 0o600), "022", "", "0 54321 0600"},
		{"another user's with an ACL", with(acl(6, 4, 4, 4, 4), own(nobodyElse, group, 0o644)), "022", "", "0 54321 0600"},
		{"group that is refused", own(nobodyElse, group, 0o640), "022", unprivileged, "12345 12345 0600"},
		{"group that is refused, as all", own(nobodyElse, group, 0o664), "022", unprivileged, "12345 12345 0644"},
		{"group that is refused, less than all", own(nobodyElse, group, 0o604), "022", unprivileged, "12345 12345 0600"},
		{"group that is refused, and an ACL", with(acl(6, 4, 4, 4, 4), own(nobodyElse, group, 0o644)), "022", unprivileged, "12345 12345 0600"},
		{"ACL that can't be read", with(acl(6, 0, 4, 4, 4), own(0, 0, 0o644)), "022", noProc, "0 0 0600"},
	}
	for _, p := range []place{pair, alone} {
		for _, tt := range tests {
			t.Run(tt.name+" "+p.name, func(t *testing.T) {
				t.Parallel()
				dir := theirs(t)
				path := filepath.Join(dir, "report.json")
				if tt.before != nil {
					tt.before(t, path)
				}
				if _, err := os.Lstat(path); tt.want == "" && err == nil {
					tt.want = accessTo(t, path)
				} else if tt.want == "" {
					new := filepath.Join(dir, "new")
					if out, err := umask(tt.umask, []string{"touch", new}).CombinedOutput(); err != nil {
						t.Fatalf("%v: %s", err, out)
					}
					tt.want = accessTo(t, new)
				}
				args := p.command("--report="+path, "--", "/bin/sh", "-c", "exit 5").Args
				switch id := strconv.Itoa(nobodyElse); tt.as {
				case unprivileged:
					args = append([]string{need.Program(t, "setpriv"), "--reuid=" + id, "--regid=" + id, "--clear-groups"}, args...)
				case noProc:
					args = append([]string{need.Program(t, "unshare"), "-m", "/bin/sh", "-c", `mount -t tmpfs none /proc; exec "$@"`, "sh"}, args...)
				}
				startCmd(t, umask(tt.umask, args)).mustEnd(5)
				if got := accessTo(t, path); got != tt.want {
					t.Errorf("it has %s, want %s", got, tt.want)
				}
				text, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				mustBeReport(t, text)
			})
		}
	}
}

// A file that is made more private while the command runs stays that, and one that is put in its place is
// no way to make the report public.
func TestReportIsMadePrivateMeanwhile(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		before os.FileMode // 0 for no file
		script string
		want   os.FileMode
	}{
		"more private":   {0o644, `chmod 600 "$0"`, 0o600},
		"made":           {0, `umask 077; : >"$0"`, 0o600},
		"more public":    {0o600, `chmod 666 "$0"`, 0o600},
		"replaced":       {0o600, `rm "$0"; umask 0; : >"$0"`, 0o600},
		"removed":        {0o600, `rm "$0"`, 0o600},
		"another group":  {0o640, `chgrp 54321 "$0"`, 0o600},
		"another user's": {0o640, `rm "$0"; umask 0; : >"$0"; chown 12345 "$0"`, 0o600},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if strings.HasPrefix(name, "another") {
				need.Root(t)
			}
			path := reportPath(t)
			if tt.before != 0 {
				if err := errors.Join(os.WriteFile(path, nil, 0o600), os.Chmod(path, tt.before)); err != nil {
					t.Fatal(err)
				}
			}
			startCmd(t, pair.command("--report="+path, "--", "/bin/sh", "-c", tt.script+"; exit 5", path)).mustEnd(5)
			if info, err := os.Stat(path); err != nil || info.Mode() != tt.want {
				t.Errorf("its mode is %v (%v)", info.Mode(), err)
			}
			mustHaveReport(t, path)
		})
	}
}

// The file that becomes the report is created for its owner alone, whatever it gets before it has its name.
func TestReportIsCreatedPrivate(t *testing.T) {
	t.Parallel()
	strace := need.Program(t, "strace")
	created := regexp.MustCompile(`openat\(\d+, "(\.fini-[^"]*)", [^)]*O_CREAT[^)]*, (0\d*)\)`)
	renamed := regexp.MustCompile(`renameat\(\d+, "(\.fini-[^"]*)", `)
	for _, p := range []place{pair, alone} {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			path, log := reportPath(t), filepath.Join(t.TempDir(), "strace")
			startCmd(t, umask("0", append([]string{strace, "-f", "-qq", "-o", log, "-e", "trace=openat,renameat,write"},
				p.command("--report="+path, "--", "/bin/sh", "-c", "exit 5").Args...))).mustEnd(5)
			mustHaveReport(t, path)
			calls := readFile(t, log)
			names := renamed.FindAllStringSubmatch(calls, -1)
			if len(names) != 1 {
				t.Fatalf("%d files got the name:\n%s", len(names), calls)
			}
			all := created.FindAllStringSubmatch(calls, -1)
			if i := slices.IndexFunc(all, func(c []string) bool { return c[1] == names[0][1] }); i < 0 || all[i][2] != "0600" {
				t.Errorf("it was not created with the mode 0600:\n%s", strings.Join(slices.Concat(all...), "\n"))
			}
		})
	}
}
