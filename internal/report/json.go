package report

import (
	"strconv"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/seed-126c5d8a/fini/internal/orphans"
	"github.com/seed-126c5d8a/fini/signals"
)

// json returns the report in the format that docs/report.schema.json describes.
func (r *Report) json(status int) []byte {
	finished := time.Now()
	var used unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_CHILDREN, &used)
	ended := !r.ended.IsZero()
	leftovers := []object{}
	for _, left := range r.leftovers {
		leftovers = append(leftovers, left.json())
	}
	running := []object{}
	for _, p := range r.running {
		running = append(running, p.json())
	}
	return append(appendJSON(nil, object{
		"version", 2, // version of the schema
		"fini", r.fini,
		"command", r.command,
		"commandCut", r.isCut,
		"pid", r.Pid,
		"finiPid", r.Fini,
		"started", r.started,
		"ended", orNull(ended, r.ended),
		"finished", finished,
		"status", status,
		"error", r.Err,
		"exit", orNull(ended, object{"code", r.code, "signal", r.signal, "oom", r.oom}),
		"stopped", r.stopped,
		"signals", r.signals,
		"signalsOmitted", r.moreSignals,
		"running", running,
		"runningOmitted", r.moreRunning,
		"leftovers", leftovers,
		"leftoversOmitted", r.moreLeftovers,
		"reaped", r.reaped,
		"seconds", object{
			"command", orNull(ended, seconds(r.ended.Sub(r.started))),
			"leftovers", orNull(ended, seconds(finished.Sub(r.ended))),
			"total", seconds(finished.Sub(r.started)),
		},
		"usage", object{
			"userSeconds", float64(used.Utime.Nano()/1000) / 1e6,
			"systemSeconds", float64(used.Stime.Nano()/1000) / 1e6,
			"maxRSSBytes", float64(used.Maxrss) * 1024,
		},
	}, "\n"), '\n')
}

func (l *leftover) json() object {
	startedBy, holds, sent := []object{}, []string{}, []string{}
	for _, sig := range l.sent() {
		sent = append(sent, signals.Name(sig))
	}
	for _, a := range l.Chain {
		startedBy = append(startedBy, a.json())
	}
	held, known := l.Holds.Held()
	for i, name := range []string{"stdout", "stderr"} {
		if held&(orphans.Stdout<<i) != 0 {
			holds = append(holds, name)
		}
	}
	var owner any
	if l.Owner != nil {
		owner = append(l.Owner.json(), "command", l.Owner.Command)
	}
	return object{
		"pid", l.Pid,
		"command", l.command,
		"commandCut", l.isCut,
		"allowed", l.Allowed,
		"spared", l.spared,
		"during", l.during,
		"started", orNull(l.Start != 0, l.found.Add(-l.age).Round(10*time.Millisecond)),
		"startedBy", startedBy,
		"owner", owner,
		"context", l.Marks,
		"group", orNull(l.State != '?', l.Group),
		"session", orNull(l.State != '?', l.Session),
		"holds", orNull(known, holds),
		"listens", l.At.Listens,
		"cwd", orNull(l.At.Dir != "", l.At.Dir),
		"user", orNull(l.User >= 0, l.User),
		"sent", sent,
		"ended", l.ended,
		"oom", l.oom,
		"ageSeconds", orNull(l.Start != 0, seconds(l.age)),
		"outlivedSeconds", l.outlived,
	}
}

func (a Ancestor) json() object { return object{"pid", a.Pid, "name", a.Name} }

// orNull returns the value if it is known, and nil otherwise.
func orNull(known bool, value any) any {
	if known {
		return value
	}
	return nil
}

// seconds converts a duration to seconds, rounded down to a millisecond. It returns 0 for a negative duration.
func seconds(d time.Duration) float64 { return float64(max(d, 0).Milliseconds()) / 1000 }

// An object is a JSON object, given as alternating names and values.
type object []any

// appendJSON appends the JSON encoding of value to a buffer. line is a line feed followed by the current indentation.
// encoding/json is not used because its reflection took a fifth of the time of a short run.
func appendJSON(to []byte, value any, line string) []byte {
	switch v := value.(type) {
	case bool:
		return strconv.AppendBool(to, v)
	case int:
		return strconv.AppendInt(to, int64(v), 10)
	case float64:
		return strconv.AppendFloat(to, v, 'f', -1, 64)
	case string:
		return appendString(to, v)
	case time.Time: // UTC, because that needs no time zone file
		return v.UTC().AppendFormat(to, `"`+time.RFC3339Nano+`"`)
	case []string:
		return appendList(to, v, line)
	case []object:
		return appendList(to, v, line)
	case object:
		comma, inner := "{", line+"  "
		for i := 0; i < len(v); i += 2 {
			to = append(append(to, comma...), inner...)
			to = append(appendJSON(to, v[i], inner), ": "...)
			to, comma = appendJSON(to, v[i+1], inner), ","
		}
		return append(append(to, line...), '}')
	}
	return append(to, "null"...)
}

// appendList appends a list to a buffer. A nil list becomes null.
func appendList[T any](to []byte, items []T, line string) []byte {
	switch {
	case items == nil:
		return append(to, "null"...)
	case len(items) == 0:
		return append(to, "[]"...)
	}
	comma, inner := "[", line+"  "
	for _, item := range items {
		to = append(append(to, comma...), inner...)
		to, comma = appendJSON(to, item, inner), ","
	}
	return append(append(to, line...), ']')
}

// appendString appends a JSON string. Invalid UTF-8 becomes U+FFFD. Control characters are escaped so that a terminal
// can't be affected, and so is "##", so that a CI's agent doesn't find a command in the output. See OneLine.
func appendString(to []byte, s string) []byte {
	const hex = "0123456789abcdef"
	to = append(to, '"')
	var before rune
	for _, c := range s {
		switch {
		case c == '"' || c == '\\':
			to = append(to, '\\', byte(c))
		case c < ' ' || 0x7f <= c && c < 0xa0 || c == '#' && before == '#':
			to = append(to, '\\', 'u', '0', '0', hex[c>>4], hex[c&0xf])
		default:
			to = utf8.AppendRune(to, c)
		}
		before = c
	}
	return append(to, '"')
}
