package promises

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/rig"
)

func TestMain(m *testing.M) { rig.Main(m) }

// There is a test for each promise, which has at most forty lines, and the page leads to it.
func TestEachPromiseHasATest(t *testing.T) {
	for n := 1; n <= 10; n++ {
		files, _ := filepath.Glob(fmt.Sprintf("promises/%d_*_test.go", n))
		if len(files) != 1 {
			t.Errorf("promise %d has the tests %q", n, files)
			continue
		}
		text, err := os.ReadFile(files[0])
		rig.NoError(t, err)
		_, body, _ := bytes.Cut(text, []byte("\nfunc Test"))
		if !bytes.Contains(text, fmt.Appendf(nil, "\n// Promise %d, ", n)) || bytes.Count(body, []byte("\n")) > 40 || bytes.Contains(body, []byte("\nfunc ")) {
			t.Errorf("%s has no test of at most 40 lines below the text of promise %d", files[0], n)
		}
		_, line, _ := strings.Cut(rig.ReadFile(t, "../docs/behavior.md"), fmt.Sprintf("\n%d. **", n))
		line, _, _ = strings.Cut(line, fmt.Sprintf("\n%d. **", n+1))
		if !strings.Contains(line, "](../e2e/"+files[0]+")") {
			t.Errorf("docs/behavior.md does not lead from promise %d to %s", n, files[0])
		}
	}
}
