package orphans

import (
	"bytes"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// This file lets nobody be held by a read below /proc/PID. The kernel may make such a read wait for that
// process, without a bound and for no signal but SIGKILL: see the package's comment. So a thread of its
// own reads, and is left behind if it does not come back.

// Threads is how many threads reading may take beside the one on which a Tree is used: the
// watchdog's, and those that were left behind.
const Threads = 1 + mostLost

const (
	// So many readers may be left behind at a time. After that nothing is read below /proc/PID until one of
	// them comes back: children are found by waitid(2), as where there is no /proc.
	mostLost = 2

	// Without a step between two of these ticks a reader is looked at, and after so many of them it is left
	// behind whatever it does.
	readerTick = 50 * time.Millisecond
	mostTicks  = 200
)

// ask has a job done by a reader, on a sight of its own, and takes over what that has become. The job must
// neither touch what is the caller's nor signal anybody: it may go on, some day, after it was given up.
// A process at which a reader was left behind is stuck from then on, and the job is begun again.
func ask[T any](t *Tree, job func(*sight) T) T {
	for {
		answer := new(T) // one for each reader
		if t.attempt(func(s *sight) { *answer = job(s) }) {
			return *answer
		}
	}
}

// ask2 is ask for two answers.
func ask2[T, U any](t *Tree, job func(*sight) (T, U)) (T, U) {
	type both struct {
		one T
		two U
	}
	answer := ask(t, func(s *sight) (b both) {
		b.one, b.two = job(s)
		return b
	})
	return answer.one, answer.two
}

// attempt reports whether a job was done, and not given up.
func (t *Tree) attempt(job func(*sight)) (done bool) {
	s := t.sight
	if t.proc >= 0 {
		pid, done := readers.run(&s, job)
		if done {
			s.progress = nil
			t.sight = s
			return true
		}
		if pid != notTried {
			if t.OnLost != nil {
				runtime.LockOSThread() // for good: it has what the thread before had
				readers.apart = true
				t.OnLost()
			}
			t.buf = make([]byte, len(t.buf))
			t.pidfds = append([]int(nil), t.pidfds...)
			t.getsStuck(pid)
			return false
		}
		// Nothing is read any more.
		s.proc, s.childrenOnly = -1, true
	}
	job(&s)
	s.proc, s.childrenOnly = t.proc, t.childrenOnly
	t.sight = s
	return true
}

// How much is read of a process at which a reader was left behind.
const (
	nameOnly = 1 // its name, its threads and their children
	nothing  = 2 // nor those
)

// getsStuck notes that a reader was left behind at a process. Another sight may have the map as it was.
func (t *Tree) getsStuck(pid int) {
	stuck := map[int]int{pid: nameOnly}
	for other, how := range t.stuck {
		if other == pid {
			how = nothing
		}
		stuck[other] = how
	}
	t.stuck = stuck
}

// errStuck is the error of a read of a stuck process that is not even begun.
const errStuck = unix.EBUSY

// mayRead says whether a file below /proc is read, and notes whose it is.
func (s *sight) mayRead(name string) error {
	pid, rest := 0, name
	for rest != "" && rest[0] >= '0' && rest[0] <= '9' {
		pid, rest = 10*pid+int(rest[0]-'0'), rest[1:]
	}
	if how := s.stuck[pid]; how == nothing || how == nameOnly && !readableOfStuck(rest) {
		return errStuck
	}
	if s.progress != nil {
		s.progress.pid.Store(int64(pid))
	}
	s.step()
	return nil
}

// readableOfStuck reports whether a file of a stuck process may be read all the same.
func readableOfStuck(rest string) bool {
	return rest == "/comm" || rest == "/task" || len(rest) > 9 && rest[len(rest)-9:] == "/children"
}

// step tells who waits for a reader that it goes on.
func (s *sight) step() {
	if s.progress != nil {
		s.progress.steps.Add(1)
	}
}

// progress is what a reader shows of itself.
type progress struct {
	thread atomic.Int64
	pid    atomic.Int64 // of which it reads
	steps  atomic.Int64
	over   atomic.Bool // it has done its job, or was left behind: whoever sets it decides
}

// readers are those of this process: threads are its own, and not a Tree's.
var readers = pool{ticks: mostTicks, timer: -1, bell: make(chan struct{}, 1), begun: make(chan struct{}, 1)}

type pool struct {
	lock  sync.Mutex
	once  sync.Once
	lost  atomic.Int32  // readers that were left behind
	ticks int           // after so many without a step that happens to one whatever it does
	apart bool          // who waits for a reader has a thread of its own
	last  int           // the thread of the reader before
	timer int           // rings the bell; -1 for none
	begun chan struct{} // the same without a timer
	bell  chan struct{}
}

// notTried is returned by run in place of a pid: as many readers as may be are left behind already.
const notTried = -1

// run has a job done, with the sight s. If the reader was left behind, ok is false and pid the process of
// which it reads.
func (p *pool) run(s *sight, job func(*sight)) (pid int, ok bool) {
	p.lock.Lock()
	defer p.lock.Unlock()
	if p.lost.Load() >= mostLost {
		return notTried, false
	}
	p.once.Do(p.begin)
	if p.apart {
		awaitRest(p.last)
	}
	select {
	case <-p.bell: // an old one
	default:
	}
	shown, done, kept := &progress{}, make(chan struct{}, 1), len(s.pidfds)
	s.progress = shown
	p.ring(readerTick)
	defer p.ring(0)
	go func() {
		runtime.LockOSThread()
		shown.thread.Store(int64(unix.Gettid()))
		job(s)
		runtime.UnlockOSThread()
		if shown.over.CompareAndSwap(false, true) {
			done <- struct{}{}
			return
		}
		for _, fd := range s.pidfds[kept:] {
			_ = unix.Close(fd)
		}
		p.lost.Add(-1)
	}()
	for last, ticks := int64(-1), 0; ; {
		select {
		case <-done:
			p.last = int(shown.thread.Load())
			return 0, true
		case <-p.bell:
			p.ring(readerTick)
		}
		if steps := shown.steps.Load(); steps != last {
			last, ticks = steps, 0
			continue
		}
		// It has made no step between two ticks. If it waits in the kernel, that was not for want of a
		// processor.
		if ticks++; !waits(int(shown.thread.Load())) && ticks < p.ticks {
			continue
		}
		pid := int(shown.pid.Load())
		if shown.over.CompareAndSwap(false, true) {
			p.lost.Add(1)
			return pid, false
		}
	}
}

// awaitRest waits until a thread that has handed the processor over sleeps. Until then the runtime can't give it
// anything to do, and would make another thread for the next reader, or abort if there can't be one. On a busy machine it
// may be interrupted just there, again and again. It does not wait for ever for a thread that does something else.
func awaitRest(thread int) {
	for range 1000 {
		if state := threadState(thread); state != 'R' {
			return
		}
		// To sleep gives the processor away, which sched_yield(2) need not do on a busy machine.
		moment := unix.Timespec{Nsec: 20e3}
		_, _, _ = unix.RawSyscall(unix.SYS_NANOSLEEP, uintptr(unsafe.Pointer(&moment)), 0, 0)
	}
}

// waits reports whether a thread of this process waits in the kernel for what no signal interrupts but SIGKILL. If it
// is runnable, or sleeps until the runtime lets it go on, the machine is busy. See proc_pid_stat(5).
func waits(thread int) bool {
	return threadState(thread) == 'D'
}

// threadState is the state of a thread of this process as in proc_pid_stat(5), 0 if that can't be told.
func threadState(thread int) byte {
	text := readAtOnce("/proc/self/task/" + strconv.Itoa(thread) + "/stat")
	if end := bytes.LastIndexByte(text, ')'); end >= 0 && end+2 < len(text) {
		return text[end+2]
	}
	return 0
}

// readAtOnce reads the beginning of a file of the kernel's, here and now: one that waits for no other process.
func readAtOnce(name string) []byte {
	fd, err := unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	defer func() { _ = unix.Close(fd) }()
	text := make([]byte, 256)
	n, _ := unix.Read(fd, text)
	return text[:max(n, 0)]
}

// begin starts the watchdog. It is no timer of the runtime's, which needs epoll(7); and it waits in the
// kernel already when a reader does, for whoever begins to wait keeps the only processor for a while.
func (p *pool) begin() {
	if fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_CLOEXEC); err == nil {
		const enoughFree = 8 // a look needs some more than the timer
		var limit unix.Rlimit
		if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) == nil && uint64(fd)+enoughFree <= limit.Cur {
			p.timer = fd
		} else {
			_ = unix.Close(fd)
		}
	}
	go p.watchdog(p.timer)
}

// watchdog rings the bell whenever the time has come.
func (p *pool) watchdog(timer int) {
	for {
		var count [8]byte
		if timer < 0 {
			<-p.begun
			after := unix.NsecToTimespec(int64(readerTick))
			_, _ = unix.Ppoll(nil, &after, nil)
		} else if _, err := unix.Read(timer, count[:]); err == unix.EINTR {
			continue
		}
		select {
		case p.bell <- struct{}{}:
		default:
		}
	}
}

// ring has the bell rung after that time, or for 0 not at all.
func (p *pool) ring(after time.Duration) {
	if p.timer >= 0 {
		_ = unix.TimerfdSettime(p.timer, 0, &unix.ItimerSpec{Value: unix.NsecToTimespec(int64(after))}, nil)
		return
	}
	if after != 0 {
		select {
		case p.begun <- struct{}{}:
		default:
		}
	}
}
