package report

import (
	"encoding/xml"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/rig"
)

// A leak of an odd test is a failed case with that name, whatever bytes are in it, beside the command's case.
func TestReportAsJUnit(t *testing.T) {
	t.Parallel()
	rig.InPlaces(t, rig.Pair, func(t *testing.T, p rig.Place) {
		path := filepath.Join(t.TempDir(), "leaks.xml")
		for range 2 { // an earlier report is replaced
			cmd := p.Command("--linger=10ms", "--orphans-exit=9", "--report="+path, "--", "/bin/sh", "-c",
				`FINI_TEST=$(printf 'a.py::<&"\n::error::\001]]>\377##[x]') sleep 1000 & `+rig.UntilSleeps+`; read line; exit 0`)
			l := rig.StartCmd(t, cmd)
			l.Caught()
			rig.Write(t, l, "go\n")
			l.MustEnd(9)
		}
		var got struct {
			Cases []struct {
				Name    string    `xml:"name,attr"`
				File    string    `xml:"file,attr"`
				Failure *struct{} `xml:"failure"`
			} `xml:"testsuite>testcase"`
		}
		text := rig.ReadFile(t, path)
		rig.NoError(t, xml.Unmarshal([]byte(text), &got))
		if len(got.Cases) != 2 || got.Cases[0].Failure != nil || got.Cases[1].Failure == nil || got.Cases[1].File != "a.py" ||
			got.Cases[1].Name != "a.py::<&\"?::error::?]]>\ufffd#?[x]" || strings.Contains(text, "\n::") {
			t.Errorf("%+v: %s", got, text)
		}
	})
}

// There may be four reports.
func TestReportsAreCounted(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var flags []string
	for _, name := range []string{"a", "b", "c.xml", "d", "e"} {
		flags = append(flags, "--report="+filepath.Join(dir, name))
	}
	l := rig.Start(t, rig.Pair, append(flags, "--", "/bin/true")...)
	l.MustEnd(125)
	rig.WantOnce(t, l.Err.Whole(), "fini: --report: cannot write 5 reports: want at most 4")
	l = rig.Start(t, rig.Pair, append(flags[:4:4], "--", "/bin/true")...)
	l.MustEnd(0)
	for name, begins := range map[string]string{"a": "{\n", "b": "{\n", "c.xml": "<?xml", "d": "{\n"} {
		if text := rig.ReadFile(t, filepath.Join(dir, name)); !strings.HasPrefix(text, begins) {
			t.Errorf("%s: %q", name, text)
		}
	}
}
