package entry

import (
	"fmt"
	"strings"
	"testing"

	"github.com/seed-126c5d8a/fini/internal/tests/check"
	"golang.org/x/sys/unix"
)

// String is the acts of a set in words.
func (a Act) String() string {
	var words []string
	for i, word := range strings.Split("relay, tell parent's death, continue, suspend, kill, let go, be stoppable, bound, exit, start runtime", ", ") {
		if a>>i&1 != 0 {
			words = append(words, word)
		}
	}
	return strings.Join(words, ", ")
}

func said(kind Kind, value uint32, inJob bool) Event {
	return Event{Event: MessageRead, Message: Message{Kind: kind, Value: value, InJob: inJob}}
}

func sent(sig unix.Signal, sender int32) Event {
	return Event{Event: SignalRead, Message: Message{Value: uint32(sig), Sender: sender}}
}

// parents is the signal if the parent process has died.
func parents(e Event) Event { e.ParentDied = true; return e }

// bySignal is a parent process without a pidfd.
var bySignal = Parent{Pid: 10, FD: -1}

// exited and killed are the end of the inner fini; with others the outer fini has other children.
func exited(code uint32) Event     { return Event{Event: Ended, Message: Message{Value: code << 8}} }
func killed(sig unix.Signal) Event { return Event{Event: Ended, Message: Message{Value: uint32(sig)}} }
func others(e Event) Event         { e.Children = true; return e }

// TestStep has a case for each row of the table over Sleeper, and for each pair of them whose order matters.
func TestStep(t *testing.T) {
	var (
		started    = said(Started, 30, false)
		inJob      = said(Started, 30, true)
		starting   = said(Starting, 0, false)
		done       = said(Done, 3<<8, false)
		waited     = Event{Event: WaitOver}
		parentDied = Event{Event: PidfdReadable}
		hungUp     = said(HungUp, 0, false)
		beAlone    = said(BeAlone, 0, false)
		wasKilled  = killed(unix.SIGKILL)
		term, usr1 = sent(unix.SIGTERM, 7), sent(unix.SIGUSR1, 7)
		tstp, chld = sent(unix.SIGTSTP, 0), sent(unix.SIGCHLD, 21)
		byTERM     = uint32(unix.SIGTERM)
		byKILL     = uint32(unix.SIGKILL)
		ignoring   = Sleeper{Ignored: 1 << (unix.SIGINT - 1)}
	)
	for _, tt := range []struct {
		name   string
		s      Sleeper
		seen   []Event
		acts   string // what follows each of these
		status uint32 // by which the outer fini ends
	}{
		{"a message: no pair", Sleeper{}, []Event{beAlone, hungUp, exited(0)}, "; bound; start runtime", 0},
		{"a message: no pair, with other children", Sleeper{}, []Event{beAlone, hungUp, others(exited(0))}, "; bound; start runtime", 0},
		{"messages of the outer fini mean nothing to it", Sleeper{}, []Event{said(Signal, 15, false), said(ParentDied, 0, false), said(0, 0, false), said(99, 0, false)}, "; ; ; ", 0},

		{"TERM before Starting", Sleeper{}, []Event{term, hungUp, wasKilled}, "kill; bound; exit", byTERM},
		{"the first terminating signal counts", Sleeper{}, []Event{sent(unix.SIGHUP, 7), sent(unix.SIGQUIT, 7), hungUp, wasKilled}, "kill; kill; bound; exit", uint32(unix.SIGHUP)},
		{"a signal that was ignored before Started", ignoring, []Event{sent(unix.SIGINT, 7), started}, "; let go", 0},
		{"another signal before Started waits", Sleeper{}, []Event{usr1, started, usr1}, "; let go; relay", 0},
		{"TERM, and there are other children", Sleeper{}, []Event{term, hungUp, others(wasKilled)}, "kill; bound; start runtime", byKILL},
		{"TERM, and Started was under way", Sleeper{}, []Event{term, started, hungUp, wasKilled}, "kill; let go; bound; start runtime", byKILL},
		{"TERM, and Started and Done were under way", Sleeper{}, []Event{term, started, done, hungUp, wasKilled}, "kill; let go; ; bound; exit", 3 << 8},
		{"TERM, and the inner fini asks for no pair", Sleeper{}, []Event{term, beAlone, hungUp, exited(0)}, "kill; ; bound; exit", byTERM},
		{"TERM after the inner fini has asked for no pair", Sleeper{}, []Event{beAlone, hungUp, term, exited(0)}, "; bound; kill; exit", byTERM},
		{"TERM, and a fork is asked for that has other children", Sleeper{}, []Event{beAlone, term, hungUp, others(exited(0))}, "; kill; bound; start runtime", 0},

		{"signals after Starting", Sleeper{}, []Event{starting, chld, term, started, term}, "bound; ; ; let go; relay, continue", 0},
		{"a second since Starting", Sleeper{}, []Event{starting, waited, term, hungUp, wasKilled}, "bound; ; kill; bound; exit", byTERM},
		{"a second since Starting, and the command runs", Sleeper{}, []Event{starting, waited, started, term}, "bound; ; let go; relay, continue", 0},
		{"the command can't be executed", Sleeper{}, []Event{starting, hungUp, exited(126)}, "bound; bound; exit", 126 << 8},
		{"the inner fini was killed after Starting", Sleeper{}, []Event{starting, hungUp, others(wasKilled)}, "bound; bound; start runtime", byKILL},

		{"a signal", Sleeper{}, []Event{chld, started, chld, usr1}, "; let go; ; relay", 0},
		{"a key of the terminal", Sleeper{}, []Event{inJob, sent(unix.SIGINT, 0)}, "let go; relay, continue", 0},
		{"a terminating signal that was ignored", ignoring, []Event{started, sent(unix.SIGINT, 7)}, "let go; relay", 0},
		{"a terminating signal, another one, and the inner fini is stopped", Sleeper{},
			[]Event{started, term, sent(unix.SIGWINCH, 7), chld}, "let go; relay, continue; relay, continue; continue", 0},

		{"a signal, and the socket is full", Sleeper{Last: Writable, Main: 30}, []Event{{}, usr1}, "continue, bound; relay", 0},

		{"TSTP", Sleeper{}, []Event{started, tstp}, "let go; relay", 0},
		{"TSTP in a job, which waited for Started", Sleeper{}, []Event{inJob, tstp}, "let go; relay, suspend, be stoppable", 0},
		{"TTIN in a job, which waited for Started", Sleeper{}, []Event{inJob, sent(unix.SIGTTIN, 0)}, "let go; relay, suspend, be stoppable", 0},
		{"TSTP in a job that is to end", Sleeper{}, []Event{parentDied, inJob, tstp}, "continue; let go; relay, continue", 0},

		{"the parent process has died, without pidfds", Sleeper{Parent: bySignal}, []Event{started, sent(ParentSignal, 7), parents(sent(ParentSignal, 7))}, "let go; ; tell parent's death, continue", 0},
		{"the parent process has died, and is outside of the namespace", Sleeper{Parent: Parent{FD: -1}},
			[]Event{started, parents(sent(ParentSignal, 7)), parents(sent(ParentSignal, 0)), usr1},
			"let go; relay; tell parent's death, continue; relay, continue", 0},
		{"another signal without pidfds", Sleeper{Parent: bySignal}, []Event{started, parents(usr1)}, "let go; relay", 0},
		{"ParentSignal with a pidfd", Sleeper{Parent: Parent{Pid: 10}}, []Event{started, parents(sent(ParentSignal, 7))}, "let go; relay", 0},
		{"the parent process has died before Started", Sleeper{}, []Event{parentDied, started}, "continue; let go", 0},
		{"the parent process has died, a signal comes, and the inner fini is stopped", Sleeper{},
			[]Event{started, parentDied, usr1, chld}, "let go; continue; relay, continue; continue", 0},

		{"the inner fini has done its work", Sleeper{}, []Event{started, done, hungUp, exited(3)}, "let go; ; bound; exit", 3 << 8},
		{"the command was killed", Sleeper{}, []Event{started, said(Done, uint32(unix.SIGSEGV), false), hungUp, exited(139)}, "let go; ; bound; exit", uint32(unix.SIGSEGV)},
		{"the inner fini was killed after Done", Sleeper{}, []Event{started, done, hungUp, wasKilled}, "let go; ; bound; exit", 3 << 8},
		{"the inner fini exits before Started", Sleeper{}, []Event{hungUp, exited(127)}, "bound; exit", 127 << 8},
		{"the inner fini exits before Started, with other children", Sleeper{}, []Event{hungUp, others(exited(127))}, "bound; exit", 127 << 8},
		{"the inner fini was killed before Started", Sleeper{}, []Event{hungUp, wasKilled}, "bound; start runtime", byKILL},
		{"the inner fini was killed", Sleeper{}, []Event{started, hungUp, others(wasKilled)}, "let go; bound; start runtime", byKILL},
		{"the runtime of the inner fini gave up", Sleeper{}, []Event{started, hungUp, exited(2)}, "let go; bound; start runtime", 2 << 8},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := tt.s
			var got []string
			for _, e := range tt.seen {
				act := s.Step(&e)
				if e.Event == SignalRead {
					act = s.Step(&Event{Event: Writable, ParentDied: e.ParentDied})
				}
				got = append(got, act.String())
				s.Early = false // no signal has come before
			}
			check.Equal(t, "its acts", strings.Join(got, "; "), tt.acts)
			check.Equal(t, "its status", s.Status, tt.status)
		})
	}
}

// TestNext has what the outer fini looks for from one wait to the next. What it finds has a plus, and what it does is in
// brackets.
func TestNext(t *testing.T) {
	var (
		names  = [...]string{"wait", "signal", "message", "second", "parent", "room", "end"}
		room   = Event{Event: Writable}
		hungUp = said(HungUp, 0, false)
		usr1   = sent(unix.SIGUSR1, 7)
	)
	for _, tt := range []struct {
		name   string
		s      Sleeper
		there  []Event
		want   string
		sender int32 // of the signal that is relayed
	}{
		{"nothing", Sleeper{}, nil, "signal message parent wait", 0},
		{"nothing, without pidfds", Sleeper{Parent: bySignal}, nil, "signal message wait", 0},
		{"the parent's end is seen once", Sleeper{}, []Event{{Event: PidfdReadable}, said(Done, 0, false)}, "signal message parent+(continue) wait signal message+ message wait", 0},
		{"messages", Sleeper{}, []Event{said(Starting, 0, false), said(Done, 0, false)}, "signal message+(bound) message+ message second parent wait", 0},
		{"a signal comes before a message", Sleeper{Main: 30}, []Event{usr1, said(Done, 0, false), room}, "signal+ message+ message parent room+(relay) wait", 7},
		{"a signal waits for Started", Sleeper{Starting: true}, []Event{usr1}, "signal+ message second parent wait", 7},
		{"a signal has waited for Started", Sleeper{Starting: true, Held: true, Signal: Message{Value: uint32(unix.SIGINT), Sender: FromKernel}},
			[]Event{said(Started, 30, false), room}, "message+(let go) room+(relay, continue) signal(be stoppable) message parent wait", 0},
		{"signals are pending when Started comes", Sleeper{}, []Event{said(Started, 30, true), sent(unix.SIGINT, FromKernel), room, usr1, room},
			"signal message+(let go) signal+ room+(relay, continue) signal+ room+(relay, continue) signal(be stoppable) message parent wait", 7},
		{"TSTP is pending, and another signal", Sleeper{}, []Event{said(Started, 30, true), sent(unix.SIGTSTP, FromKernel), room, sent(unix.SIGWINCH, FromKernel), room},
			"signal message+(let go) signal+ room+(relay, suspend, be stoppable) wait signal+ message parent room+(relay) wait", FromKernel},
		{"the socket is full", Sleeper{Main: 30, Held: true, Signal: usr1.Message}, nil, "message parent room(continue, bound) wait", 7},
		{"the socket is full when Started comes", Sleeper{}, []Event{said(Started, 30, false), usr1}, "signal message+(let go) signal+ room(continue, be stoppable, bound) wait", 7},
		{"the socket hangs up", Sleeper{}, []Event{hungUp}, "signal message+(bound) parent end wait", 0},
		{"a signal comes before the hang-up", Sleeper{Starting: true}, []Event{sent(unix.SIGCHLD, 21), hungUp, room, exited(0)}, "signal+ message+(bound) parent room+ end+(exit)", 21},
		{"a second since Starting, with a signal", Sleeper{Starting: true, Held: true, Signal: sent(unix.SIGTERM, 7).Message}, []Event{{Event: WaitOver}, room}, "message second+ parent room+(kill) wait", 7},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, got, act := tt.s, []string{}, Act(0)
			for act&(Exit|StartRuntime) == 0 && (len(got) == 0 || s.Last != Nothing || len(tt.there) > 0) && len(got) < 20 {
				e, word := Event{}, names[s.Next()]
				if len(tt.there) > 0 && tt.there[0].Event == s.Last {
					e, tt.there, word = tt.there[0], tt.there[1:], word+"+"
				}
				if act = s.Step(&e); act != 0 {
					word += "(" + act.String() + ")"
				}
				got = append(got, word)
			}
			check.Equal(t, "what it looks for", strings.Join(got, " "), tt.want)
			check.Equal(t, "the sender", s.Signal.Sender, tt.sender)
		})
	}
}

// TestTakes has the signals that the outer fini reads.
func TestTakes(t *testing.T) {
	set := func(signals ...unix.Signal) (bits uint64) {
		for _, sig := range signals {
			bits |= 1 << (sig - 1)
		}
		return bits
	}
	for _, tt := range []struct {
		s    Sleeper
		want uint64
	}{
		{Sleeper{Starting: true}, set(unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGCHLD)},
		{Sleeper{Ignored: set(unix.SIGINT)}, set(unix.SIGHUP, unix.SIGQUIT, unix.SIGTERM, unix.SIGCHLD)},
		{Sleeper{Parent: bySignal}, set(unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGCHLD, ParentSignal)},
		{Sleeper{Main: 30}, ^set()},
		{Sleeper{Main: 30, InJob: true, Early: true}, ^set()},
		{Sleeper{Main: 30, InJob: true}, ^set(unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU)},
	} {
		check.Equal(t, fmt.Sprintf("what %+v takes", tt.s), tt.s.Takes(), tt.want)
	}
}
