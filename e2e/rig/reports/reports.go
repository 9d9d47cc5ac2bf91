// Package reports reads what fini --report writes, as its reader would, and holds it against docs/report.schema.json.
package reports

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-126c5d8a/fini/e2e/rig"
)

// Report is a report as its reader has it.
type Report struct {
	Version    int
	Fini       string
	Command    []string
	CommandCut bool
	Pid        int
	Started    time.Time
	Ended      *time.Time
	Finished   time.Time
	Status     int
	Error      any
	Exit       *struct {
		Code, Signal any
		OOM          *OOM
	}
	Stopped any
	Signals []struct {
		At     time.Time
		Signal string
		Sender *struct {
			Pid  int
			Name string
		}
	}
	SignalsOmitted   int
	Leftovers        []Leftover
	LeftoversOmitted int
	Reaped           int
	Seconds          struct {
		Command, Leftovers *float64
		Total              float64
	}
	Usage struct {
		UserSeconds, SystemSeconds float64
		MaxRSSBytes                int64
	}
}

type Leftover struct {
	Pid        int
	Command    string
	CommandCut bool
	Allowed    bool
	Spared     *string
	Started    time.Time
	StartedBy  []struct {
		Pid  int
		Name string
	}
	Group, Session int
	Holds, Sent    []string
	Listens        []string
	Cwd            *string
	User           *int
	Ended          any
	OOM            *OOM
	Owner          *struct {
		Pid           int
		Name, Command string
	}
	Context                     []struct{ Variable, Value string }
	AgeSeconds, OutlivedSeconds *float64
}

type OOM struct{ Verdict, Reason string }

// schemaChecker is e2e/schema, a module of its own: what only tests need is not in go.mod.
var schemaChecker = sync.OnceValues(func() (string, error) {
	if _, err := os.Stat("schema"); err != nil {
		return "../bin/schema", nil // the source is not here: tools/kernels has built it
	}
	err := rig.Locked(func() error {
		out, err := exec.Command("go", "build", "-C", "schema", "-o", "../../bin/schema", ".").CombinedOutput()
		if err != nil {
			return fmt.Errorf("cannot build e2e/schema: %w: %s", err, out)
		}
		return nil
	})
	return "../bin/schema", err
})

// Verdicts are what the report's schema says of each JSON document in text: "valid", or what is
// wrong with it.
func Verdicts(t testing.TB, text []byte) []string {
	t.Helper()
	checker, err := schemaChecker()
	rig.NoError(t, err)
	cmd := exec.Command(checker, "../docs/report.schema.json")
	var stderr bytes.Buffer
	cmd.Stdin, cmd.Stderr = bytes.NewReader(text), &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v; %s; the documents: %.3000s", err, &stderr, text)
	}
	return strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
}

// MustBe asserts that text is one whole report, which the schema describes. In make test TestReportSchema alone asks
// the schema: the checker takes longer than the life.
func MustBe(t testing.TB, text []byte) (r Report) {
	t.Helper()
	if !rig.Quick() {
		if got := Verdicts(t, text); !slices.Equal(got, []string{"valid"}) {
			t.Fatalf("the schema says %q of the report: %s", got, text)
		}
	}
	in := json.NewDecoder(bytes.NewReader(text))
	in.DisallowUnknownFields()
	if err := in.Decode(&r); err != nil {
		t.Fatalf("%v; the report: %s", err, text)
	}
	if text[len(text)-1] != '\n' {
		t.Errorf("the last line has no end: %q", text)
	}
	if r.Finished.Before(r.Started) || r.Ended != nil && (r.Ended.Before(r.Started) || r.Finished.Before(*r.Ended)) {
		t.Errorf("started %v, ended %v, finished %v", r.Started, r.Ended, r.Finished)
	}
	return r
}

// MustHave reads the report, which is the one file of its directory: nothing that fini
// made on the way is left.
func MustHave(t testing.TB, path string) Report {
	t.Helper()
	text, err := os.ReadFile(path)
	rig.NoError(t, err)
	MustHaveOnly(t, path)
	return MustBe(t, text)
}

func MustHaveOnly(t testing.TB, paths ...string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Dir(paths[0]))
	rig.NoError(t, err)
	var got, want []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	for _, path := range paths {
		want = append(want, filepath.Base(path))
	}
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("in the report's directory: %q, want %q", got, want)
	}
}

func Path(t testing.TB) string { return filepath.Join(t.TempDir(), "report.json") }

// String is the status, the command's end and the reason to stop it.
func (r Report) String() string {
	text := fmt.Sprint(r.Status)
	if r.Exit == nil {
		text += " end not seen"
	} else if r.Exit.Code != nil {
		text += fmt.Sprint(" exit ", r.Exit.Code)
	} else {
		text += fmt.Sprint(" ", r.Exit.Signal)
	}
	if r.Stopped != nil {
		text += fmt.Sprint(" for ", r.Stopped)
	}
	return text
}

func (r Report) Leftover(t testing.TB, pid int) Leftover {
	t.Helper()
	i := slices.IndexFunc(r.Leftovers, func(l Leftover) bool { return l.Pid == pid })
	if i < 0 {
		t.Fatalf("leftover %d is not in the report: %+v", pid, r.Leftovers)
	}
	return r.Leftovers[i]
}

// MustBe asserts what was sent to a leftover and how it ended.
func (l Leftover) MustBe(t testing.TB, sent, ended string) {
	t.Helper()
	if got := strings.Join(l.Sent, " "); got != sent || fmt.Sprint(l.Ended) != ended {
		t.Errorf("leftover %d (%s) was sent %q and ended %v, want %q and %v", l.Pid, l.Command, got, l.Ended, sent, ended)
	}
}
