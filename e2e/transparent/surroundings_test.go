package transparent

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/internal/tests/need"
	"github.com/seed-126c5d8a/fini/internal/tests/surroundings"
)

// What a test starts has the same surroundings, whatever those of the tests are.
func TestSurroundings(t *testing.T) {
	t.Parallel()
	const ownMask = "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\nUmask:\t0022\n"
	out, err := exec.Command("/bin/sh", "-c", "grep -E '^(SigBlk|SigIgn|Umask):' /proc/self/status | sort").Output()
	// 32 and 33 are the C library's, and make leaves them ignored.
	if err != nil || strings.Replace(string(out), "SigIgn:\t0000000080000000", "SigIgn:\t0000000000000000", 1) != ownMask {
		t.Errorf("what a test starts has %q (%v), want %q", out, err, ownMask)
	}
	for _, entry := range os.Environ() {
		if strings.HasPrefix(entry, "FINI_") {
			t.Errorf("what a test starts has %s", entry)
		}
	}
	const inside = "FINI_SURROUNDED"
	if surroundings.Asked(inside) != "" {
		return
	}
	need.Program(t, "python3")
	self := exec.Command("/bin/sh", "-c", `trap "" HUP INT QUIT PIPE TERM CHLD TSTP TTIN TTOU; umask 077
		exec python3 -c 'import os, signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM, signal.SIGUSR1, signal.SIGCHLD])
os.execv(sys.argv[1], sys.argv[1:])' "$@" <&-`, "sh", rig.Mode("")[0], "-fini="+rig.Fini, "-test.run=^TestSurroundings$")
	self.Env = append(os.Environ(), inside+"=1", "FINI_VERBOSE=1", "LC_ALL=de_DE.UTF-8")
	if text, err := self.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, text)
	}
}
