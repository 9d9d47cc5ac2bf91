package host

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-126c5d8a/fini/internal/life"
	"github.com/seed-126c5d8a/fini/internal/orphans"
	"github.com/seed-126c5d8a/fini/internal/report"
	"github.com/seed-126c5d8a/fini/internal/tests/check"
	"github.com/seed-126c5d8a/fini/internal/tests/self"
)

// Every reason has words of its own: for a line, and for a report, which are those of the schema.
func TestReasonsHaveWords(t *testing.T) {
	var schema struct {
		Properties struct{ Stopped struct{ Enum []string } } // with null, which is read as ""
	}
	check.MustParse(t, []byte(check.ReadFile(t, "../../docs/report.schema.json")), &schema)
	said, words := map[string]bool{"": true}, []string(nil)
	for why := life.NoReason + 1; why < life.Reasons; why++ {
		words = append(words, why.String())
		because := (&system{}).because(why)
		if said[because] {
			t.Errorf("of reason %d is said %q, as of another or of none", why, because)
		}
		said[because] = true
	}
	check.Equal(t, "the words of a report", append(words, ""), schema.Properties.Stopped.Enum)
}

// The line of a stop names the process whose exit is the reason, if it is known which one that is.
func TestCulprit(t *testing.T) {
	parent, first := bond{pid: 7, name: "make", why: life.ParentDied}, bond{pid: 8, name: "server", why: life.BoundEnded}
	second := bond{pid: 9, why: life.BoundEnded, fd: -1}
	for want, c := range map[string]struct {
		bonds []bond
		why   life.Reason
	}{
		"fini's parent (make, 7) has died; -p none prevents this": {[]bond{first, parent}, life.ParentDied},
		"fini's parent has died; -p none prevents this":           {[]bond{first}, life.ParentDied},
		"a process of --bind (?, 9) exited":                       {[]bond{first, second}, life.BoundEnded},
		"a process of --bind exited":                              {[]bond{parent, first}, life.BoundEnded},
	} {
		check.Equal(t, "it says", (&system{bonds: c.bonds}).because(c.why), want)
	}
}

// A line about a leftover says why it is spared or stopped, and who waits for it.
func TestTell(t *testing.T) {
	k := bare(-1)
	k.owners, k.tree.Shared = report.NewOwners(k.tree, os.Getenv), true // any thread may start it
	pid := check.Bystander(t).Process.Pid
	view := k.Look()
	p := view.Found[slices.IndexFunc(view.Found, func(p orphans.Process) bool { return p.Pid == pid })]
	p.Session, p.User = 0, os.Geteuid()
	for _, c := range []struct {
		level        life.Level
		what, spared string
		holds        orphans.Streams
		top          int
		rules        life.Policy
		initial      bool
		want         string
	}{
		{life.Normal, "stopping", "", 0, 0, life.Policy{}, false, "stopping leftover PID"},
		{life.Always, "stopping", "", 0, 0, life.Policy{}, false, ""},
		{life.Normal, "stopping", "", orphans.Stdout, 0, life.Policy{}, false, "stopping leftover PID, which holds stdout"},
		{life.Normal, "stopping", "", orphans.Stdout, 0, life.Policy{}, true, "stopping leftover PID"},
		{life.Normal, "stopping", "", orphans.Stdout, 0, life.Policy{Orphans: life.StopPipes}, false, "stopping leftover PID, which holds stdout"},
		{life.Normal, "stopping", "", orphans.Stderr, 0, life.Policy{}, false, "stopping leftover PID, which holds stderr"},
		{life.Normal, "stopping", "", orphans.Stderr, 0, life.Policy{Orphans: life.StopPipes}, false,
			"stopping leftover PID, which holds stderr; redirect stderr too to keep it"},
		{life.Normal, "leaving", life.ByName, orphans.Stdout, 0, life.Policy{}, false,
			"leaving leftover PID, which holds stdout (--allow-orphan): a reader waits until this leftover closes stdout"},
		{life.Normal, "leaving", life.ByName, 0, 0, life.Policy{}, false, ""},
		{life.Detail, "leaving", life.ByName, 0, 0, life.Policy{}, false, "leaving leftover PID (--allow-orphan)"},
		{life.Normal, "leaving", life.StopPipes, 0, 0, life.Policy{}, false, ""},
		{life.Detail, "leaving", life.StopPipes, 0, 0, life.Policy{}, false, "leaving leftover PID (--orphans=pipes)"},
		{life.Normal, "stopping", "", orphans.Stdout, pid, life.Policy{OrphanTimeout: time.Minute}, true,
			"stopping orphan PID, which holds stdout: its parent exited at least 1m0s ago (--orphan-timeout)"},
		{life.Normal, "stopping", "", 0, pid, life.Policy{OrphanTimeout: time.Minute, Pause: true}, true,
			"stopping orphan PID: it has been a child of fini for at least 1m0s (--orphan-timeout)"},
		{life.Normal, "stopping", "", 0, 7, life.Policy{}, false, "stopping process PID: it descends from orphan 7 (--orphan-timeout)"},
		{life.Normal, "killing", "", 0, 7, life.Policy{OrphansGrace: time.Second}, false,
			"killing orphan PID: it did not exit within 1s of SIGTERM (--orphans-grace)"},
	} {
		k.Threshold, k.rules.Policy, k.rules.Initial, p.Holds = c.level, c.rules, c.initial, orphans.Holds(c.holds)
		r, w := check.Pipe(t)
		restore := self.PutAt(t, 2, w)
		k.Tell(p, c.what, c.spared, false, c.top, &life.Record{})
		restore()
		_ = w.Close()
		text, _ := io.ReadAll(r)
		want := strings.ReplaceAll(c.want, "PID", fmt.Sprintf("%d (sleep 1000)", pid))
		if want != "" {
			want = "fini: " + want + "\n"
		}
		check.Equal(t, fmt.Sprintf("the line for %+v", c), string(text), want)
	}
}
