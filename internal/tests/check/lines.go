package check

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

// Lines reads a stream line by line. It never makes the writer wait, and keeps all that came in b alone: a test may start
// hundreds of commands, so there is no large buffer for each.
type Lines struct {
	T    testing.TB
	came chan struct{}
	mu   sync.Mutex
	b    bytes.Buffer
	from int // what was not handed on yet
	eof  bool

	early  []string // to be handed on before that
	Beside *Lines   // the process's other stream, which a failure quotes
}

func NewLines(t testing.TB, r io.Reader) *Lines {
	l := &Lines{T: t, came: make(chan struct{}, 1)}
	go l.read(bufio.NewReader(r))
	return l
}

// read takes in what there is, whole lines at a time.
func (l *Lines) read(in *bufio.Reader) {
	for eof := false; !eof; {
		line, err := in.ReadSlice('\n')
		if bytes.HasPrefix(line, []byte("fini: ")) {
			line = Ageless(line)
		}
		eof = err != nil && err != bufio.ErrBufferFull
		l.mu.Lock()
		l.b.Write(line)
		l.eof = eof
		l.mu.Unlock()
		select {
		case l.came <- struct{}{}:
		default:
		}
	}
}

// Ageless takes out how old a leftover is, which a line tells if it is older than ten seconds: none here is meant to be,
// but on a slow machine it may be.
func Ageless(line []byte) []byte { return ages.ReplaceAll(line, nil) }

var ages = regexp.MustCompile(`, (\d+[hms])+ old\b`)

// Text is all that came so far.
func (l *Lines) Text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// EOF reports whether the stream has ended.
func (l *Lines) EOF() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.eof
}

// Whole reads to EOF and returns everything that came, what was read before too.
func (l *Lines) Whole() string {
	l.T.Helper()
	l.Rest()
	return l.Text()
}

// Next is the next line; ok is false at EOF.
func (l *Lines) Next() (line string, ok bool) {
	l.T.Helper()
	if len(l.early) > 0 {
		line, l.early = l.early[0], l.early[1:]
		return line, true
	}
	for w := new(Wait); ; {
		if line, ok, known := l.take(); known {
			return line, ok
		}
		select {
		case <-l.came:
		case <-time.After(100 * time.Millisecond):
			if w.Over(Enough) {
				l.T.Fatalf("no line and no EOF; so far: %q", l.Text())
			}
		}
	}
}

// take is Next, if that is known.
func (l *Lines) take() (line string, ok, known bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	text, _, whole := bytes.Cut(l.b.Bytes()[l.from:], []byte("\n"))
	switch {
	case whole:
		l.from += len(text) + 1
	case l.eof:
		l.from += len(text)
	default:
		return "", false, false
	}
	return string(text), whole || len(text) > 0, true
}

// Want reads lines up to one that begins with prefix, and returns what follows it.
func (l *Lines) Want(prefix string) string {
	l.T.Helper()
	for {
		line, ok := l.Next()
		if !ok && l.Beside != nil {
			l.T.Fatalf("EOF before a line that begins with %q; so far: %q; and beside it: %q", prefix, l.Text(), l.Beside.Whole())
		}
		if !ok {
			l.T.Fatalf("EOF before a line that begins with %q; so far: %q", prefix, l.Text())
		}
		if rest, ok := strings.CutPrefix(line, prefix); ok {
			return strings.TrimSpace(rest)
		}
	}
}

// WantNext wants the next line to be this one.
func (l *Lines) WantNext(line string) {
	l.T.Helper()
	if got, ok := l.Next(); !ok || got != line {
		l.T.Fatalf("the next line is %q (EOF: %t), want %q", got, !ok, line)
	}
}

// WantPID is Want for a line whose rest is a number.
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
func (l *Lines) Launched() (pid int) {
	l.T.Helper()
	for early := []string(nil); ; {
		line, ok := l.Next()
		if !ok {
			l.T.Fatalf("EOF before the launcher's line; so far: %q", l.Text())
		}
		if n, _ := fmt.Sscanf(line, "fini %d", &pid); n == 1 {
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
