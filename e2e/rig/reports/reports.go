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
	Version      int
	Fini         string
	Command      []string
	CommandCut   bool
	Pid, FiniPid int
	Started      time.Time
	Ended        *time.Time
	Finished     time.Time
	Status       int
	Error        any
	Exit         *struct {
		Code, Signal any
		OOM          *OOM
	}
	Stopped any
	Signals []struct {
		At     time.Time
		Signal string
		Sender *ancestor
	}
	SignalsOmitted   int
	Running          []Running
	RunningOmitted   int
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
	Pid                         int
	Command                     string
	CommandCut, Allowed, During bool
	Spared, Ended               any
	Started                     *time.Time
	StartedBy                   []ancestor
	Owner                       *ancestor
	Context                     []struct{ Variable, Value string }
	Group, Session              int
	Holds, Sent, Listens        []string
	Cwd, User                   any
	OOM                         *OOM
	AgeSeconds, OutlivedSeconds *float64
}

type Running struct {
	Pid, Parent            int
	Command                string
	CommandCut             bool
	AgeSeconds, CPUSeconds *float64
	State                  any
	Listens                []string
	Context                []struct{ Variable, Value string }
}

type ancestor struct {
	Pid           int
	Name, Command string
}

type OOM struct{ Verdict, Reason string }

// schemaChecker is tools/schema, a module of its own: what only tests need is not in go.mod.
var schemaChecker = sync.OnceValues(func() (string, error) {
	if _, err := os.Stat("../tools/schema"); err != nil {
		return "../bin/schema", nil // the source is not here: tools/kernels has built it
	}
	err := rig.Locked(func() error {
		out, err := exec.Command("go", "build", "-C", "../tools/schema", "-o", "../../bin/schema", ".").CombinedOutput()
		if err != nil {
			return fmt.Errorf("cannot build tools/schema: %w: %s", err, out)
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

var began = time.Now()

// MustBe asserts that text is one whole report, which the schema describes, and whose times agree. In make test
// TestReportSchema alone asks the schema: the checker takes longer than the life.
func MustBe(t testing.TB, text []byte) (r Report) {
	t.Helper()
	if !rig.Quick() {
		if got := Verdicts(t, text); !slices.Equal(got, []string{"valid"}) {
			t.Fatalf("the schema says %q of the report: %s", got, text)
		}
	}
	in := json.NewDecoder(bytes.NewReader(text))
	in.DisallowUnknownFields()
	if err := in.Decode(&r); err != nil || text[len(text)-1] != '\n' {
		t.Fatalf("%v; the report: %s", err, text)
	}
	const tick = 20 * time.Millisecond // the start of a process is told to 10 ms, cut off and rounded
	ended := r.Finished
	if r.Ended != nil {
		ended = *r.Ended
	}
	orders := [][]time.Time{{began, r.Started, ended, r.Finished, time.Now()}}
	for _, s := range r.Signals {
		orders = append(orders, []time.Time{r.Started, s.At, r.Finished})
	}
	agree := r.Ended == nil || max(*r.Seconds.Command, *r.Seconds.Leftovers) <= r.Seconds.Total
	for _, l := range r.Leftovers {
		if l.Started != nil {
			orders = append(orders, []time.Time{began.Add(-tick), *l.Started, r.Finished.Add(tick)})
		}
		agree = agree && (l.AgeSeconds == nil) == (l.Started == nil) && (l.During || (l.OutlivedSeconds == nil) == (l.Ended == nil || r.Ended == nil))
	}
	for _, times := range orders {
		agree = agree && slices.IsSortedFunc(times, time.Time.Compare)
	}
	if !agree {
		t.Errorf("the times do not agree, from %v to now: %s", began, text)
	}
	return r
}

// MustBeAmong is MustBe for the report in a text that has other lines too.
func MustBeAmong(t testing.TB, text string) Report {
	t.Helper()
	_, text, _ = strings.Cut(text, "{\n")
	text, _, _ = strings.Cut(text, "\n}\n")
	return MustBe(t, []byte("{\n"+text+"\n}\n"))
}

// MustHave reads the report, which is the one file of its directory: nothing that fini
// made on the way is left.
func MustHave(t testing.TB, path string) Report {
	t.Helper()
	MustHaveOnly(t, path)
	text, err := os.ReadFile(path)
	rig.NoError(t, err)
	return MustBe(t, text)
}

func MustHaveOnly(t testing.TB, path string) {
	t.Helper()
	if got, err := filepath.Glob(filepath.Dir(path) + "/*"); err != nil || !slices.Equal(got, []string{path}) {
		t.Errorf("in the report's directory: %q, %v, want %q", got, err, path)
	}
}

func Path(t testing.TB) string { return filepath.Join(t.TempDir(), "report.json") }

// Words tells a report: the status, the command's end and the reason to stop it, and in a line each who sent which signal, and what
// became of a leftover. Instead of its pid a process has one of these names. What is not told is null, empty or the usual.
func (r Report) Words(pids map[string]int) string {
	name := func(a ancestor) string {
		for name, pid := range pids {
			if pid == a.Pid {
				return name
			}
		}
		return a.Name
	}
	text := fmt.Sprint(r.Status)
	switch {
	case r.Exit == nil:
		text += " end not seen" + told(": ", r.Error)
	case r.Exit.Code != nil:
		text += fmt.Sprint(" exit ", r.Exit.Code)
	default:
		text += fmt.Sprint(" ", r.Exit.Signal)
	}
	text += told(" for ", r.Stopped)
	for _, s := range r.Signals {
		text += "\n" + s.Signal
		if s.Sender != nil {
			text += " from " + name(*s.Sender)
		}
	}
	var leftovers []string // in the order of their names
	here, _ := os.Getwd()
	for _, l := range r.Leftovers {
		line := "\n" + name(ancestor{l.Pid, l.Command, ""}) + told(" was sent ", l.Sent) + told(", ended ", l.Ended) + told(", spared for ", l.Spared)
		if l.Allowed {
			line += ", allowed"
		}
		if l.During {
			line += ", while the command ran"
		}
		switch {
		case l.Group == l.Pid && l.Session == l.Pid:
			line += ", detached"
		case l.Group != r.Pid || l.Session == l.Pid:
			line += fmt.Sprintf(", in group %d and session %d", l.Group, l.Session)
		}
		line += told(", holds ", l.Holds) + told(", listens on ", l.Listens)
		for i, a := range l.StartedBy {
			line += []string{", started by ", " < "}[min(i, 1)] + name(a)
		}
		if l.Owner != nil {
			line += fmt.Sprintf(", owned by %s (%s)", name(*l.Owner), l.Owner.Command)
		}
		for _, v := range l.Context {
			line += fmt.Sprintf(", %s=%s", v.Variable, v.Value)
		}
		if l.Cwd != here {
			line += told(", in ", l.Cwd)
		}
		if l.User != float64(0) && l.User != float64(os.Geteuid()) { // as PID 1 fini may be root of a user namespace
			line += told(", as user ", l.User)
		}
		leftovers = append(leftovers, line)
	}
	slices.Sort(leftovers)
	return text + strings.Join(leftovers, "")
}

// told is something, if it is neither null nor empty.
func told(what string, of any) string {
	if text := strings.Trim(fmt.Sprint(of), "[]"); of != nil && text != "" {
		return what + text
	}
	return ""
}
