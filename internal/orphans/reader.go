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

	"github.com/seed-126c5d8a/fini/internal/calls"
	"github.com/seed-126c5d8a/fini/internal/proc"
)

// This file reads details of processes. Such a read may hang in the kernel, as the package comment explains. The reader
// is the goroutine that makes these reads. If a process holds it up, the caller continues without the details, and
// doesn't ask for any others until the reader has returned.

const (
	// The reader is held up if it has made no step for this time and is in state D. See proc_pid_stat(5).
	held = 100 * time.Millisecond
	// In any other state, it is held up if it has made no step for this longer time, because a busy machine may not
	// have run it.
	tooBusy = time.Second
)

type reader struct {
	busy   atomic.Bool
	thread atomic.Int64 // the thread that made the last step
	steps  atomic.Int64
	buf    [4 << 10]byte
}

func (r *reader) step() {
	r.thread.Store(int64(unix.Gettid()))
	r.steps.Add(1)
}

// ask makes the reader run job for each of some processes. If a process holds up the reader, ask returns only the
// answers about the processes before it. job must not use data of the caller, because it may still be running when ask
// returns.
//
// GOMAXPROCS is 1, so Gosched runs job on the caller's own thread, without a context switch. If a read hangs, the
// runtime continues the caller on one of its idle threads. See makeThreads in package host.
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
	since, last := time.Now(), r.steps.Load() // time and number of the last step
	for pause := 20 * time.Microsecond; ; pause = min(2*pause, 2*time.Millisecond) {
		runtime.Gosched()
		if !r.busy.Load() {
			break
		}
		if steps := r.steps.Load(); steps != last {
			last, since = steps, time.Now()
		} else if waits := time.Since(since); waits >= tooBusy || waits >= held && t.readerIsStuck() ||
			waits >= heldShortly && t.late() {
			break
		}
		if t.late() {
			over.Store(true) // the reader still finishes the current process
		}
		calls.Rest(pause)
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

// facts are details of a process that every look needs.
type facts struct {
	start time.Duration
	exe   string // see files.executable
	holds Holding
	gone  bool // it exited before holds was known
}

// Details describe a leftover to a user. A detail that is unknown is empty.
type Details struct {
	Variables map[string]string // the requested variables, or nil if fini may not read the environment
	Listens   []string          // such as "127.0.0.1:3000", "[::1]:80", "/run/a.sock" or "@abstract"; nil if unknown
	Dir       string            // first KiB of its working directory
	OtherDir  bool              // Dir is not the directory where this process was started
}

// askFacts makes the reader read the facts of each process, unless they are known. It reads them again if Pipes is set
// or the process has executed another program. It skips processes in uninterruptible sleep or inside execve(2).
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
			calls.Rest(time.Millisecond << try) // most processes are only briefly in these states
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
				told.gone = k.mayLeaveHolder()
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
	if withExe {
		told.exe = f.executable(p.dir())
	}
	told.holds, told.gone = f.holds(p.dir(), streams)
	// Read these afterwards. A process that has begun to exit has no descriptors, but it may still have children.
	stat, _ := f.Read(strconv.Itoa(p.Pid) + "/stat")
	told.start = proc.ParseStart(stat)
	if p.thread != p.Pid {
		stat, _ = f.Read(p.dir() + "/stat")
	}
	told.gone = told.gone || proc.ParseExiting(stat)
	return told
}

// CommandLine returns the arguments of a process that the last Look found, joined by spaces and cut to 4 KiB. If there
// are none, it returns the result of an earlier look, or the name of the process. It reads the arguments once per look,
// because nothing else shows that a process has executed another script with the same program.
func (t *Tree) CommandLine(p Process) string {
	k := p.kept
	if k.cmdlineLook != t.looks || k.cmdline == "" {
		k.cmdlineLook = t.looks
		for _, cmdline := range ask(t, t.quiet(p), (*files).commandLine) {
			k.cmdline = cmp.Or(cmdline, k.cmdline)
		}
	}
	return cmp.Or(k.cmdline, p.Name)
}

// commandLine reads memory of the process. It may hang, because the process holds a lock while it changes its mappings,
// which may involve a file on a server that does not respond. See proc_pid_cmdline(5).
func (f *files) commandLine(p Process) string {
	text, _ := f.Read(p.dir() + "/cmdline")
	return string(bytes.ReplaceAll(bytes.TrimRight(text, "\x00"), []byte{0}, []byte{' '}))
}

// quiet returns the processes that have no thread in uninterruptible sleep. Such a thread may hold a lock that the
// reader would wait for.
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

// persist reads processes, and tries again with those that are not done and still alive. It waits twice as long before
// each try, because a thread of a large process is often in uninterruptible sleep, but only for a moment.
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
		calls.Rest(2 * time.Millisecond << try)
	}
}

// maxDetailed is how many processes Details reads at once.
const maxDetailed = 1000

// Details returns details of a process that the last Look found, with the given variables of its environment. The first
// call reads the details of all processes found, because a process may close its sockets when another one is signalled.
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

// maxEnviron limits how much of an environment is read, and maxValue how much of a value is kept, in bytes.
const (
	maxEnviron = 256 << 10
	maxValue   = 1 << 10
)

// environ returns the variables with the given names from the environment that a process received from execve(2). Like
// the command line, this is memory of the process, so the process may have changed it. See proc_pid_environ(5).
func (f *files) environ(dir string, names []string) (map[string]string, error) {
	found := map[string]string{}
	err := f.Each(dir+"/environ", 0, maxEnviron, func(variable []byte, _ bool) (more bool) {
		name, value, ok := bytes.Cut(variable, []byte("="))
		_, known := found[string(name)] // the first value of a name counts, as for getenv(3)
		if ok && !known && slices.Contains(names, string(name)) {
			found[string(name)] = string(value[:min(len(value), maxValue)])
		}
		return true
	})
	return found, err
}
