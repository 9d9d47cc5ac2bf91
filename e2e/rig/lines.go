package rig

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// Lines reads a stream line by line. It never makes the writer wait, and what nobody has asked for yet is
// kept in b alone: a test may start hundreds of commands, so there is no large buffer for each.
type Lines struct {
	T    testing.TB
	C    chan string // of the lines, one after the other; closed at EOF
	came chan struct{}
	mu   sync.Mutex
	b    bytes.Buffer
	eof  bool

	early  []string // to be read before what comes by c
	beside *Lines   // the process's other stream, which a failure quotes
}

func NewLines(t testing.TB, r io.Reader) *Lines {
	l := &Lines{T: t, C: make(chan string), came: make(chan struct{}, 1)}
	over := make(chan struct{})
	t.Cleanup(func() { close(over) })
	go l.read(r)
	go l.pass(over)
	return l
}

// read takes in what there is, whole lines at a time.
func (l *Lines) read(r io.Reader) {
	in := bufio.NewReader(r)
	for {
		line, err := in.ReadSlice('\n')
		if bytes.HasPrefix(line, []byte("fini: ")) {
			line = Ageless(line)
		}
		l.mu.Lock()
		l.b.Write(line)
		l.eof = err != nil && err != bufio.ErrBufferFull
		eof := l.eof
		l.mu.Unlock()
		select {
		case l.came <- struct{}{}:
		default:
		}
		if eof {
			return
		}
	}
}

// Ageless takes out how old a leftover is, which a line tells if it is older than ten seconds: none here is meant to be,
// but on a slow machine it may be.
func Ageless(line []byte) []byte { return ages.ReplaceAll(line, nil) }

var ages = regexp.MustCompile(`, (\d+[hms])+ old\b`)

// pass hands the lines on until the test is over.
func (l *Lines) pass(over <-chan struct{}) {
	defer close(l.C)
	for from := 0; ; {
		l.mu.Lock()
		var text string
		rest, eof := l.b.Bytes()[from:], l.eof
		line, _, whole := bytes.Cut(rest, []byte("\n"))
		if whole || eof {
			text = string(line)
		}
		l.mu.Unlock()
		switch {
		case whole:
			from += len(text) + 1
		case eof && text == "":
			return
		case eof:
			from += len(text)
		default:
			select {
			case <-l.came:
			case <-over:
				return
			}
			continue
		}
		select {
		case l.C <- text:
		case <-over:
			return
		}
	}
}

func (l *Lines) Text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// Whole reads to EOF and returns everything that came, what was read before too.
func (l *Lines) Whole() string {
	l.T.Helper()
	for {
		if _, ok := l.Next(); !ok {
			return l.Text()
		}
	}
}

// Next is the next line; ok is false at EOF.
func (l *Lines) Next() (line string, ok bool) {
	l.T.Helper()
	if len(l.early) > 0 {
		line, l.early = l.early[0], l.early[1:]
		return line, true
	}
	for w := new(Wait); ; {
		select {
		case line, ok = <-l.C:
			return line, ok
		case <-time.After(100 * time.Millisecond):
		}
		if w.Over(Enough) {
			l.T.Fatalf("no line and no EOF; so far: %q", l.Text())
		}
	}
}

// Want reads lines up to one that begins with prefix, and returns what follows it.
func (l *Lines) Want(prefix string) string {
	l.T.Helper()
	for {
		line, ok := l.Next()
		if !ok {
			l.T.Fatalf("EOF before a line that begins with %q; so far: %q%s", prefix, l.Text(), l.other())
		}
		if rest, ok := strings.CutPrefix(line, prefix); ok {
			return strings.TrimSpace(rest)
		}
	}
}

// other quotes what came to the other stream, if there is one.
func (l *Lines) other() string {
	if l.beside == nil {
		return ""
	}
	return fmt.Sprintf("; and beside it: %q", l.beside.Whole())
}

// WantPID is want for a line whose rest is a number.
func (l *Lines) WantPID(prefix string) int {
	l.T.Helper()
	rest := l.Want(prefix)
	pid, err := strconv.Atoi(rest)
	if err != nil {
		l.T.Fatalf("no pid behind %q: %q", prefix, rest)
	}
	return pid
}

// Launched is the pid of the fini that a launcher has started, which it says when that may have
// started the command already: what the command has said by then is left to be read.
func (l *Lines) Launched() int {
	l.T.Helper()
	var early []string
	for {
		line, ok := l.Next()
		if !ok {
			l.T.Fatalf("EOF before the launcher's line; so far: %q", l.Text())
		}
		if text, ok := strings.CutPrefix(line, "fini "); ok {
			pid, err := strconv.Atoi(text)
			if err != nil {
				l.T.Fatalf("the launcher says %q", line)
			}
			l.early = early
			return pid
		}
		early = append(early, line)
	}
}

// Rest reads to EOF.
func (l *Lines) Rest() (all []string) {
	l.T.Helper()
	for {
		line, ok := l.Next()
		if !ok {
			return all
		}
		all = append(all, line)
	}
}
