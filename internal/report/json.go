package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/seed-126c5d8a/fini/internal/orphans"
	"github.com/seed-126c5d8a/fini/signals"
)

// record is the layout of a report, which docs/report.schema.json describes. A nil field of type any becomes null.
type record struct {
	Version          int             `json:"version"` // of the schema
	Fini             string          `json:"fini"`
	Command          []string        `json:"command"`
	CommandCut       bool            `json:"commandCut"`
	Pid              int             `json:"pid"`
	FiniPid          int             `json:"finiPid"`
	Started          time.Time       `json:"started"`
	Ended            any             `json:"ended"`
	Finished         time.Time       `json:"finished"`
	Status           int             `json:"status"`
	Error            any             `json:"error"`
	Exit             any             `json:"exit"`
	Stopped          any             `json:"stopped"`
	Signals          []signal        `json:"signals"`
	SignalsOmitted   int             `json:"signalsOmitted"`
	Running          []runningRecord `json:"running"`
	RunningOmitted   int             `json:"runningOmitted"`
	Leftovers        []leftRecord    `json:"leftovers"`
	LeftoversOmitted int             `json:"leftoversOmitted"`
	Reaped           int             `json:"reaped"`
	Seconds          struct {
		Command   any     `json:"command"`
		Leftovers any     `json:"leftovers"`
		Total     float64 `json:"total"`
	} `json:"seconds"`
	Usage struct {
		UserSeconds   float64 `json:"userSeconds"`
		SystemSeconds float64 `json:"systemSeconds"`
		MaxRSSBytes   int64   `json:"maxRSSBytes"`
	} `json:"usage"`
}

type exit struct {
	Code   any  `json:"code"`
	Signal any  `json:"signal"`
	OOM    *oom `json:"oom"`
}

type oom struct {
	Verdict string `json:"verdict"`
	Reason  string `json:"reason"`
}

type signal struct {
	At     time.Time `json:"at"`
	Signal string    `json:"signal"`
	Sender *Ancestor `json:"sender"`
}

type leftRecord struct {
	Pid             int        `json:"pid"`
	Command         string     `json:"command"`
	CommandCut      bool       `json:"commandCut"`
	Allowed         bool       `json:"allowed"`
	Spared          any        `json:"spared"`
	During          bool       `json:"during"`
	Started         any        `json:"started"`
	StartedBy       []Ancestor `json:"startedBy"`
	Owner           *Owner     `json:"owner"`
	Context         []Mark     `json:"context"`
	Group           any        `json:"group"`
	Session         any        `json:"session"`
	Holds           any        `json:"holds"`
	Listens         []string   `json:"listens"`
	Cwd             any        `json:"cwd"`
	User            any        `json:"user"`
	Sent            []string   `json:"sent"`
	Ended           any        `json:"ended"`
	OOM             *oom       `json:"oom"`
	AgeSeconds      any        `json:"ageSeconds"`
	OutlivedSeconds any        `json:"outlivedSeconds"`
}

type runningRecord struct {
	Pid        int      `json:"pid"`
	Parent     int      `json:"parent"`
	Command    string   `json:"command"`
	CommandCut bool     `json:"commandCut"`
	AgeSeconds any      `json:"ageSeconds"`
	CPUSeconds any      `json:"cpuSeconds"`
	State      any      `json:"state"`
	Listens    []string `json:"listens"`
	Context    []Mark   `json:"context"`
}

// json returns the report as JSON.
func (r *Report) json(status int) []byte {
	finished := time.Now()
	var used unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_CHILDREN, &used)
	ended := !r.ended.IsZero()
	all := record{
		Version: 2, Fini: r.fini, Command: r.command, CommandCut: r.isCut, Pid: r.Pid, FiniPid: r.Fini,
		Started: r.started.UTC(), Ended: orNull(ended, r.ended.UTC()), // UTC needs no time zone file
		Finished: finished.UTC(), Status: status, Error: r.Err,
		Exit: orNull(ended, exit{r.code, r.signal, r.oom}), Stopped: r.stopped,
		Signals: r.signals, SignalsOmitted: r.moreSignals, Running: []runningRecord{}, RunningOmitted: r.moreRunning,
		Leftovers: []leftRecord{}, LeftoversOmitted: r.moreLeftovers, Reaped: r.reaped,
	}
	all.Seconds.Command = orNull(ended, seconds(r.ended.Sub(r.started)))
	all.Seconds.Leftovers = orNull(ended, seconds(finished.Sub(r.ended)))
	all.Seconds.Total = seconds(finished.Sub(r.started))
	all.Usage.UserSeconds = float64(used.Utime.Nano()/1000) / 1e6
	all.Usage.SystemSeconds = float64(used.Stime.Nano()/1000) / 1e6
	all.Usage.MaxRSSBytes = int64(used.Maxrss) * 1024
	for _, left := range r.leftovers {
		all.Leftovers = append(all.Leftovers, left.record())
	}
	for _, p := range r.running {
		all.Running = append(all.Running, p.record())
	}
	return encode(all)
}

func (l *leftover) record() leftRecord {
	holds, sent := []string{}, []string{}
	for _, sig := range l.sent() {
		sent = append(sent, signals.Name(sig))
	}
	held, known := l.Holds.Held()
	for i, name := range []string{"stdout", "stderr"} {
		if held&(orphans.Stdout<<i) != 0 {
			holds = append(holds, name)
		}
	}
	return leftRecord{
		Pid: l.Pid, Command: l.command, CommandCut: l.isCut, Allowed: l.Allowed, Spared: l.spared, During: l.during,
		Started:   orNull(l.Start != 0, l.found.Add(-l.age).Round(10*time.Millisecond).UTC()),
		StartedBy: append([]Ancestor{}, l.Chain...), Owner: l.Owner, Context: l.Marks,
		Group: orNull(l.State != '?', l.PGID), Session: orNull(l.State != '?', l.Session),
		Holds: orNull(known, holds), Listens: l.At.Listens, Cwd: orNull(l.At.Dir != "", l.At.Dir),
		User: orNull(l.User >= 0, l.User), Sent: sent, Ended: l.ended, OOM: l.oom,
		AgeSeconds: orNull(l.Start != 0, seconds(l.age)), OutlivedSeconds: l.outlived,
	}
}

// orNull returns the value if it is known, and nil otherwise.
func orNull(known bool, value any) any {
	if known {
		return value
	}
	return nil
}

// seconds converts a duration to seconds, rounded down to a millisecond. It returns 0 for a negative duration.
func seconds(d time.Duration) float64 { return float64(max(d, 0).Milliseconds()) / 1000 }

// encode returns the indented JSON encoding of a value. It escapes DEL, C1 control characters and "##" too, which
// encoding/json leaves as they are, so that the text can't affect a terminal or give a command to a CI's agent.
func encode(value any) []byte {
	var b bytes.Buffer
	to := json.NewEncoder(&b)
	to.SetEscapeHTML(false)
	to.SetIndent("", "  ")
	_ = to.Encode(value) // fails only for values that have no JSON encoding, such as functions
	text, before := make([]byte, 0, b.Len()), ' '
	for _, c := range b.String() {
		if 0x7f <= c && c < 0xa0 || c == '#' && before == '#' {
			text = fmt.Appendf(text, `\u%04x`, c)
		} else {
			text = utf8.AppendRune(text, c)
		}
		before = c
	}
	return text
}
