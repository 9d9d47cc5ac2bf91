package files

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed-126c5d8a/fini/internal/tests/check"
	"github.com/seed-126c5d8a/fini/internal/tests/need"
	"github.com/seed-126c5d8a/fini/internal/tests/procfs"
	"golang.org/x/sys/unix"
)

// What root's path leads through, and whether the file at its end is opened.
func TestLinksInFolders(t *testing.T) {
	need.Root(t, "to make what belongs to others")
	const other = 12345
	const refused = "out is a link that another user may have put there"
	target := t.TempDir()
	check.NoError(t, os.Chmod(target, 0o755))
	for what, tt := range map[string]struct {
		folder os.FileMode // of the folder in which the link is
		owner  int         // of the folder
		link   int         // its owner
		to     string
		below  string // what follows the link
		want   string
	}{
		"root's":                             {0o755, 0, 0, target, "/file", "<nil>"},
		"root's, two in a row":               {0o755, 0, 0, "./again", "/file", "<nil>"},
		"root's, with slashes":               {0o755, 0, 0, target + "//", "//./file", "<nil>"},
		"root's, where others have theirs":   {0o777 | os.ModeSticky, 0, 0, target, "/file", "<nil>"},
		"root's, where others may replace":   {0o777, 0, 0, target, "/file", refused},
		"root's, where a group may replace":  {0o775, 0, 0, target, "/file", refused},
		"root's, in another's folder":        {0o755, other, 0, target, "/file", refused},
		"another's":                          {0o777 | os.ModeSticky, 0, other, target, "/file", refused},
		"another's, in another's folder":     {0o755, other, other, target, "/file", refused},
		"of /proc":                           {0o755, 0, 0, "/proc/self/cwd", "/file", "self is a link that another user may have put there"},
		"in a circle":                        {0o755, 0, 0, "out", "/file", unix.ELOOP.Error()},
		"to a file":                          {0o755, 0, 0, "file", "/file", unix.ENOTDIR.Error()},
		"to nothing":                         {0o755, 0, 0, "none", "/file", unix.ENOENT.Error()},
		"at the end":                         {0o755, 0, 0, target, "", unix.ELOOP.Error()},
		"at the end, with a slash behind it": {0o755, 0, 0, target, "/", unix.EISDIR.Error()},
	} {
		t.Run(what, func(t *testing.T) {
			dir := t.TempDir()
			out := filepath.Join(dir, "out")
			check.NoError(t, errors.Join(os.Symlink(tt.to, out), os.Lchown(out, tt.link, tt.link), os.Symlink(target, filepath.Join(dir, "again")),
				os.WriteFile(filepath.Join(dir, "file"), nil, 0o600), os.Chown(dir, tt.owner, tt.owner), os.Chmod(dir, tt.folder)))
			before := procfs.CountFDs(t, os.Getpid())
			upToTheRoot := strings.Repeat("../", 20) // and more
			for _, path := range []string{out, "//" + out, upToTheRoot + out[1:]} {
				fd, err := Open(path+tt.below, unix.O_WRONLY|unix.O_CREAT, func(*unix.Stat_t) error { return nil })
				_ = unix.Close(fd)
				check.Equal(t, path+tt.below, fmt.Sprint(err), tt.want)
				check.Equal(t, "the file is made", os.Remove(filepath.Join(target, "file")) == nil, err == nil)
			}
			check.Equal(t, "the number of descriptors", procfs.CountFDs(t, os.Getpid()), before)
		})
	}
}

// Whoever owns the folder may give a file of others a second name there, and remove it before fini has counted the names.
func TestRemovedSecondName(t *testing.T) {
	dir := t.TempDir()
	victim, name := filepath.Join(dir, "victim"), filepath.Join(dir, "report")
	check.NoError(t, errors.Join(os.WriteFile(victim, nil, 0o600), os.Link(victim, name)))
	checks := 0
	fd, err := Open(name, unix.O_WRONLY|unix.O_CREAT, func(*unix.Stat_t) error {
		if checks++; checks == 2 { // it is open
			return os.Remove(name)
		}
		return nil
	})
	_ = unix.Close(fd)
	check.Equal(t, "the error", fmt.Sprint(err), "it was removed meanwhile")
}
