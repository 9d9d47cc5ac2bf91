package recipes

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/rig"
)

// WithModules is a directory in which Node and Python find fini's modules, as the packages install them.
func WithModules(t *testing.T, standIns map[string]string) *Dir {
	t.Helper()
	k := NewDir(t, standIns)
	part := "@fini-init/linux-" + map[string]string{"amd64": "x64", "arm64": "arm64"}[runtime.GOARCH]
	k.File("node_modules/fini-init/package.json", `{"name": "fini-init", "version": "0.1.0", "optionalDependencies": {"`+part+`": "0.1.0"}}`, 0o644)
	k.File("node_modules/fini-init/index.js", rig.ReadFile(t, "../packaging/npm/index.js"), 0o644)
	k.File("node_modules/"+part+"/bin/README", "", 0o644)
	k.File("python/fini_init/__init__.py", rig.ReadFile(t, "../packaging/fini_init/__init__.py"), 0o644)
	k.File("python/bin/README", "", 0o644)
	for _, name := range []string{"node_modules/" + part + "/bin/fini", "python/bin/fini-init"} {
		rig.NoError(t, os.Symlink(rig.Fini, filepath.Join(k.Dir, name)))
	}
	k.Env = append(k.Env, "PYTHONPATH="+filepath.Join(k.Dir, "python"))
	return k
}
