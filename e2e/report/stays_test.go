package report

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/need"
	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/e2e/rig/reports"
)

// Whatever leaves a server alone, a host finds it in the report, with its port and its test, and can stop it.
func TestReportListsWhatStays(t *testing.T) {
	t.Parallel()
	need.Program(t, "node")
	for flag, spared := range map[string]string{
		"--orphans=pipes": "pipes", "--orphans=leave": "leave", "--allow-orphan=cmd:node *createServer*": "allow-orphan",
	} {
		for _, p := range rig.AloneOrPair(t, rig.Alone) {
			t.Run(spared+"/"+p.Name, func(t *testing.T) {
				t.Parallel()
				path, said := reports.Path(t), filepath.Join(t.TempDir(), "said")
				l := rig.Start(t, p, flag, "--linger=0", "--report="+path, "--", "/bin/sh", "-c",
					`FINI_TEST=checkout setsid node -e 'require("http").createServer().listen(0, "127.0.0.1", function () { console.log("Serving port " + this.address().port) })' >$0 2>&1 </dev/null &
					until grep -q Serving $0; do sleep 0.05; done; echo server $!
					setsid sleep 1000 & `+rig.UntilSleeps+`; echo holder $!; read line`, said)
				server, holder := l.Out.WantPID("server "), l.Out.WantPID("holder ")
				t.Cleanup(func() { _ = syscall.Kill(server, syscall.SIGKILL) })
				port := regexp.MustCompile(`port (\d+)`).FindStringSubmatch(rig.ReadFile(t, said))[1]
				rig.Write(t, l, "go\n")
				l.MustHaveStatus(0)

				r := reports.MustHave(t, path)
				also := map[string]string{"allow-orphan": ", allowed"}[spared]
				want := "0 exit 0\nholder was sent SIGTERM, ended SIGTERM, detached, holds stdout stderr\n" +
					"server, spared for " + spared + also + ", detached, listens on 127.0.0.1:" + port + ", FINI_TEST=checkout"
				if spared == "leave" {
					want = strings.Replace(want, "holder was sent SIGTERM, ended SIGTERM", "holder, spared for leave", 1)
				}
				if got := r.Words(map[string]int{"server": server, "holder": holder}); got != want {
					t.Errorf("reports %q, want %q", got, want)
				}
				mustListen(t, "127.0.0.1:"+port)
				for _, left := range r.Leftovers {
					if process, err := os.FindProcess(left.Pid); err == nil && left.Spared != nil {
						_ = process.Kill()
					}
				}
				rig.Until(t, "the end of all that the report lists as staying", func() bool { return rig.HungUp(l.Witness) })
				if said := l.Err.Whole(); (spared == "leave") != strings.Contains(said, "leaving leftover") {
					t.Errorf("says %q", said)
				}
			})
		}
	}
}
