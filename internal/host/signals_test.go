package host

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"github.com/seed-126c5d8a/fini/internal/entry"
	"github.com/seed-126c5d8a/fini/internal/life"
	"github.com/seed-126c5d8a/fini/internal/orphans"
	"github.com/seed-126c5d8a/fini/internal/tests/check"
	"github.com/seed-126c5d8a/fini/internal/tests/procfs"
	"github.com/seed-126c5d8a/fini/signals"
	"golang.org/x/sys/unix"
)

// bare is a system that has started nothing and catches nothing. socket leads to the outer fini; -1 for none.
func bare(socket int) *system {
	return &system{Logger: Logger{life.Always}, socket: Socket{socket}, mainFD: -1, terminal: -1, caught: &signals.Catcher{FD: -1},
		tree: orphans.New()}
}

// A signal that came before the command was there is reported at once, as such.
func TestEarlySignals(t *testing.T) {
	end, _ := check.Socketpair(t)
	early := []signals.Received{{Signal: unix.SIGINT, FromKernel: true}, {Signal: unix.SIGTERM, Sender: os.Getpid()}, {Signal: unix.SIGCHLD}}
	want := []life.Signal{{Received: early[0], Early: true}, {Received: early[1], Early: true}}
	silent, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK) // nobody makes it readable
	check.NoError(t, err)
	for _, socket := range []int{-1, int(end.Fd())} {
		k := bare(socket)
		k.early, k.caught.FD = early, silent
		until := k.Now() + 20*time.Second
		check.Equal(t, fmt.Sprint("with the socket ", socket), k.Wait(until, true), life.Woken{Signals: want})
		check.Equal(t, "it waits although there are signals", k.Now() >= until, false)
		check.Equal(t, "what the next Wait reports", k.early, []signals.Received(nil))
	}
	_ = unix.Close(silent)
}

// A sender belongs to the tree if it is the command, even after that was reaped, or a child of the command's.
func TestSenderOfTheTree(t *testing.T) {
	const gone = 1 << 30 // no pid is that large
	k := bare(-1)
	k.rules.Job = 1
	k.tree.Allow(nil, gone)
	for got, want := range map[signals.Received]bool{
		{Sender: gone}:                              true,
		{Sender: gone + 1, Parent: gone}:            true,
		{Sender: gone + 1, Parent: gone + 2}:        false,
		{Sender: os.Getppid()}:                      false,
		{Sender: os.Getppid(), Parent: os.Getpid()}: false,
		{}: false,
	} {
		check.Equal(t, fmt.Sprintf("%+v is of the tree", got), k.signal(got, false, true).OfTree, want)
	}
	k.tree.Allow(nil, 0) // as in a pause
	check.Equal(t, "without a command, it is of the tree", k.signal(signals.Received{Sender: gone}, false, true).OfTree, false)
}

// At its end an inner fini continues the outer fini, which may have been suspended with the command: only in a job, and only
// if the outer fini is still its parent process.
func TestOuterIsContinued(t *testing.T) {
	const asked = "FINI_TEST_EXIT"
	if text := os.Getenv(asked); text != "" { // the inner fini, whose parent process is the test
		k := bare(3)
		_, err := fmt.Sscan(text, &k.self.Pid, &k.rules.Job)
		check.NoError(t, err)
		k.Exit(life.End{Result: life.Result{Code: 5}})
		os.Exit(0)
	}
	other := check.Bystander(t).Process.Pid
	check.MustKill(t, other, syscall.SIGSTOP)
	check.Until(t, "it is stopped", func() bool { return procfs.IsStopped(other) })
	got := make(chan os.Signal, 9)
	signal.Notify(got, syscall.SIGCONT, syscall.SIGWINCH)
	defer signal.Stop(got)
	for _, c := range []struct {
		name       string
		outer, job int
		want       bool
	}{
		{"in a job", os.Getpid(), 1, true},
		{"in a group of its own", os.Getpid(), 0, false},
		{"without its outer fini", other, 1, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			socket, outer := check.Socketpair(t)
			inner := exec.Command(os.Args[0], "-test.run=^TestOuterIsContinued$")
			inner.Env = append(os.Environ(), fmt.Sprintf("%s=%d %d", asked, c.outer, c.job))
			inner.ExtraFiles = []*os.File{socket}
			check.Equal(t, "what it says", check.Succeed(t, inner), "")
			messages, _ := socketOf(outer).Receive()
			check.Equal(t, "what it sends", messages, []entry.Message{{Kind: entry.Done, Value: 5 << 8}})
			// A SIGCONT is reported before this signal, whose number is greater.
			check.MustKill(t, os.Getpid(), syscall.SIGWINCH)
			continued := <-got == syscall.SIGCONT
			if continued {
				<-got
			}
			check.Equal(t, "the outer fini is continued", continued, c.want)
			check.Equal(t, "another process stays stopped", procfs.IsStopped(other), true)
		})
	}
}

// Only the message that the parent process has died is a reason to stop, whether that is told by a signal or not.
func TestHeard(t *testing.T) {
	for _, c := range []struct {
		kind     entry.Kind
		bySignal bool
		stop     bool
	}{
		{entry.ParentDied, true, true}, {entry.ParentDied, false, false}, {entry.Signal, true, false},
	} {
		near, far := check.Socketpair(t)
		socketOf(far).send(entry.Message{Kind: c.kind, Value: uint32(syscall.SIGUSR1)})
		k := bare(int(near.Fd()))
		k.bySignal = c.bySignal
		var woken life.Woken
		check.Equal(t, "the outer fini is alive", k.heard(&woken), true)
		check.Equal(t, fmt.Sprintf("message %d, with a signal %t, stops", c.kind, c.bySignal), len(woken.Stop) > 0, c.stop)
		check.Equal(t, "signals", len(woken.Signals) > 0, c.kind == entry.Signal)
	}
}
