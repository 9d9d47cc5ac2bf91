package ci

import (
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/need"
	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/e2e/rig/runners"
)

// In front of GitHub's shell, fini is the only process that the runner signals. A process that is started after the
// runner's SIGTERM is left to clean up, even if SIGKILL for fini comes meanwhile.
func TestGitHubCleansUp(t *testing.T) {
	need.Program(t, "bash")
	t.Parallel()
	for name, after := range map[string]string{"in the foreground": "\n", "in the background": " &\nwait\n"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := runners.ScriptFile(t, "("+runners.Cleaner+")"+after+"echo the step goes on\n")
			s := runners.StartStep(t, nil, rig.Fini, "--grace=2m", "--", "bash", "--noprofile", "--norc", "-eo", "pipefail", file)
			_ = s.Stdin.Close()
			s.Out.Want("ready")
			rig.UntilOlder(t)
			s.GithubCancel()
			runners.MustDelete(s.Life)
			s.MustBeGone()
		})
	}
}
