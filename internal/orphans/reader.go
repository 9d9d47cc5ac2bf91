package orphans

import (
	"bytes"
	"cmp"
	"runtime"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-126c5d8a/fini/internal/proc"
)

// This file reads the details. Such a read may wait in the kernel: see the package's comment. So a goroutine reads them,
// the reader. If a process holds up the reader, the caller goes on without the details, and asks for no others until
// the reader is back.

const (
	// The reader is held up if it has made no step for this time and is in state D: see proc_pid_stat(5).
	held = 100 * time.Millisecond
	// In any state the reader is held up after this time without a step, as on a machine that is too busy to run it.
	tooBusy = time.Second
)

type reader struct {
	busy   atomic.Bool
	thread atomic.Int64 // of the last step
	steps  atomic.Int64
	buf    [4 << 10]byte
}

func (r *reader) step() {
	r.thread.Store(int64(unix.Gettid()))
	r.steps.Add(1)
}

// ask has the reader do a job for each of some processes. If a process holds up the reader, ask returns only the
// answers for the processes before it. A job must not touch the caller's data, because it may still run after ask
// returns.
//
// Go code has one processor, so Gosched runs the job on the caller's own thread, which costs no switch. If a read waits,
// the runtime runs the caller on one of its idle threads: see makeThreads in package host.
func ask[T any](t *Tree, of []Process, job func(f *files, p Process) T) []T {
	r := t.reader
	if len(of) == 0 || t.Dir < 0 || r.busy.Load() {
		return nil
	}
	answers := make([]T, len(of))
	var done atomic.Int64
	var over atomic.Bool
	f := &files{proc.Files{Dir: t.Dir, Buf: r.buf[:], Step: r.step}}
	r.busy.Store(true)
	go func() {
		for i := 0; i < len(of) && !over.Load(); i++ {
			answers[i] = job(f, of[i])
			done.Add(1)
		}
		r.busy.Store(false)
	}()
	since, last := time.Now(), r.steps.Load() // the last step
	for pause := 20 * time.Microsecond; ; pause = min(2*pause, 2*time.Millisecond) {
		runtime.Gosched()
		if !r.busy.Load() {
			break
		}
		if steps := r.steps.Load(); steps != last {
			last, since = steps, time.Now()
		} else if waits := time.Since(since); waits >= tooBusy || waits >= held && t.readerIsStuck() || waits >= heldShortly && t.late() {
			break
		}
		if t.late() {
			over.Store(true) // the reader still finishes with one process
		}
		proc.Rest(pause)
	}
	over.Store(true)
	n := int(done.Load())
	if n < len(of) && !t.surveyTime.is() {
		if k := of[n].kept; k != nil {
			k.silent = true
		}
	}
	return answers[:n]
}

// readerIsStuck reports whether the reader's thread is in uninterruptible sleep.
func (t *Tree) readerIsStuck() bool {
	s, _ := t.StatusIn("self/task/" + strconv.Itoa(int(t.reader.thread.Load())))
	return s.State == 'D'
}

// facts are the details of a process that a look needs, besides the place of the process in the tree.
type facts struct {
	start time.Duration
	exe   string // see executable
	holds Holding
	gone  bool // it has ended before holds was known
}

// Details describe a leftover to a person. Each detail is empty if it is unknown.
type Details struct {
	Variables map[string]string // the requested variables; nil if fini may not read its environment
	Listens   []string          // as "127.0.0.1:3000", "[::1]:80", "/run/a.sock" or "@abstract"; nil if unknown
	Dir       string            // its working directory, the first KiB of it
	OtherDir  bool              // Dir is not the directory in which this process was started
}

// askFacts adds the facts from the reader to each process. It keeps them, and has them read again only if Pipes is set
// or the process has executed another program. The reader skips a process in uninterruptible sleep or inside execve(2).
func (t *Tree) askFacts(found []Process) {
	var pending []*Process
	for i := range found {
		if p := &found[i]; p.State != '?' && p.Alive() && t.wantsFacts(p) {
			pending = append(pending, p)
		}
	}
	const tries = 4
	for try := 0; len(pending) > 0 && try < tries; try++ {
		if try > 0 {
			proc.Rest(time.Millisecond << try) // most processes leave these states soon
		}
		var of []Process
		var waiting []*Process
		for _, p := range pending {
			if try > 0 && p.thread == p.Pid {
				if s, err := t.Status(p.Pid); err == nil {
					p.State, p.Name, p.code = s.State, s.Name, s.Code
				}
			}
			if p.State == 'D' || proc.InExec(p.code) {
				waiting = append(waiting, p)
			} else {
				of = append(of, *p)
			}
		}
		streams, withExe := t.streams, len(t.patterns) > 0
		for n, told := range ask(t, of, func(f *files, p Process) (told facts) { return f.facts(p, streams, withExe) }) {
			p, k := of[n], of[n].kept
			if told.gone {
				t.lost = t.lost || p.Parent != t.self && k.mayLeaveHolder()
			}
			if k.facts != nil {
				told.start = k.facts.start // the start time identifies the process
			}
			k.facts, k.name, k.code = &told, p.Name, p.code
		}
		pending = waiting
	}
	for i := range found {
		p := &found[i]
		p.Holds = mayHold(t.streams)
		if told := p.kept.facts; told != nil {
			p.Start, p.Holds = told.start, told.holds
		}
	}
}

func (t *Tree) wantsFacts(p *Process) bool {
	k := p.kept
	switch {
	case k.silent:
		return false
	case k.facts == nil:
		return !k.signaled
	}
	return t.Pipes || k.name != p.Name || k.code != p.code
}

func (f *files) facts(p Process, streams [2]stream, withExe bool) (told facts) {
	stat, _ := f.Read(strconv.Itoa(p.Pid) + "/stat")
	told.start = proc.ParseStart(stat)
	if withExe {
		told.exe = f.executable(p.dir())
	}
	told.holds, told.gone = f.holds(p.dir(), streams)
	return told
}

// CommandLine is the argument vector of a process that the last Look has found, joined by spaces and cut after
// 4 KiB. If there are no arguments to show, CommandLine is what it was in an earlier look, or the name of the process. It
// is read once in each look, because nothing else shows that a process has executed another script by the same program.
func (t *Tree) CommandLine(p Process) string {
	k := p.kept
	if k.lineOf != t.looks || k.line == "" {
		k.lineOf = t.looks
		for _, line := range ask(t, t.quiet(p), (*files).commandLine) {
			k.line = cmp.Or(line, k.line)
		}
	}
	return cmp.Or(k.line, p.Name)
}

// commandLine reads memory of the process. The read takes a lock that the process holds while it changes its mappings,
// and such a change may wait for the server of a mapped file. See proc_pid_cmdline(5).
func (f *files) commandLine(p Process) string {
	text, _ := f.Read(p.dir() + "/cmdline")
	return string(bytes.ReplaceAll(bytes.TrimRight(text, "\x00"), []byte{0}, []byte{' '}))
}

// quiet leaves out each process that has a thread in uninterruptible sleep, because such a thread may hold a lock for
// which the reader would wait.
func (t *Tree) quiet(some ...Process) []Process {
	return slices.DeleteFunc(slices.Clone(some), func(p Process) bool {
		if p.kept.silent || p.State == '?' || p.State == 'Z' {
			return true
		}
		waits := false
		p.kept.runs = false
		err := t.List(strconv.Itoa(p.Pid)+"/task", func(tid int) bool {
			s, err := t.StatusIn(strconv.Itoa(p.Pid) + "/task/" + strconv.Itoa(tid))
			waits = t.late() || err == nil && (s.State == 'D' || proc.InExec(s.Code))
			p.kept.runs = p.kept.runs || err == nil && s.State == 'R'
			return !waits
		})
		return err != nil || waits
	})
}

// persist reads some processes, and reads again those that are not done and still run: each of the tries is twice as far
// from the one before. Often some thread of a large process is in uninterruptible sleep, for a moment only.
func (t *Tree) persist(tries int, pending []Process, read func(quiet []Process), done func(Process) bool) {
	for try := range tries {
		read(t.quiet(pending...))
		pending = slices.DeleteFunc(slices.Clone(pending), func(p Process) bool {
			if done(p) || p.kept.silent {
				return true
			}
			s, err := t.Status(p.Pid)
			return err != nil || s.State == 'Z'
		})
		if len(pending) == 0 || try == tries-1 || t.late() {
			return
		}
		proc.Rest(2 * time.Millisecond << try)
	}
}

// maxDetailed is the largest number of processes whose details are read at once.
const maxDetailed = 1000

// Details returns the details of a process that the last Look has found, with these variables. The first call reads the
// details of all processes that the look has found, before fini signals any of them, because a process may close its
// sockets when another process ends.
func (t *Tree) Details(p Process, variables []string) Details {
	if p.kept.details == nil {
		var of []Process
		unknown := &Details{}
		for _, other := range append([]Process{p}, t.found...) {
			if k := other.kept; k.details == nil && len(of) < maxDetailed && (k == p.kept || !other.Allowed) {
				k.details = unknown
				of = append(of, other)
			}
		}
		var listening map[string]string
		startDir := t.StartDir
		t.persist(5, of, func(quiet []Process) {
			for i, told := range ask(t, quiet, func(f *files, p Process) Details {
				return f.details(p.dir(), variables, startDir, &listening)
			}) {
				quiet[i].kept.details = &told
			}
		}, func(p Process) bool { return p.kept.details != unknown })
	}
	return *p.kept.details
}

func (f *files) details(dir string, variables []string, startDir string, listening *map[string]string) (told Details) {
	told.Listens, told.Dir = f.listens(dir, listening), f.Link(dir+"/cwd")
	told.OtherDir = told.Dir != "" && startDir != "" && told.Dir != startDir
	told.Dir = told.Dir[:min(len(told.Dir), maxDir)]
	if found, err := f.environ(dir, variables); err == nil {
		told.Variables = found
	}
	return told
}

// The bytes to read of an environment, and to keep of a value, at most.
const (
	maxEnviron = 256 << 10
	maxValue   = 1 << 10
)

// environ is the environment that a process got when it executed its program, reduced to the variables of these names.
// Like the arguments, the environment is memory of the process: see commandLine. So the process may have overwritten
// the environment since. See proc_pid_environ(5).
func (f *files) environ(dir string, names []string) (map[string]string, error) {
	found := map[string]string{}
	err := f.Each(dir+"/environ", 0, maxEnviron, func(variable []byte, _ bool) (more bool) {
		name, value, ok := bytes.Cut(variable, []byte("="))
		_, known := found[string(name)] // if a name comes twice, the first value counts, as for getenv(3)
		if ok && !known && slices.Contains(names, string(name)) {
			found[string(name)] = string(value[:min(len(value), maxValue)])
		}
		return true
	})
	return found, err
}
