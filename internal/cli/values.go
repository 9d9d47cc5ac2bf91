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

// This file reads the values of flags and variables. Each kind of value has one function, and one message.

// kinds has the mappers, by the tag type of a field or else by its type.
var kinds = map[string]kong.MapperFunc{
	"Duration": each(duration),
	"words":    words,
	"string":   each(func(text string) (string, error) { return text, nil }), // kong's own changes what is not UTF-8
	"deathsig": each(deathsig),
	"signals":  each(stopSignals),
	"pid":      each(pid),
	"status":   each(status),
	"pattern":  each(pattern),
	"rewrite":  each(rewrite),
	"file":     each(file),
}

// each returns the mapper of a value. The values of a repeatable flag are collected.
func each[T any](read func(text string) (T, error)) kong.MapperFunc {
	return func(ctx *kong.DecodeContext, target reflect.Value) error {
		token := ctx.Scan.Pop()
		texts, isList := token.Value.([]string)       // of a variable
		if text, _ := token.Value.(string); !isList { // "" at the end of the line
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

// words takes all words that are left. Kong's own mapper for strings would change what is not UTF-8.
func words(ctx *kong.DecodeContext, target reflect.Value) error {
	for !ctx.Scan.Peek().IsEOL() {
		target.Set(reflect.Append(target, reflect.ValueOf(ctx.Scan.Pop().String())))
	}
	return nil
}

// accept returns an error that names what is wanted, unless the value is all right.
func accept(right bool, value, want string) error {
	if right {
		return nil
	}
	return fmt.Errorf("cannot use %q: want %s", value, want)
}

// file reads the path of a file. Another flag, or "--", is none.
func file(text string) (string, error) {
	isFlag := strings.HasPrefix(text, "-") && text != "-"
	return text, accept(text != "" && !isFlag, text, "a PATH, or ./PATH if it begins with a dash")
}

func status(text string) (int, error) {
	n, err := strconv.ParseUint(text, 10, 8)
	return int(n), accept(err == nil, text, "an exit status from 0 to 255")
}

// pid reads the number of one process. Numbers that kill(2) takes for a group, or for all processes, are not accepted.
func pid(text string) (int, error) {
	n, err := strconv.ParseUint(text, 10, 31)
	return int(n), accept(err == nil && n > 0, text, "the pid of a process")
}

// duration reads a duration of Go's, or a number of seconds or days, even "inf".
func duration(text string) (time.Duration, error) {
	// A deadline this far away does not overflow, and is as good as no deadline.
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
	kept := min(math.Ceil(nanoseconds), float64(most)) // rounded up, because 0 may mean never
	return time.Duration(kept), accept(err == nil && kept >= 0, text, "a duration such as 500ms, 5s or 1m, a number of seconds, or 1d")
}

// deathsig reads a signal, or "none" as 0.
func deathsig(text string) (syscall.Signal, error) {
	sig, err := signals.Parse(text)
	if err != nil && !strings.EqualFold(text, "none") {
		return 0, fmt.Errorf("%w; or none", err)
	}
	return sig, nil
}

// stopSignals reads one signal, or several with commas between them.
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

// A Rewrite says that fini forwards the signal From as To, or drops it if To is 0.
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

// pattern reads a pattern of --allow-orphan. The user writes it as in glob(7); it is kept as path.Match reads it.
func pattern(text string) (string, error) {
	p := strings.NewReplacer(`\\`, `\\`, `\[`, `\[`, "[!", "[^").Replace(text)
	_, err := path.Match(p, "")
	line, ofLine := strings.CutPrefix(text, "cmd:")
	variable, ofVariable := strings.CutPrefix(text, "env:")
	// A path or a list would never match a name, and fini would not warn.
	right := text != "" && text[0] != '-' && !strings.ContainsAny(text, "/,")
	switch {
	case ofLine:
		right = line != ""
	case ofVariable:
		right = strings.Index(variable, "=") > 0
	}
	return p, accept(err == nil && right, text,
		"the name of a program, a pattern of names such as gpg-*, cmd:PATTERN or env:NAME=VALUE, and the flag again for the next")
}
