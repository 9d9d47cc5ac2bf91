package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seed-126c5d8a/fini/orphans"
	"github.com/seed-126c5d8a/fini/reaper"
)

const (
	mainPid = 100
	ms      = time.Millisecond
)

// One leftover of each kind that the step tells apart.
var (
	member   = orphans.Process{Pid: 201, Parent: 1, Group: mainPid, Session: 1, Name: "member", State: 'S', Start: 10 * ms}
	late     = orphans.Process{Pid: 202, Parent: 1, Group: mainPid, Session: 1, Name: "late", State: 'S', Start: 990 * ms}
	escapee  = orphans.Process{Pid: 203, Parent: 1, Group: 203, Session: 203, Name: "escapee", State: 'S', Start: 20 * ms}
	holder   = orphans.Process{Pid: 204, Parent: 1, Group: 204, Session: 204, Name: "holder", State: 'S', Start: 20 * ms, Holds: orphans.Stdout}
	inGroup  = orphans.Process{Pid: 205, Parent: 1, Group: mainPid, Session: 1, Name: "holder in group", State: 'S', Start: 20 * ms, Holds: orphans.Stderr}
	opaque   = orphans.Process{Pid: 206, Parent: 1, Group: 206, Session: 206, Name: "opaque", State: 'S', Start: 20 * ms, Holds: orphans.Unknown}
	sleeping = orphans.Process{Pid: 207, Parent: 1, Group: 207, Session: 207, Name: "stopped", State: 'T', Start: 20 * ms}
)

func defaults() rules {
	return rules{grace: 5 * time.Second, linger: 500 * ms, orphans: stopAll, orphansExit: -1, deathsig: syscall.SIGTERM}
}

// exited and signaled are wait(2) statuses.
func exited(code int) syscall.WaitStatus             { return syscall.WaitStatus(code << 8) }
func signaled(sig syscall.Signal) syscall.WaitStatus { return syscall.WaitStatus(sig) }

func reaped(none bool, pids ...int) ended {
	e := ended{none: none}
	for _, pid := range pids {
		e.exits = append(e.exits, reaper.Exit{Pid: pid, Status: exited(0)})
	}
	return e
}

func mainExits(status syscall.WaitStatus, none bool) ended {
	return ended{exits: []reaper.Exit{{Pid: mainPid, Status: status}}, none: none}
}

func mainStops(sig syscall.Signal) ended {
	return ended{exits: []reaper.Exit{{Pid: mainPid, Status: syscall.WaitStatus(int(sig)<<8 | 0x7f)}}}
}

func innerKilled(heir int) ended {
	return ended{exits: []reaper.Exit{{Pid: mainPid, Status: signaled(9)}}, heir: heir}
}

func found(p ...orphans.Process) looked { return looked{found: p} }

// text is a list of actions as the tables below write it.
func text(actions []action) string {
	var words []string
	for _, a := range actions {
		switch a := a.(type) {
		case forward:
			words = append(words, fmt.Sprintf("forward %d", a.sig))
		case suspend:
			words = append(words, fmt.Sprint("suspend ", int(a.sig)))
		case handOver:
			words = append(words, "hand over")
		case askStdin:
			words = append(words, "ask stdin")
		case look:
			words = append(words, "look")
		case send:
			words = append(words, fmt.Sprintf("%s<-%d", a.process.Name, a.sig))
		case kill:
			words = append(words, "kill")
		case wake:
			words = append(words, fmt.Sprint("wake ", a.after))
		case tell:
			if !a.quietly {
				words = append(words, fmt.Sprintf("(%s %s)", a.what, a.process.Name))
			}
		case say:
			if a.level < detail {
				words = append(words, fmt.Sprintf("say %q", a.text))
			}
		case exit:
			words = append(words, fmt.Sprint("exit ", a.status))
		default:
			panic(a)
		}
	}
	return strings.Join(words, ", ")
}

// A turn is one event and what the step must make of it.
type turn struct {
	at    time.Duration
	event event
	want  string
	then  phase
}

func TestStep(t *testing.T) {
	with := func(change func(*rules)) rules { r := defaults(); change(&r); return r }
	pipes := with(func(r *rules) { r.orphans = stopPipes })
	wait := with(func(r *rules) { r.orphans = waitAll })
	outer := with(func(r *rules) { r.outer, r.singleChild, r.linger = true, true, 0 })
	outerWait := with(func(r *rules) { r.outer, r.singleChild, r.linger, r.orphans = true, true, 0, waitAll })
	tests := []struct {
		name  string
		rules rules
		turns []turn
	}{
		{"a clean command needs no look and no wait", defaults(), []turn{
			{1, mainExits(exited(3), true), "exit 3", over},
			{2, elapsed{}, "", over},
		}},
		{"the signal that ended the command", defaults(), []turn{
			{1, mainExits(signaled(9), true), "exit 137", over},
		}},
		{"-e", with(func(r *rules) { r.remap = []int{3, 143} }), []turn{
			{1, mainExits(signaled(15), true), "exit 0", over},
		}},
		{"orphans that end while the command runs", defaults(), []turn{
			{1, reaped(false, 300, 301), "", running},
			{2, mainExits(exited(0), true), "exit 0", over},
		}},
		{"-w", with(func(r *rules) { r.warnReaped = true }), []turn{
			{1, reaped(false, 300), `say "reaped zombie 300"`, running},
		}},
		{"a signal is passed on and starts nothing", defaults(), []turn{
			{1, received{syscall.SIGTERM}, "forward 15", running},
			{2, received{syscall.SIGTERM}, "forward 15", running},
			{3, received{syscall.SIGWINCH}, "forward 28", running},
		}},
		{"leftovers that end while lingering", defaults(), []turn{
			{0, mainExits(exited(4), false), "wake 500ms", lingering},
			{10 * ms, reaped(false, 300), "", lingering},
			{20 * ms, reaped(true, 301), "exit 4", over},
		}},
		{"the whole way to the end", defaults(), []turn{
			{1000 * ms, mainExits(exited(4), false), "wake 500ms", lingering},
			{1500 * ms, elapsed{}, "look", asking},
			{1500 * ms, found(member, escapee), "(stopping member), member<-15, (stopping escapee), escapee<-15, wake 5ms", asking},
			{1505 * ms, elapsed{}, "look", asking},
			{1505 * ms, found(escapee), "wake 10ms", asking},
			{1506 * ms, reaped(false, member.Pid), "wake 5ms", asking},
			{6500 * ms, elapsed{}, "look", killing},
			{6500 * ms, found(escapee), "(killing escapee), kill", killing},
			{6500 * ms, swept{hit: []int{escapee.Pid}}, "wake 0s", killing},
			{6501 * ms, elapsed{}, "kill", killing},
			{6501 * ms, swept{hit: []int{escapee.Pid}}, "wake 5ms", killing},
			{6502 * ms, reaped(true, escapee.Pid), "exit 4", over},
		}},
		{"--linger 0", with(func(r *rules) { r.linger = 0 }), []turn{
			{1, mainExits(exited(0), false), "look", asking},
			{1, found(), "wake 5ms", asking},
		}},
		{"escapees that hold a stream come first", with(func(r *rules) { r.linger = 0 }), []turn{
			{1, mainExits(exited(0), false), "look", asking},
			{1, found(member, inGroup, escapee, holder),
				"(stopping holder), holder<-15, (stopping member), member<-15, (stopping holder in group), holder in group<-15, (stopping escapee), escapee<-15, wake 5ms", asking},
		}},
		{"a stopped leftover is let go on to act on its TERM", with(func(r *rules) { r.linger = 0 }), []turn{
			{1, mainExits(exited(0), false), "look", asking},
			{1, found(sleeping), "(stopping stopped), stopped<-15, stopped<-18, wake 5ms", asking},
		}},
		{"who had TERM with the group is not sent it again", with(func(r *rules) { r.linger = 0 }), []turn{
			{500 * ms, received{syscall.SIGTERM}, "forward 15", running},
			{999 * ms, mainExits(exited(0), false), "look", asking},
			{999 * ms, found(member, late, escapee),
				"(stopping member), (stopping late), late<-15, (stopping escapee), escapee<-15, wake 5ms", asking},
		}},
		{"under -c only the command had it", with(func(r *rules) { r.linger, r.singleChild = 0, true }), []turn{
			{500 * ms, received{syscall.SIGTERM}, "forward 15", running},
			{999 * ms, mainExits(exited(0), false), "look", asking},
			{999 * ms, found(member), "(stopping member), member<-15, wake 5ms", asking},
		}},
		{"a signal that asks for an end cuts lingering short", defaults(), []turn{
			{0, mainExits(exited(0), false), "wake 500ms", lingering},
			{10 * ms, received{syscall.SIGUSR1}, "", lingering},
			{20 * ms, received{syscall.SIGINT}, "look", asking},
			{30 * ms, received{syscall.SIGTERM}, "", asking},
		}},
		{"a tree that never stops dying does not put off the next look", with(func(r *rules) { r.linger = 0 }), []turn{
			{0, mainExits(exited(0), false), "look", asking},
			{0, found(escapee), "(stopping escapee), escapee<-15, wake 5ms", asking},
			{2 * ms, reaped(false, 300), "", asking},
			{4 * ms, reaped(false, 301), "", asking},
			{5 * ms, elapsed{}, "look", asking},
		}},
		{"leave", with(func(r *rules) { r.orphans = leaveAll }), []turn{
			{1, mainExits(exited(5), false), "exit 5", over},
		}},
		{"wait", wait, []turn{
			{1, mainExits(exited(5), false), "", waiting},
			{2, reaped(false, 300), "", waiting},
			{3, received{syscall.SIGUSR1}, "", waiting},
			{4, reaped(true, 301), "exit 5", over},
		}},
		{"wait until a signal asks for an end", wait, []turn{
			{1, mainExits(exited(5), false), "", waiting},
			{2, received{syscall.SIGHUP}, "look", asking},
			{2, found(escapee), "(stopping escapee), escapee<-15, wake 5ms", asking},
		}},
		{"pipes: nobody holds any", pipes, []turn{
			{1, mainExits(exited(5), false), "look", lingering},
			{1, found(member, escapee), "exit 5", over},
		}},
		{"pipes: the holder ends while lingering", pipes, []turn{
			{0, mainExits(exited(5), false), "look", lingering},
			{0, found(holder, escapee), "wake 5ms", lingering},
			{5 * ms, elapsed{}, "look", lingering},
			{5 * ms, found(holder, escapee), "wake 10ms", lingering},
			{6 * ms, reaped(false, holder.Pid), "wake 5ms", lingering},
			{11 * ms, elapsed{}, "look", lingering},
			{11 * ms, found(escapee), "exit 5", over},
		}},
		{"pipes: holders and those who may be", pipes, []turn{
			{0, mainExits(exited(5), false), "look", lingering},
			{0, found(holder, opaque, escapee), "wake 5ms", lingering},
			{500 * ms, elapsed{}, "look", asking},
			{500 * ms, found(holder, opaque, escapee), "(stopping holder), holder<-15, (stopping opaque), opaque<-15, wake 5ms", asking},
			{5500 * ms, elapsed{}, "look", killing},
			{5500 * ms, found(holder, escapee), "(killing holder), holder<-9, wake 0s", killing},
			{5501 * ms, elapsed{}, "look", killing},
			{5501 * ms, found(escapee), "exit 5", over},
		}},
		{"--orphans-exit", with(func(r *rules) { r.linger, r.orphansExit = 0, 99 }), []turn{
			{1, mainExits(exited(0), false), "look", asking},
			{1, found(escapee), "(stopping escapee), escapee<-15, wake 5ms", asking},
			{2, reaped(true, escapee.Pid), "exit 99", over},
		}},
		{"--orphans-exit leaves a failure alone", with(func(r *rules) { r.linger, r.orphansExit = 0, 99 }), []turn{
			{1, mainExits(exited(3), false), "look", asking},
			{1, found(escapee), "(stopping escapee), escapee<-15, wake 5ms", asking},
			{2, reaped(true, escapee.Pid), "exit 3", over},
		}},
		{"--orphans-exit where nothing had to be stopped", with(func(r *rules) { r.orphansExit = 99 }), []turn{
			{1, mainExits(exited(0), false), "wake 500ms", lingering},
			{2, reaped(true, escapee.Pid), "exit 0", over},
		}},
		{"one that may not be signalled is waited for, not for long", with(func(r *rules) { r.linger, r.grace = 0, 0 }), []turn{
			{0, mainExits(exited(0), false), "look", asking},
			{0, found(escapee), "(stopping escapee), escapee<-15, wake 0s", asking},
			{1 * ms, elapsed{}, "look", killing},
			{1 * ms, found(escapee), "(killing escapee), kill", killing},
			{1 * ms, swept{refused: []int{escapee.Pid}}, "wake 5ms", killing},
			{1000 * ms, swept{refused: []int{escapee.Pid}}, "wake 10ms", killing},
			{2001 * ms, swept{refused: []int{escapee.Pid}}, `say "gave up on leftovers that do not end: [203]", exit 0`, over},
		}},
		{"one that SIGKILL does not end is waited for longer", with(func(r *rules) { r.linger, r.grace = 0, 0 }), []turn{
			{0, mainExits(exited(0), false), "look", asking},
			{0, found(escapee), "(stopping escapee), escapee<-15, wake 0s", asking},
			{1 * ms, elapsed{}, "look", killing},
			{1 * ms, found(escapee), "(killing escapee), kill", killing},
			{1 * ms, swept{hit: []int{escapee.Pid}}, "wake 0s", killing},
			{9000 * ms, swept{hit: []int{escapee.Pid}}, "wake 5ms", killing},
			{10001 * ms, swept{hit: []int{escapee.Pid}}, `say "gave up on leftovers that do not end: [203]", exit 0`, over},
		}},
		{"the launcher dies: TERM, grace, KILL", defaults(), []turn{
			{0, stop{launcherDied}, "forward 15, wake 5s", stopping},
			{1 * ms, stop{stdinClosed}, "", stopping},
			{2 * ms, stop{timedOut}, "", stopping},
			{5000 * ms, elapsed{}, "forward 9, wake 10s", ending},
			{5001 * ms, received{syscall.SIGTERM}, "", ending},
			{5002 * ms, mainExits(signaled(9), true), "exit 137", over},
		}},
		{"-p", with(func(r *rules) { r.deathsig = syscall.SIGINT }), []turn{
			{0, stop{launcherDied}, "forward 2, wake 5s", stopping},
		}},
		{"a TERM that came with the launcher's death is not passed on again", defaults(), []turn{
			{1, stop{launcherDied}, "forward 15, wake 5s", stopping},
			{2, received{syscall.SIGTERM}, "", stopping},
			{3, received{syscall.SIGTERM}, "forward 15", stopping},
		}},
		{"a TERM that came before it is not repeated", defaults(), []turn{
			{1, received{syscall.SIGTERM}, "forward 15", running},
			{2, stop{launcherDied}, "wake 5s", stopping},
			{3, received{syscall.SIGTERM}, "forward 15", stopping},
		}},
		{"one that came long before it is", defaults(), []turn{
			{1, received{syscall.SIGTERM}, "forward 15", running},
			{6 * time.Second, stop{launcherDied}, "forward 15, wake 5s", stopping},
		}},
		{"stdin closes: wait, TERM, grace, KILL", defaults(), []turn{
			{0, stop{stdinClosed}, "ask stdin", closing},
			{0, unread{0}, "wake 5s", closing},
			{5000 * ms, elapsed{}, "ask stdin", closing},
			{5000 * ms, unread{0}, "forward 15, wake 5s", stopping},
			{10000 * ms, elapsed{}, "forward 9, wake 10s", ending},
		}},
		{"the end of stdin is behind what the command still reads", defaults(), []turn{
			{0, stop{stdinClosed}, "ask stdin", closing},
			{0, unread{65536}, "wake 5s", closing},
			{5000 * ms, elapsed{}, "ask stdin", closing},
			{5000 * ms, unread{4096}, "wake 5s", closing},
			{10000 * ms, elapsed{}, "ask stdin", closing},
			{10000 * ms, unread{4096}, "forward 15, wake 5s", stopping},
		}},
		{"a command that ends at the end of its stdin", defaults(), []turn{
			{0, stop{stdinClosed}, "ask stdin", closing},
			{0, unread{0}, "wake 5s", closing},
			{10 * ms, mainExits(exited(0), true), "exit 0", over},
		}},
		{"a signal that asks for an end is the next rung", defaults(), []turn{
			{0, stop{stdinClosed}, "ask stdin", closing},
			{0, unread{0}, "wake 5s", closing},
			{2000 * ms, received{syscall.SIGTERM}, "forward 15, wake 5s", stopping},
			{7000 * ms, elapsed{}, "forward 9, wake 10s", ending},
		}},
		{"another signal is not", defaults(), []turn{
			{0, stop{stdinClosed}, "ask stdin", closing},
			{0, unread{0}, "wake 5s", closing},
			{1 * ms, received{syscall.SIGUSR1}, "forward 10", closing},
		}},
		{"the launcher's death skips the wait", defaults(), []turn{
			{0, stop{stdinClosed}, "ask stdin", closing},
			{0, unread{0}, "wake 5s", closing},
			{1000 * ms, stop{launcherDied}, "forward 15, wake 5s", stopping},
		}},
		{"--timeout", defaults(), []turn{
			{0, stop{timedOut}, "forward 15, wake 5s", stopping},
			{1, mainExits(exited(0), true), "exit 124", over},
		}},
		{"--timeout, -e 124", with(func(r *rules) { r.remap = []int{124} }), []turn{
			{0, stop{timedOut}, "forward 15, wake 5s", stopping},
			{1, mainExits(signaled(15), true), "exit 0", over},
		}},
		{"-k", with(func(r *rules) { r.killAfter = time.Second }), []turn{
			{0, received{syscall.SIGUSR1}, "forward 10", running},
			{0, received{syscall.SIGINT}, "forward 2, wake 1s", stopping},
			{1, received{syscall.SIGINT}, "forward 2", stopping},
			{1000 * ms, elapsed{}, "forward 9, wake 10s", ending},
		}},
		{"a long -k is shortened by the launcher's death", with(func(r *rules) { r.killAfter = time.Hour }), []turn{
			{0, received{syscall.SIGINT}, "forward 2, wake 1h0m0s", stopping},
			{1000 * ms, stop{launcherDied}, "forward 15, wake 5s", stopping},
		}},
		{"a command that SIGKILL does not end", defaults(), []turn{
			{0, stop{timedOut}, "forward 15, wake 5s", stopping},
			{5000 * ms, elapsed{}, "forward 9, wake 10s", ending},
			{15000 * ms, elapsed{}, "look", killing},
			{15000 * ms, found(member), "(killing member), kill", killing},
			{15000 * ms, swept{hit: []int{member.Pid}}, "wake 0s", killing},
			{25000 * ms, swept{hit: []int{member.Pid}}, `say "gave up on leftovers that do not end: [201]", exit 124`, over},
		}},
		{"a reason to stop cuts lingering short", defaults(), []turn{
			{0, mainExits(exited(0), false), "wake 500ms", lingering},
			{1, stop{launcherDied}, "look", asking},
		}},
		{"a reason to stop ends --orphans=wait", wait, []turn{
			{0, mainExits(exited(0), false), "", waiting},
			{1, stop{timedOut}, "look", asking},
			{2, reaped(true), "exit 0", over},
		}},
		{"the end of stdin leaves lingering alone: the command may have ended by it", defaults(), []turn{
			{0, mainExits(exited(0), false), "wake 500ms", lingering},
			{1, stop{stdinClosed}, "", lingering},
		}},
		{"a command that was stopped leaves nothing to wait for", wait, []turn{
			{0, stop{timedOut}, "forward 15, wake 5s", stopping},
			{1, mainExits(exited(0), false), "wake 500ms", lingering},
		}},
		{"the launcher's death overrules leave", with(func(r *rules) { r.orphans = leaveAll }), []turn{
			{0, stop{launcherDied}, "forward 15, wake 5s", stopping},
			{1, mainExits(exited(0), false), "wake 500ms", lingering},
		}},
		{"-r", with(func(r *rules) {
			r.rewrite = map[syscall.Signal]syscall.Signal{syscall.SIGTERM: syscall.SIGQUIT, syscall.SIGHUP: 0}
			r.killAfter = time.Second
		}), []turn{
			{0, received{syscall.SIGHUP}, "", running},
			{1, received{syscall.SIGUSR1}, "forward 10", running},
			{2, received{syscall.SIGTERM}, "forward 3, wake 1s", stopping},
			{3, received{syscall.SIGQUIT}, "forward 3", stopping},
		}},
		{"Ctrl-Z and fg", defaults(), []turn{
			{0, mainStops(syscall.SIGTSTP), "suspend 20", running},
			{1, resumed{}, "hand over, forward 18", running},
			{2, received{syscall.SIGCONT}, "", running},
			{3, received{syscall.SIGCONT}, "hand over, forward 18", running},
		}},
		{"fini is sent what stops the command", defaults(), []turn{
			{0, received{syscall.SIGTSTP}, "forward 20", running},
			{1, mainStops(syscall.SIGTSTP), "suspend 20", running},
			{2, resumed{}, "", running},
			{3, received{syscall.SIGCONT}, "hand over, forward 18", running},
		}},
		{"who stops the command himself continues it himself", defaults(), []turn{
			{0, mainStops(syscall.SIGSTOP), "", running},
		}},
		{"a stopped command is let go on to act on its TERM", defaults(), []turn{
			{0, mainStops(syscall.SIGSTOP), "", running},
			{1, stop{timedOut}, "forward 15, forward 18, wake 5s", stopping},
		}},
		{"also where somebody else has sent it", defaults(), []turn{
			{0, mainStops(syscall.SIGSTOP), "", running},
			{1, received{syscall.SIGUSR1}, "forward 10", running},
			{2, received{syscall.SIGINT}, "forward 2, forward 18", running},
			{3, received{syscall.SIGINT}, "forward 2", running},
		}},
		{"the inner fini ends", outer, []turn{
			{0, received{syscall.SIGTERM}, "forward 15", running},
			{1, mainExits(exited(3), true), "exit 3", over},
		}},
		{"the inner fini is killed", outer, []turn{
			{0, innerKilled(member.Pid), "look", asking},
			{0, found(member, escapee), "(stopping member), (stopping escapee), escapee<-15, wake 5ms", asking},
		}},
		{"the inner fini is killed under a policy", outerWait, []turn{
			{0, innerKilled(0), "look", asking},
			{0, found(escapee), "(stopping escapee), escapee<-15, wake 5ms", asking},
		}},
		{"the inner fini left what its policy leaves", outerWait, []turn{
			{0, mainExits(exited(3), false), "exit 3", over},
		}},
		{"the inner fini gave up", outer, []turn{
			{0, mainExits(exited(3), false), "kill", killing},
			{0, swept{hit: []int{203}}, "wake 0s", killing},
			{1, swept{refused: []int{204}}, "exit 3", over},
		}},
		{"no /proc", with(func(r *rules) { r.linger = 0 }), []turn{
			{0, mainExits(exited(7), false), "look", asking},
			{0, looked{err: errors.New("no /proc")}, `say "cannot stop leftovers: no /proc", exit 7`, over},
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l := newLife(tt.rules, mainPid)
			for i, turn := range tt.turns {
				if got := text(l.step(turn.at, turn.event)); got != turn.want {
					t.Fatalf("turn %d, %+v:\n got %s\nwant %s", i, turn.event, got, turn.want)
				}
				if l.phase != turn.then {
					t.Fatalf("turn %d, %+v: phase %d, want %d", i, turn.event, l.phase, turn.then)
				}
			}
		})
	}
}

func TestPause(t *testing.T) {
	l := newLife(defaults(), 0)
	for _, turn := range []turn{
		{0, reaped(true), "", pausing},
		{1, reaped(false, 300), "", pausing},
		{2, received{syscall.SIGHUP}, "", pausing},
		{3, stop{launcherDied}, "", pausing},
		{4, received{syscall.SIGTERM}, "exit 0", over},
	} {
		if got := text(l.step(turn.at, turn.event)); got != turn.want || l.phase != turn.then {
			t.Errorf("%+v: %q and phase %d, want %q and %d", turn.event, got, l.phase, turn.want, turn.then)
		}
	}
}

// More leftovers than anybody reads are counted.
func TestManyLeftoversAreCounted(t *testing.T) {
	r := defaults()
	r.linger = 0
	l := newLife(r, mainPid)
	l.step(0, mainExits(exited(0), false))
	var crowd []orphans.Process
	for i := range 100 {
		crowd = append(crowd, orphans.Process{Pid: 1000 + i, Group: 1000 + i, Name: "x", State: 'S'})
	}
	got := text(l.step(0, looked{found: crowd}))
	if told, sent := strings.Count(got, "(stopping"), strings.Count(got, "<-15"); told != maxTold || sent != 100 {
		t.Errorf("told of %d and sent %d, want %d and 100", told, sent, maxTold)
	}
	if got := text(l.step(1, reaped(true))); got != `say "stopped 100 leftovers in all", exit 0` {
		t.Errorf("at the end: %s", got)
	}
}

// FuzzStep plays arbitrary events and asserts what holds in every life: a phase other
// than running and waiting always has its next turn under way, nobody is sent SIGTERM
// twice, only what was found is signalled, and there is one exit at the end.
func FuzzStep(f *testing.F) {
	f.Add(uint8(0), []byte{0, 1, 2, 3, 4, 5, 6, 7})
	f.Add(uint8(1), []byte{2, 6, 6, 6, 4, 4, 7, 3, 3, 3, 3, 3})
	f.Add(uint8(2), []byte{2, 0, 1, 3, 3, 3, 6, 4})
	f.Fuzz(func(t *testing.T, policy uint8, script []byte) {
		r := defaults()
		r.outer, r.singleChild = policy&4 != 0, policy&8 != 0
		if policy&16 != 0 {
			r.killAfter = time.Second
		}
		r.orphans = []string{stopAll, stopPipes, waitAll, leaveAll}[policy%4]
		l := newLife(r, mainPid)
		now := time.Duration(0)
		asked := map[int]int{}
		pending, awake, exits, mainAlive := []action(nil), false, 0, true
		take := func(e event) {
			for _, a := range l.step(now, e) {
				switch a := a.(type) {
				case look, kill, askStdin:
					pending = append(pending, a)
				case wake:
					awake = true
				case send:
					if a.sig == syscall.SIGTERM {
						asked[a.process.Pid]++
					}
				case exit:
					exits++
				}
			}
		}
		kinds := []orphans.Process{member, late, escapee, holder, inGroup, opaque, sleeping}
		for _, b := range script {
			some := slices.DeleteFunc(slices.Clone(kinds), func(p orphans.Process) bool { return p.Pid&int(b>>3) == 0 })
			switch b % 8 {
			case 0:
				if b&8 == 0 {
					take(received{syscall.SIGTERM})
				} else {
					take(stop{reason(b>>4) % 3})
				}
			case 1:
				take(received{syscall.Signal(b%64 + 1)})
			case 2:
				if mainAlive {
					mainAlive = false
					take(mainExits(exited(int(b)), b&8 != 0))
				}
			case 3, 4, 5:
				if len(pending) > 0 {
					a := pending[0]
					pending = pending[1:]
					switch a.(type) {
					case look:
						take(looked{found: some})
					case askStdin:
						take(unread{int(b >> 4)})
					case kill:
						take(swept{hit: []int{int(b)}, refused: []int{7}})
					}
				} else if awake {
					awake = false
					now += time.Duration(b) * 20 * ms
					take(elapsed{})
				}
			case 6:
				if !mainAlive {
					take(reaped(b == 6, int(b)))
				}
			case 7:
				now += time.Duration(b) * ms
			}
			if l.phase != running && l.phase != waiting && l.phase != over && len(pending) == 0 && !awake {
				t.Fatalf("phase %d has no way on", l.phase)
			}
			if (l.phase == over) != (exits == 1) || exits > 1 {
				t.Fatalf("phase %d after %d exits", l.phase, exits)
			}
		}
		for pid, n := range asked {
			if n > 1 {
				t.Errorf("%d was sent SIGTERM %d times", pid, n)
			}
		}
	})
}
