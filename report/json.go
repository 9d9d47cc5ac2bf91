package report

import (
	"strconv"
	"time"
	"unicode/utf8"
)

// json is the record in the format of docs/report.schema.json. json writes field by field: package encoding/json
// looks up the type of each field at run time, which took a fifth of the time of a short run.
func (r *record) json() []byte {
	j := &jsonText{}
	j.object(func() {
		j.key("version").int(2) // of the schema
		j.key("fini").string(r.Fini)
		list(j.key("command"), r.Command, j.string)
		j.key("commandCut").bool(r.Cut)
		j.key("isolated").bool(r.Isolated)
		j.key("pid").int(r.Pid)
		j.key("started").time(r.Started)
		orNull(j.key("ended"), r.Ended, j.time)
		j.key("finished").time(r.Finished)
		j.key("status").int(r.Status)
		orNull(j.key("error"), r.Error, j.string)
		orNull(j.key("exit"), r.Exit, func(x exit) {
			j.object(func() {
				orNull(j.key("code"), x.Code, j.int)
				orNull(j.key("signal"), x.Signal, j.string)
				orNull(j.key("oom"), x.OOM, j.oom)
			})
		})
		orNull(j.key("stopped"), r.Stopped, j.string)
		list(j.key("signals"), r.Signals, j.signal)
		j.key("signalsOmitted").int(r.MoreSignals)
		list(j.key("leftovers"), r.Leftovers, j.leftover)
		j.key("leftoversOmitted").int(r.MoreLeftovers)
		j.key("reaped").int(r.Reaped)
		j.key("seconds").object(func() {
			// A duration is null if fini did not see its beginning or its end.
			var command, leftovers *float64
			if r.Ended != nil {
				command, leftovers = seconds(r.Ended.Sub(r.Started)), seconds(r.Finished.Sub(*r.Ended))
			}
			orNull(j.key("command"), command, j.float)
			orNull(j.key("leftovers"), leftovers, j.float)
			j.key("total").float(*seconds(r.Finished.Sub(r.Started)))
		})
		j.key("usage").object(func() {
			j.key("userSeconds").float(float64(r.Used.Utime.Nano()/1000) / 1e6)
			j.key("systemSeconds").float(float64(r.Used.Stime.Nano()/1000) / 1e6)
			j.key("maxRSSBytes").float(float64(r.Used.Maxrss) * 1024)
		})
	})
	return append(j.text, '\n')
}

func (j *jsonText) signal(s signal) {
	j.object(func() {
		j.key("at").time(s.At)
		j.key("signal").string(s.Signal)
		orNull(j.key("sender"), s.Sender, j.ancestor)
	})
}

func (j *jsonText) leftover(l *leftover) {
	j.object(func() {
		j.key("pid").int(l.Pid)
		j.key("command").string(l.Command)
		j.key("commandCut").bool(l.Cut)
		j.key("allowed").bool(l.Allowed)
		orNull(j.key("started"), l.Started, j.time)
		list(j.key("startedBy"), l.StartedBy, j.ancestor)
		orNull(j.key("owner"), l.Owner, func(o Owner) {
			j.object(func() {
				j.key("pid").int(o.Pid)
				j.key("name").string(o.Name)
				j.key("command").string(o.Command)
			})
		})
		list(j.key("context"), l.Context, func(m Mark) { j.texts("variable", m.Variable, "value", m.Value) })
		orNull(j.key("group"), l.Group, j.int)
		orNull(j.key("session"), l.Session, j.int)
		list(j.key("holds"), l.Holds, j.string)
		list(j.key("listens"), l.Listens, j.string)
		orNull(j.key("cwd"), l.Dir, j.string)
		orNull(j.key("user"), l.User, j.int)
		list(j.key("sent"), l.Sent, j.string)
		orNull(j.key("ended"), l.Ended, j.string)
		orNull(j.key("oom"), l.OOM, j.oom)
		orNull(j.key("ageSeconds"), l.Age, j.float)
		orNull(j.key("outlivedSeconds"), l.Outlived, j.float)
	})
}

func (j *jsonText) ancestor(a Ancestor) {
	j.object(func() {
		j.key("pid").int(a.Pid)
		j.key("name").string(a.Name)
	})
}

func (j *jsonText) oom(o oom) { j.texts("verdict", o.Verdict, "reason", o.Reason) }

func (j *jsonText) texts(key, text, nextKey, nextText string) {
	j.object(func() {
		j.key(key).string(text)
		j.key(nextKey).string(nextText)
	})
}

// A jsonText grows value by value, on lines indented by their depth.
type jsonText struct {
	text  []byte
	depth int
	comma string // the text before the next value of an object or a list
}

// item begins the line of the next value.
func (j *jsonText) item(comma string) {
	j.text = append(append(j.text, comma...), '\n')
	for range j.depth {
		j.text = append(j.text, "  "...)
	}
	j.comma = ","
}

// within writes brackets around the output of inside.
func (j *jsonText) within(brackets string, inside func()) {
	j.text = append(j.text, brackets[0])
	j.depth, j.comma = j.depth+1, ""
	inside()
	if j.depth--; j.comma != "" {
		j.item("")
	}
	j.text, j.comma = append(j.text, brackets[1]), ","
}

func (j *jsonText) object(fields func()) { j.within("{}", fields) }

func (j *jsonText) key(name string) *jsonText {
	j.item(j.comma)
	j.string(name)
	j.text = append(j.text, ": "...)
	return j
}

// list writes null for a list that is nil.
func list[T any](j *jsonText, items []T, write func(T)) {
	if items == nil {
		j.text = append(j.text, "null"...)
		return
	}
	j.within("[]", func() {
		for _, item := range items {
			j.item(j.comma)
			write(item)
		}
	})
}

func orNull[T any](j *jsonText, value *T, write func(T)) {
	if value == nil {
		j.text = append(j.text, "null"...)
		return
	}
	write(*value)
}

func (j *jsonText) bool(b bool)     { j.text = strconv.AppendBool(j.text, b) }
func (j *jsonText) int(n int)       { j.text = strconv.AppendInt(j.text, int64(n), 10) }
func (j *jsonText) float(f float64) { j.text = strconv.AppendFloat(j.text, f, 'f', -1, 64) }

// time writes a time in UTC, which needs no time zone file.
func (j *jsonText) time(t time.Time) {
	j.text = t.UTC().AppendFormat(j.text, `"`+time.RFC3339Nano+`"`)
}

// string writes U+FFFD for each byte that is not UTF-8.
func (j *jsonText) string(s string) {
	const hex = "0123456789abcdef"
	j.text = append(j.text, '"')
	for i := 0; i < len(s); {
		switch c := s[i]; {
		case c >= utf8.RuneSelf:
			r, size := utf8.DecodeRuneInString(s[i:])
			j.text = utf8.AppendRune(j.text, r)
			i += size
			continue
		case c == '"' || c == '\\':
			j.text = append(j.text, '\\', c)
		case c < ' ':
			j.text = append(j.text, `\u00`...)
			j.text = append(j.text, hex[c>>4], hex[c&0xf])
		default:
			j.text = append(j.text, c)
		}
		i++
	}
	j.text = append(j.text, '"')
}
