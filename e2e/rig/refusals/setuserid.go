package refusals

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/need"
	"github.com/seed-126c5d8a/fini/e2e/rig"
	"golang.org/x/sys/unix"
)

// SetUserID makes a copy of a program that runs as its owner, root.
func SetUserID(t *testing.T, program string) string {
	t.Helper()
	dir := rig.ShortTempDir(t) // t.TempDir is not open to other users
	path := rig.Put(t, filepath.Join(dir, "program"), rig.ReadFile(t, program), 0o755)
	rig.NoError(t, errors.Join(os.Chmod(path, 0o755|os.ModeSetuid), os.Chmod(dir, 0o755)))
	var fs unix.Statfs_t
	need.That(t, unix.Statfs(dir, &fs) == nil && fs.Flags&unix.ST_NOSUID == 0, "a temporary directory without nosuid")
	return path
}
