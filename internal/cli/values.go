package cli

import (
	"fmt"
	"math"
	"path"
	"reflect"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"github.com/seed-126c5d8a/fini/signals"
)

// This file parses the values of flags and variables. Each kind of value has a function and an error message.

// kinds maps types to parsers. The type of a flag is its tag "type", or without that tag the name of its Go type.
var kinds = map[string]kong.MapperFunc{
	"Duration":      mapper(duration),
	"orphanTimeout": mapper(orphanTimeout),
	"words":         words,
	// kong's own parser replaces invalid UTF-8
	"string":   mapper(func(text string) (string, error) { return text, nil }),
	"deathsig": mapper(deathsig),
	"signals":  mapper(stopSignals),
	"pid":      mapper(pid),
	"status":   mapper(status),
	"pattern":  mapper(pattern),
	"rewrite":  mapper(rewrite),
	"file":     mapper(file),
}

// mapper returns a kong mapper that parses values with read. For a repeatable flag, it collects all values.
func mapper[T any](read func(text string) (T, error)) kong.MapperFunc {
	return func(ctx *kong.DecodeContext, target reflect.Value) error {
		token := ctx.Scan.Pop()
		texts, isList := token.Value.([]string)       // if it comes from a variable
		if text, _ := token.Value.(string); !isList { // "" if the command line ends here
			texts = []string{text}
		}
		for _, text := range texts {
			value, err := read(text)
			if err != nil {
				return err
			}
			switch to := target.Addr().Interface().(type) {
			case *T:
				*to = value
			case **T:
				**to = value
			case *[]T:
				*to = append(*to, value)
			}
		}
		return nil
	}
}

// words takes all remaining words. kong's own mapper for strings would replace invalid UTF-8.
func words(ctx *kong.DecodeContext, target reflect.Value) error {
	for !ctx.Scan.Peek().IsEOL() {
		target.Set(reflect.Append(target, reflect.ValueOf(ctx.Scan.Pop().String())))
	}
	return nil
}

// accept returns nil if the value is right, and otherwise an error that says what is wanted.
func accept(right bool, value, want string) error {
	if right {
		return nil
	}
	return fmt.Errorf("cannot use %q: want %s", value, want)
}

// file parses the name of a file. It rejects flags and "--", which mean that the user forgot the name.
func file(text string) (string, error) {
	isFlag := strings.HasPrefix(text, "-") && text != "-"
	return text, accept(text != "" && !isFlag, text, "a PATH, or ./PATH if it begins with a dash")
}

func status(text string) (int, error) {
	n, err := strconv.ParseUint(text, 10, 8)
	return int(n), accept(err == nil, text, "an exit status from 0 to 255")
}

// pid parses the pid of one process. It rejects 0 and negative numbers, with which kill(2) signals a group.
func pid(text string) (int, error) {
	n, err := strconv.ParseUint(text, 10, 31)
	return int(n), accept(err == nil && n > 0, text, "the pid of a process")
}

// duration parses a duration as in Go, a number of seconds, or days such as 1d. It also accepts "inf".
func duration(text string) (time.Duration, error) {
	// No life lasts longer than this limit, which keeps deadlines from overflowing.
	const most = 100 * 365 * 24 * time.Hour
	number, unit := text, time.Second
	if days, found := strings.CutSuffix(text, "d"); found {
		number, unit = days, 24*time.Hour
	}
	value, err := strconv.ParseFloat(number, 64)
	nanoseconds := value * float64(unit)
	if parsed, notGo := time.ParseDuration(text); notGo == nil {
		nanoseconds, err = float64(parsed), nil
	}
	kept := min(math.Ceil(nanoseconds), float64(most)) // round up, because 0 may mean never
	return time.Duration(kept), accept(err == nil && kept >= 0, text,
		"a duration such as 500ms, 5s or 1m, a number of seconds, or 1d")
}

// orphanTimeout parses the duration of --orphan-timeout. It rejects very short ones, because many programs start a
// daemon and then communicate with it.
func orphanTimeout(text string) (time.Duration, error) {
	value, err := duration(text)
	if err == nil {
		err = accept(value == 0 || value >= 100*time.Millisecond, text, "a duration of at least 100ms, or 0 for none")
	}
	return value, err
}

// deathsig parses a signal. It returns 0 for "none".
func deathsig(text string) (syscall.Signal, error) {
	sig, err := signals.Parse(text)
	if err != nil && !strings.EqualFold(text, "none") {
		return 0, fmt.Errorf("%w; or none", err)
	}
	return sig, nil
}

// stopSignals parses a comma-separated list of signals.
func stopSignals(text string) (all []syscall.Signal, err error) {
	for name := range strings.SplitSeq(text, ",") {
		sig, err := signals.Parse(name)
		if err != nil {
			return nil, err
		}
		all = append(all, sig)
	}
	return all, nil
}

// A Rewrite tells fini to forward signal From as To, or to drop it if To is 0.
type Rewrite struct{ From, To syscall.Signal }

func rewrite(text string) (r Rewrite, err error) {
	from, to, found := strings.Cut(text, ":")
	if !found {
		return r, accept(false, text, "FROM:TO, such as TERM:QUIT or HUP:0")
	}
	if r.From, err = signals.Parse(from); err != nil {
		return r, err
	}
	if !signals.Catchable(r.From) {
		return r, fmt.Errorf("cannot use %q: %s can't be caught", text, signals.Name(r.From))
	}
	if r.To, err = signals.Parse(to); err != nil && to != "0" {
		return r, fmt.Errorf("%w; or 0", err)
	}
	return r, nil
}

// pattern parses a pattern of --allow-orphan. It converts the syntax of glob(7) to that of path.Match.
func pattern(text string) (string, error) {
	p := strings.NewReplacer(`\\`, `\\`, `\[`, `\[`, "[!", "[^").Replace(text)
	_, err := path.Match(p, "")
	line, ofLine := strings.CutPrefix(text, "cmd:")
	variable, ofVariable := strings.CutPrefix(text, "env:")
	// Reject paths and lists, because they would silently never match a name.
	right := text != "" && text[0] != '-' && !strings.ContainsAny(text, "/,")
	switch {
	case ofLine:
		right = line != ""
	case ofVariable:
		right = strings.Index(variable, "=") > 0
	}
	return p, accept(err == nil && right, text,
		"the name of a program, a pattern of names such as gpg-*, cmd:PATTERN or env:NAME=VALUE, and the flag again for "+
			"the next")
}
