package e2e

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// A shellProbe is an interactive bash on a terminal of its own, of which one question is
// asked. What runs in front of the commands is $init there.
type shellProbe struct {
	t      *testing.T
	bash   int
	mark   string // in the environment of bash and of all that it starts
	screen *lines
	keys   *os.File
	bound  time.Duration // after this long the answer is no
}

func newShellProbe(t *testing.T, init string, bound time.Duration) *shellProbe {
	t.Helper()
	cmd := exec.Command(needProgram(t, "bash"), "--norc", "--noediting", "-i")
	p := &shellProbe{t: t, bound: bound, mark: "PROBE=" + strings.ReplaceAll(t.Name(), " ", "") + strconv.FormatInt(monotonic(), 10)}
	cmd.Env = append(os.Environ(), "PS1=", "HISTFILE=", "init="+init, "signals="+strings.Join(mode("signals", "3"), " "), p.mark)
	l, screen, keys := onTerminal(t, cmd)
	p.bash, p.screen, p.keys = l.pid(), screen, keys
	t.Cleanup(func() {
		// What the peers leave behind, and no other process, has the mark.
		for _, pid := range p.marked() {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	})
	p.enter("stty -echo; echo be''gin\n")
	screen.want("begin")
	return p
}

func (p *shellProbe) enter(text string) {
	p.t.Helper()
	if _, err := io.WriteString(p.keys, text); err != nil {
		p.t.Fatal(err)
	}
}

// next is the first of these lines to appear; "" if none does.
func (p *shellProbe) next(bound time.Duration, wanted ...string) string {
	end := time.After(bound)
	for {
		select {
		case line, ok := <-p.screen.c:
			if !ok {
				return ""
			}
			for _, text := range wanted {
				if line == text {
					return text
				}
			}
		case <-end:
			return ""
		}
	}
}

func (p *shellProbe) sees(text string) bool { return p.next(p.bound, text) == text }

// started runs a shell script behind $init, and waits for the line "started", which the
// script says.
func (p *shellProbe) started(script, after string) bool {
	p.enter("$init sh -c '" + script + "'" + after + "\n")
	return p.sees("started")
}

// usable tells whether the shell reads its terminal. It asks again, for what is typed just
// as a command is stopped may still be read by that command.
func (p *shellProbe) usable() bool {
	for end := time.Now().Add(p.bound); time.Now().Before(end); {
		p.enter("echo the prompt is back\n")
		if p.next(300*time.Millisecond, "the prompt is back") != "" {
			return true
		}
	}
	return false
}

// marked lists the processes that bash started, directly or not, and that are alive.
func (p *shellProbe) marked() (pids []int) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		p.t.Fatal(err)
	}
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil || pid == p.bash {
			continue
		}
		env, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		for variable := range bytes.SplitSeq(env, []byte{0}) {
			if string(variable) == p.mark {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// killed ends what the shell started by SIGKILL: the init, or without one the command.
func (p *shellProbe) killed() bool {
	if !p.started("echo started; exec sleep 1000", "") {
		return false
	}
	// In the midst of its exec a process shows no mark.
	until(p.t, "the command is marked", func() bool {
		for _, pid := range p.marked() {
			if procStatus(pid, "Name") == "sleep" {
				return true
			}
		}
		return false
	})
	children := childrenOf(p.t, p.bash)
	if len(children) != 1 {
		p.t.Fatalf("bash has the children %v, want one", children)
	}
	if err := syscall.Kill(children[0], syscall.SIGKILL); err != nil {
		p.t.Fatal(err)
	}
	return true
}

// noSecond is how long a signal that arrives twice may take to do so the second time.
const noSecond = 200 * time.Millisecond

var terminalQuestions = []struct {
	text string
	ask  func(p *shellProbe) bool
}{
	{"the command can read the terminal", func(p *shellProbe) bool {
		if !p.started(`echo started; read line; echo "read $line"`, "") {
			return false
		}
		p.enter("a word\n")
		return p.sees("read a word")
	}},
	{"Ctrl-C reaches the command, once", func(p *shellProbe) bool {
		p.enter("$init $signals\n")
		p.screen.want("ready")
		p.enter("\x03")
		once := p.sees("signal 2") && p.next(noSecond, "signal 2") == ""
		p.enter("\x1c") // Ctrl-\, which ends it
		return p.next(p.bound, "signal 2", "signal 3") == "signal 3" && once
	}},
	{"Ctrl-Z brings the prompt back", func(p *shellProbe) bool {
		if !p.started("echo started; exec cat", "") {
			return false
		}
		p.enter("\x1a")
		return p.usable()
	}},
	{"after Ctrl-Z `fg` continues the command", func(p *shellProbe) bool {
		if !p.started("echo started; exec cat", "") {
			return false
		}
		p.enter("\x1a")
		if !p.usable() {
			return false
		}
		p.enter("fg\n")
		p.enter("a word\n")
		return p.sees("a word")
	}},
	{"`cmd &` takes no line from the shell", func(p *shellProbe) bool {
		if !p.started(`echo started; while read line; do echo "stolen: $line"; done`, " &") {
			return false
		}
		for n := range 10 {
			p.enter(fmt.Sprintf("echo mine %d\n", n))
			mine := fmt.Sprintf("mine %d", n)
			if p.next(p.bound, mine, "stolen: echo "+mine) != mine {
				return false
			}
		}
		return true
	}},
	{"the shell has its terminal back after SIGKILL of the command", func(p *shellProbe) bool {
		return p.started("echo started; kill -9 $$", "") && p.usable()
	}},
	{"the shell has its terminal back after SIGKILL of the init", func(p *shellProbe) bool {
		return p.killed() && p.usable()
	}},
	{"SIGKILL of the init ends the command", func(p *shellProbe) bool {
		if !p.killed() {
			return false
		}
		for end := time.Now().Add(p.bound); time.Now().Before(end); {
			if len(p.marked()) == 0 {
				return true
			}
		}
		return false
	}},
	{"an ignored SIGINT stays ignored, as under nohup", func(p *shellProbe) bool {
		p.enter("(trap '' INT; exec $init $signals)\n")
		p.screen.want("ready")
		p.enter("\x03")
		ignored := p.next(noSecond, "signal 2") == ""
		p.enter("\x1c")
		return p.next(p.bound, "signal 2", "signal 3") == "signal 3" && ignored
	}},
}

// At a terminal fini answers each question as the command does without an init. What
// the other inits answer is only logged.
func TestTerminalAsWithoutAnInit(t *testing.T) {
	const none = "none"
	subjects := []struct {
		name    string
		program string // what has to be installed
		init    string
		bound   time.Duration
	}{
		// A wrong no of these fails the test, so it has the time that a busy machine takes.
		{none, "bash", "", patience},
		{"fini", "bash", finiPath + " -q --linger=0 --", patience},
		{"tini -s", "tini", "tini -s --", 3 * time.Second},
		{"tini -s -g", "tini", "tini -s -g --", 3 * time.Second},
		{"dumb-init", "dumb-init", "dumb-init", 3 * time.Second},
		{"catatonit", "catatonit", "catatonit --", 3 * time.Second},
	}
	var mu sync.Mutex
	answers := map[string]string{} // by subject and question
	t.Run("ask", func(t *testing.T) {
		for _, s := range subjects {
			t.Run(s.name, func(t *testing.T) {
				needProgram(t, s.program)
				t.Parallel()
				for _, q := range terminalQuestions {
					t.Run(q.text, func(t *testing.T) {
						answer := "no"
						if q.ask(newShellProbe(t, s.init, s.bound)) {
							answer = "yes"
						}
						mu.Lock()
						defer mu.Unlock()
						answers[s.name+q.text] = answer
					})
				}
			})
		}
	})
	var table strings.Builder
	head, rule := "\n|", "\n| ---"
	for _, s := range subjects {
		head += " | " + s.name
		rule += " | ---"
	}
	table.WriteString(head + " |" + rule + " |")
	for _, q := range terminalQuestions {
		table.WriteString("\n| " + q.text)
		for _, s := range subjects {
			answer := answers[s.name+q.text]
			if answer == "" {
				answer = "not asked"
			}
			table.WriteString(" | " + answer)
		}
		table.WriteString(" |")
		if answers[none+q.text] == "" || answers["fini"+q.text] == "" {
			continue // not selected by -run, or failed already
		}
		if got := answers[none+q.text]; got != "yes" {
			t.Errorf("%s: %q without an init, so the question is asked in a wrong way", q.text, got)
		}
		if got, want := answers["fini"+q.text], answers[none+q.text]; got != want {
			t.Errorf("%s: %q with fini, %q without", q.text, got, want)
		}
	}
	t.Log(table.String())
}
