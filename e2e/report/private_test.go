package report

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/need"
	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/e2e/rig/reports"
)

// A file that is there keeps its owner, group and mode, also if the command changes them; a new one gets what the
// umask gives, and what the command makes of it.
func TestReportKeepsWhatIsPrivate(t *testing.T) {
	t.Parallel()
	need.Root(t)
	const group = 54321
	for _, p := range rig.AloneOrPair(t, rig.Alone) {
		for _, tt := range []struct {
			name     string
			uid, gid int
			mode     os.FileMode // 0 for no file
			umask    string
			script   string // of the command
			want     string
		}{
			{"group", 0, group, 0o640, "022", "", "0 54321 0640"},
			{"more than the umask gives", 0, 0, 0o666, "077", "", "0 0 0666"},
			{"another user's", nobodyElse, group, 0o600, "0", "", "12345 54321 0600"},
			{"new", 0, 0, 0, "027", "", "0 0 0640"},
			{"made private meanwhile", 0, 0, 0o644, "022", `chmod 600 "$0"`, "0 0 0600"},
			{"new, and made private meanwhile", 0, 0, 0, "0", `chmod 600 "$0"`, "0 0 0600"},
		} {
			t.Run(tt.name+"/"+p.Name, func(t *testing.T) {
				t.Parallel()
				path := reports.Path(t)
				if tt.mode != 0 {
					rig.NoError(t, errors.Join(os.WriteFile(path, []byte("old"), 0o600), os.Chown(path, tt.uid, tt.gid), os.Chmod(path, tt.mode)))
				}
				argv := append([]string{"-c", `umask ` + tt.umask + `; exec "$@"`, "sh"},
					p.Command("--report="+path, "--", "/bin/sh", "-c", tt.script+"\nexit 5", path).Args...)
				rig.StartCmd(t, exec.Command("/bin/sh", argv...)).MustEnd(5)
				if got := strings.TrimSpace(rig.Run(t, "stat", "-c", "%u %g %#a", path)); got != tt.want {
					t.Errorf("it has %s, want %s", got, tt.want)
				}
				reports.MustHave(t, path)
			})
		}
	}
}

// An old report is written over, and not emptied before: ext4 then flushes the new one to the disk, which made the start of a
// short command half as slow again.
func TestReportOverAnotherIsNotFlushed(t *testing.T) {
	t.Parallel()
	strace := need.Program(t, "strace")
	for _, p := range rig.AloneOrPair(t, rig.Alone) {
		path, trace := reports.Path(t), filepath.Join(t.TempDir(), "trace")
		rig.NoError(t, os.WriteFile(path, []byte(strings.Repeat("a longer report\n", 10_000)), 0o600))
		argv := append([]string{"-f", "-qq", "-o", trace, "-e", "trace=ftruncate"}, p.Command("--report="+path, "--", "/bin/sh", "-c", "exit 5").Args...)
		rig.StartCmd(t, exec.Command(strace, argv...)).MustEnd(5)
		reports.MustHave(t, path)
		if said := rig.ReadFile(t, trace); strings.Count(said, "ftruncate(") != 1 || strings.Contains(said, ", 0)") {
			t.Errorf("%s: %s", p.Name, said)
		}
	}
}
