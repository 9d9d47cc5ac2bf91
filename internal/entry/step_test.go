package entry

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

var acts = []struct {
	act  Act
	word string
}{
	{Relay, "relay"}, {TellParent, "tell parent's death"}, {Continue, "continue"}, {ContinueJob, "continue job"}, {Suspend, "suspend"}, {Kill, "kill"},
	{Hold, "hold"}, {Listen, "listen"}, {LetGo, "let go"}, {AwaitEnd, "await end"},
	{Exit, "exit"}, {StartRuntime, "start runtime"},
}

// String is the acts of a set in words.
func (a Act) String() string {
	var words []string
	for _, one := range acts {
		if a&one.act != 0 {
			words = append(words, one.word)
		}
	}
	return strings.Join(words, ", ")
}

const outerPid = 20

func said(kind Kind, value, flags uint32) Seen {
	return Seen{What: Said, Message: Message{Kind: kind, Value: value, Job: flags}}
}

func sent(sig unix.Signal, sender int) Seen {
	return Seen{What: Signalled, Signal: uint32(sig), Sender: sender}
}

// exited and killed are the end of the inner fini; with others the outer fini has other children.
func exited(code uint32) Seen     { return Seen{What: Ended, Status: code << 8} }
func killed(sig unix.Signal) Seen { return Seen{What: Ended, Status: uint32(sig)} }
func others(e Seen) Seen          { e.Children = true; return e }

// TestStep has a case for each row of the table over Sleeper, and for each pair of them whose order matters.
func TestStep(t *testing.T) {
	var (
		started     = said(Started, 30, 0)
		inJob       = said(Started, 30, InJob)
		orphanedJob = said(Started, 30, InJob|Orphaned)
		starting    = said(Starting, 0, 0)
		done        = said(Done, 3<<8, 0)
		waited      = Seen{What: Waited}
		parentDied  = Seen{What: ParentEnded}
		hungUp      = Seen{What: HungUp}
		timeUp      = Seen{What: TimeUp, Status: uint32(unix.SIGKILL)}
		ignoring    = Sleeper{Ignored: 1 << (unix.SIGINT - 1)}
	)
	for _, tt := range []struct {
		name   string
		s      Sleeper
		seen   []Seen
		acts   string // what follows each of these
		status uint32 // by which the outer fini ends
	}{
		{"a message: no pair", Sleeper{}, []Seen{said(BeAlone, 0, 0), hungUp, exited(0)}, "; await end; start runtime", 0},
		{"a message: no pair, with other children", Sleeper{}, []Seen{said(BeAlone, 0, 0), hungUp, others(exited(0))}, "; await end; start runtime", 0},
		{"a message: the command runs", Sleeper{}, []Seen{started}, "let go", 0},
		{"a message: the work is done", Sleeper{}, []Seen{started, done}, "let go; ", 3 << 8},
		{"messages of the outer fini mean nothing to it", Sleeper{}, []Seen{said(Signal, 15, 0), said(ParentDied, 0, 0), said(0, 0, 0), said(99, 0, 0)}, "; ; ; ", 0},

		{"TERM before Starting", Sleeper{}, []Seen{sent(unix.SIGTERM, 7), hungUp, killed(unix.SIGKILL)}, "kill; await end; exit", uint32(unix.SIGTERM)},
		{"INT of the terminal before Starting", Sleeper{}, []Seen{sent(unix.SIGINT, 0), hungUp, killed(unix.SIGKILL)}, "kill; await end; exit", uint32(unix.SIGINT)},
		{"the first terminating signal counts", Sleeper{}, []Seen{sent(unix.SIGHUP, 7), sent(unix.SIGQUIT, 7), hungUp, killed(unix.SIGKILL)}, "kill; kill; await end; exit", uint32(unix.SIGHUP)},
		{"a signal that was ignored before Started", ignoring, []Seen{sent(unix.SIGINT, 7), started}, "; let go", 0},
		{"another signal before Started waits", Sleeper{}, []Seen{sent(unix.SIGUSR1, 7), started, sent(unix.SIGUSR1, 7)}, "; let go; relay", 0},
		{"TERM, and the inner fini exits all the same", Sleeper{}, []Seen{sent(unix.SIGTERM, 7), hungUp, exited(127)}, "kill; await end; exit", uint32(unix.SIGTERM)},
		{"TERM, and there are other children", Sleeper{}, []Seen{sent(unix.SIGTERM, 7), hungUp, others(killed(unix.SIGKILL))}, "kill; await end; start runtime", uint32(unix.SIGKILL)},
		{"TERM, and Started was under way", Sleeper{}, []Seen{sent(unix.SIGTERM, 7), started, hungUp, killed(unix.SIGKILL)}, "kill; let go; await end; start runtime", uint32(unix.SIGKILL)},
		{"TERM, and Started and Done were under way", Sleeper{}, []Seen{sent(unix.SIGTERM, 7), started, done, hungUp, killed(unix.SIGKILL)}, "kill; let go; ; await end; exit", 3 << 8},
		{"TERM, and the inner fini asks for no pair", Sleeper{}, []Seen{sent(unix.SIGTERM, 7), said(BeAlone, 0, 0), hungUp, exited(0)}, "kill; ; await end; exit", uint32(unix.SIGTERM)},
		{"TERM after the inner fini has asked for no pair", Sleeper{}, []Seen{said(BeAlone, 0, 0), hungUp, sent(unix.SIGTERM, 7), exited(0)}, "; await end; kill; exit", uint32(unix.SIGTERM)},
		{"TERM, and a fork is asked for that has other children", Sleeper{}, []Seen{said(BeAlone, 0, 0), sent(unix.SIGTERM, 7), hungUp, others(exited(0))}, "; kill; await end; start runtime", 0},

		{"a signal after Starting", Sleeper{}, []Seen{starting, sent(unix.SIGTERM, 7), started, sent(unix.SIGTERM, 7)}, "hold; ; let go; relay, continue", 0},
		{"SIGCHLD after Starting", Sleeper{}, []Seen{starting, sent(unix.SIGCHLD, 21), started}, "hold; ; let go", 0},
		{"a second since Starting", Sleeper{}, []Seen{starting, waited, sent(unix.SIGTERM, 7), hungUp, killed(unix.SIGKILL)}, "hold; listen; kill; await end; exit", uint32(unix.SIGTERM)},
		{"a second since Starting, and the command runs", Sleeper{}, []Seen{starting, waited, started, sent(unix.SIGTERM, 7)}, "hold; listen; let go; relay, continue", 0},
		{"the command can't be executed", Sleeper{}, []Seen{starting, hungUp, exited(126)}, "hold; await end; exit", 126 << 8},
		{"the inner fini was killed after Starting", Sleeper{}, []Seen{starting, hungUp, others(killed(unix.SIGKILL))}, "hold; await end; start runtime", uint32(unix.SIGKILL)},

		{"a signal", Sleeper{}, []Seen{started, sent(unix.SIGUSR1, 7)}, "let go; relay", 0},
		{"a terminating signal", Sleeper{}, []Seen{started, sent(unix.SIGTERM, 7)}, "let go; relay, continue", 0},
		{"a key of the terminal", Sleeper{}, []Seen{inJob, sent(unix.SIGINT, 0)}, "let go; relay, continue", 0},
		{"a terminating signal that was ignored", ignoring, []Seen{started, sent(unix.SIGINT, 7)}, "let go; relay", 0},
		{"a signal after a terminating one", Sleeper{}, []Seen{started, sent(unix.SIGTERM, 7), sent(unix.SIGWINCH, 7)}, "let go; relay, continue; relay, continue", 0},
		{"SIGCHLD", Sleeper{}, []Seen{sent(unix.SIGCHLD, 21), started, sent(unix.SIGCHLD, 21)}, "; let go; ", 0},
		{"the inner fini is stopped after a terminating signal", Sleeper{}, []Seen{started, sent(unix.SIGTERM, 7), sent(unix.SIGCHLD, 21)}, "let go; relay, continue; continue", 0},

		{"TSTP", Sleeper{}, []Seen{started, sent(unix.SIGTSTP, 0)}, "let go; relay", 0},
		{"TSTP in a job, which waited for Started", Sleeper{}, []Seen{inJob, sent(unix.SIGTSTP, 0)}, "let go; relay, suspend", 0},
		{"TTIN in an orphaned job, which waited for Started", Sleeper{}, []Seen{orphanedJob, sent(unix.SIGTTIN, 0)}, "let go; relay, suspend", 0},
		{"TSTP in a job that is to end", Sleeper{}, []Seen{parentDied, inJob, sent(unix.SIGTSTP, 0)}, "tell parent's death, continue; let go; relay, continue", 0},
		{"TSTP in an orphaned job", Sleeper{Self: outerPid}, []Seen{orphanedJob, sent(unix.SIGTSTP, 0), sent(unix.SIGCONT, outerPid)}, "let go; continue job; ", 0},
		{"TSTP in an orphaned job, before Started", Sleeper{Self: outerPid}, []Seen{sent(unix.SIGTSTP, 0), orphanedJob, sent(unix.SIGTSTP, 0)}, "; let go; continue job", 0},
		{"CONT of another process in an orphaned job", Sleeper{Self: outerPid}, []Seen{orphanedJob, sent(unix.SIGCONT, 7)}, "let go; relay", 0},
		{"CONT of this process in another job", Sleeper{Self: outerPid}, []Seen{inJob, sent(unix.SIGCONT, outerPid)}, "let go; relay", 0},

		{"the parent process has died", Sleeper{}, []Seen{started, parentDied}, "let go; tell parent's death, continue", 0},
		{"the parent process has died before Started", Sleeper{}, []Seen{parentDied, started}, "tell parent's death, continue; let go", 0},
		{"a signal after the parent's death", Sleeper{}, []Seen{started, parentDied, sent(unix.SIGUSR1, 7)}, "let go; tell parent's death, continue; relay, continue", 0},
		{"the inner fini is stopped after the parent's death", Sleeper{}, []Seen{started, parentDied, sent(unix.SIGCHLD, 21)}, "let go; tell parent's death, continue; continue", 0},

		{"the inner fini has done its work", Sleeper{}, []Seen{started, done, hungUp, exited(3)}, "let go; ; await end; exit", 3 << 8},
		{"the command was killed", Sleeper{}, []Seen{started, said(Done, uint32(unix.SIGSEGV), 0), hungUp, exited(139)}, "let go; ; await end; exit", uint32(unix.SIGSEGV)},
		{"the inner fini was killed after Done", Sleeper{}, []Seen{started, done, hungUp, killed(unix.SIGKILL)}, "let go; ; await end; exit", 3 << 8},
		{"the inner fini exits before Started", Sleeper{}, []Seen{hungUp, exited(127)}, "await end; exit", 127 << 8},
		{"the inner fini exits before Started, with other children", Sleeper{}, []Seen{hungUp, others(exited(127))}, "await end; exit", 127 << 8},
		{"the inner fini was killed before Started", Sleeper{}, []Seen{hungUp, killed(unix.SIGKILL)}, "await end; start runtime", uint32(unix.SIGKILL)},
		{"the inner fini was killed", Sleeper{}, []Seen{started, hungUp, others(killed(unix.SIGKILL))}, "let go; await end; start runtime", uint32(unix.SIGKILL)},
		{"the runtime of the inner fini gave up", Sleeper{}, []Seen{started, hungUp, exited(2)}, "let go; await end; start runtime", 2 << 8},

		{"no end within the bound", Sleeper{}, []Seen{started, hungUp, timeUp}, "let go; await end; start runtime", uint32(unix.SIGKILL)},
		{"no end within the bound, after Done", Sleeper{}, []Seen{started, done, hungUp, timeUp}, "let go; ; await end; exit", 3 << 8},
		{"no end within the bound, before Started", Sleeper{}, []Seen{hungUp, timeUp}, "await end; start runtime", uint32(unix.SIGKILL)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := tt.s
			var got []string
			for _, e := range tt.seen {
				got = append(got, s.Step(e).String())
			}
			if got := strings.Join(got, "; "); got != tt.acts {
				t.Errorf("acts %q, want %q", got, tt.acts)
			}
			if s.Status != tt.status {
				t.Errorf("status %#x, want %#x", s.Status, tt.status)
			}
		})
	}
}
