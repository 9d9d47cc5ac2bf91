package report

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/need"
	"github.com/seed-126c5d8a/fini/e2e/rig"
	"golang.org/x/sys/unix"
)

// An ACL as the kernel has it, by which one more user may read. See acl(5).
func readableToOne() []byte {
	text := binary.LittleEndian.AppendUint32(nil, 2)
	for _, e := range []struct {
		tag, perm uint16
		id        uint32
	}{{0x01, 6, ^uint32(0)}, {0x02, 4, nobodyElse}, {0x04, 0, ^uint32(0)}, {0x10, 4, ^uint32(0)}, {0x20, 0, ^uint32(0)}} {
		text = binary.LittleEndian.AppendUint16(text, e.tag)
		text = binary.LittleEndian.AppendUint16(text, e.perm)
		text = binary.LittleEndian.AppendUint32(text, e.id)
	}
	return text
}

const accessACL = "system.posix_acl_access"

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

// A file that is there keeps its owner, group, mode and ACL, also if the command changes them; a new one gets what the
// umask gives, and what the command makes of it.
func TestReportKeepsWhatIsPrivate(t *testing.T) {
	t.Parallel()
	need.Root(t)
	const group = 54321
	for _, p := range rig.AloneOrPair(t) {
		for _, tt := range []struct {
			name     string
			uid, gid int
			mode     os.FileMode // 0 for no file
			acl      bool
			umask    string
			script   string // of the command
			want     string // "" for what it was
		}{
			{"private", 0, 0, 0o600, false, "0", "", ""},
			{"group", 0, group, 0o640, false, "022", "", ""},
			{"more than the umask gives", 0, 0, 0o666, false, "077", "", ""},
			{"ACL", 0, 0, 0o600, true, "022", "", ""},
			{"another user's", nobodyElse, group, 0o600, false, "0", "", ""},
			{"new", 0, 0, 0, false, "027", "", "0 0 0640"},
			{"made private meanwhile", 0, 0, 0o644, false, "022", `chmod 600 "$0"`, "0 0 0600"},
			{"new, and made private meanwhile", 0, 0, 0, false, "0", `chmod 600 "$0"`, "0 0 0600"},
		} {
			t.Run(tt.name+" "+p.Name, func(t *testing.T) {
				t.Parallel()
				path := rig.ReportPath(t)
				if tt.mode != 0 {
					if err := errors.Join(os.WriteFile(path, []byte("old"), 0o600), os.Chown(path, tt.uid, tt.gid), os.Chmod(path, tt.mode)); err != nil {
						t.Fatal(err)
					}
					if tt.acl {
						err := unix.Setxattr(path, accessACL, readableToOne(), 0)
						need.That(t, !errors.Is(err, unix.EOPNOTSUPP), "a file system with ACLs")
						if err != nil {
							t.Fatal(err)
						}
					}
				}
				want := tt.want
				if want == "" {
					want = accessTo(t, path)
				}
				argv := append([]string{"-c", `umask ` + tt.umask + `; exec "$@"`, "sh"},
					p.Command("--report="+path, "--", "/bin/sh", "-c", tt.script+"\nexit 5", path).Args...)
				rig.StartCmd(t, exec.Command("/bin/sh", argv...)).MustEnd(5)
				if got := accessTo(t, path); got != want {
					t.Errorf("it has %s, want %s", got, want)
				}
				rig.MustHaveReport(t, path)
			})
		}
	}
}
