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

// Lines reads a stream line by line and never blocks the writer. It has no large buffer besides b, because a test may
// start hundreds of commands.
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

// read reads whatever has arrived, in whole lines.
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

// Ageless removes the age of a leftover from a line. fini writes the age only if it is more than ten seconds, which
// happens in tests on a slow machine.
func Ageless(line []byte) []byte { return ages.ReplaceAll(line, nil) }

var ages = regexp.MustCompile(`, (\d+[hms])+ old\b`)

// Text returns everything that has arrived so far.
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

// Whole reads to EOF and returns everything, including lines that were read before.
func (l *Lines) Whole() string {
	l.T.Helper()
	l.Rest()
	return l.Text()
}

// Next returns the next line. ok is false at EOF.
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

// take returns the next line if it has arrived.
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

// Want skips lines until one begins with prefix, and returns the rest of that line.
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

// WantNext asserts that this is the next line.
func (l *Lines) WantNext(line string) {
	l.T.Helper()
	if got, ok := l.Next(); !ok || got != line {
		l.T.Fatalf("the next line is %q (EOF: %t), want %q", got, !ok, line)
	}
}

// WantPID is like Want, but the rest of the line must be a number.
func (l *Lines) WantPID(prefix string) int {
	l.T.Helper()
	rest := l.Want(prefix)
	pid, err := strconv.Atoi(rest)
	if err != nil {
		l.T.Fatalf("no pid behind %q: %q", prefix, rest)
	}
	return pid
}

// Launched returns the pid of the fini that a launcher has started. The launcher may write it after the command has
// written something, which can still be read afterwards.
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
