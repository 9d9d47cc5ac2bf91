package shells

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/e2e/rig/pty"
	"github.com/seed-126c5d8a/fini/internal/tests/procfs"
	"github.com/seed-126c5d8a/fini/internal/tests/programs"
	"golang.org/x/sys/unix"
)

// A shellUser types at a terminal, to a shell of its own.
type shellUser struct {
	t     *testing.T
	cmd   *exec.Cmd
	ended chan struct{}
	keys  *os.File
	tty   *os.File        // the terminal, of which this process keeps the other side too
	wrap  string          // what is before the command; "" for nothing
	born  int             // when the shell was started, as field 22 of /proc/PID/stat has it
	mark  string          // in the environment of the shell and of all that it starts
	older map[string]bool // the entries of /proc that were there before the shell, and are still
	limit time.Duration

	mu  sync.Mutex
	raw []byte
	pos int // up to here the screen has been waited for
}

// Sit does a case: the bare command, or what is to be like it.
func (b *bench) Sit(t *testing.T, shell shellKind, c typedCase, wrap string, bare *Sitting, limit time.Duration) (s Sitting) {
	t.Helper()
	p := &shellUser{t: t, wrap: wrap, limit: limit, ended: make(chan struct{})}
	p.start(b, shell)
	defer p.leave()
	err := p.await("!prompt")
	for step := range strings.SplitSeq(c.keys, " / ") {
		typed, fact, waits := strings.Cut(step, " => ")
		if !waits {
			fact = "!prompt"
		}
		if err == nil {
			err = p.do(typed)
		}
		if err == nil {
			err = p.await(fact)
		}
	}
	if err != nil {
		return Sitting{Broken: err.Error(), Screen: normalised(p.visible(), wrap)}
	}
	s.Screen = normalised(p.visible()[:p.pos], wrap)
	rig.Await(limit/3, func() bool { s.left = names(p.marked()); return bare == nil || s.left == "" || s.left == bare.left })
	if !p.exit() {
		s.Broken = "the shell does not end"
	}
	rig.Await(limit/3, func() bool { s.after = names(p.marked()); return bare == nil || s.after == "" })
	return s
}

// start starts the shell as the leader of a session on a pty without echo: what is typed is
// not on the screen.
func (p *shellUser) start(b *bench, shell shellKind) {
	p.t.Helper()
	p.tty, p.keys = pty.Open(p.t)
	fd := int(p.tty.Fd())
	mode, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	rig.NoError(p.t, err)
	mode.Lflag &^= unix.ECHO
	mode.Lflag |= unix.NOFLSH // a key that sends a signal drops nothing that was written before
	rig.NoError(p.t, unix.IoctlSetTermios(fd, unix.TCSETS, mode))
	rig.NoError(p.t, unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 250}))
	dir := p.t.TempDir() // another one each time
	p.mark = "PTYMARK=" + dir
	p.cmd = exec.Command(shell.Name, shell.args...)
	p.cmd.Dir = dir
	p.cmd.Env = append([]string{
		"PATH=" + b.dir + ":" + os.Getenv("PATH") + ":/usr/sbin:/sbin",
		"D=" + b.dir, "CONTAINER=" + b.container, "ZDOTDIR=" + b.dir, "HOME=" + dir, "GO=" + filepath.Join(dir, "go"),
		"TERM=vt100", "LC_ALL=C", "HISTFILE=", "LESSHISTFILE=-", "LESS=", p.mark,
	}, shell.env...)
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = p.tty, p.tty, p.tty
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	p.older = map[string]bool{}
	for _, name := range processes() {
		p.older[name] = true
	}
	rig.NoError(p.t, p.cmd.Start())
	p.born = procfs.StatOf(p.cmd.Process.Pid).Number(22)
	go func() { _ = p.cmd.Wait(); close(p.ended) }()
	go func() {
		for b, err := make([]byte, 4096), error(nil); err == nil; {
			var n int
			n, err = p.keys.Read(b)
			p.mu.Lock()
			p.raw = append(p.raw, b[:n]...)
			p.mu.Unlock()
		}
	}()
}

func (p *shellUser) visible() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return string(fishEditing.ReplaceAll(p.raw, nil))
}

// do types a line, a key, or what is behind a ~, or does what is behind a !. In a line, "fini" is fini with its flags, another
// init, or nothing.
func (p *shellUser) do(what string) error {
	if order, ok := strings.CutPrefix(what, "!"); ok {
		words := strings.Fields(order)
		switch words[0] {
		case "touch": // what asker and chatty wait for
			return os.WriteFile(filepath.Join(p.cmd.Dir, "go"), nil, 0o644)
		case "winch":
			rig.Await(p.limit, p.finisHaveStarted) // like a key
			return unix.IoctlSetWinsize(int(p.tty.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 25, Col: 251})
		case "hangup":
			return p.keys.Close()
		case "kill":
			return p.kill(words[1], unix.SignalNum("SIG"+words[2]))
		}
		return nil
	}
	text, raw := strings.CutPrefix(what, "~")
	switch letter, isKey := strings.CutPrefix(what, "^"); {
	case raw:
	case isKey:
		// A key in the moment in which the command starts may count twice: see docs/limits.md.
		rig.Await(p.limit, p.finisHaveStarted)
		text = string(letter[0] - '@')
	case p.wrap == "":
		text = strings.ReplaceAll(strings.ReplaceAll(text, "fini ", ""), "fini", "") + "\n"
	default:
		text = strings.ReplaceAll(text, "fini", p.wrap) + "\n"
	}
	_, err := p.keys.WriteString(text)
	return err
}

// finisHaveStarted reports whether each fini has left its working directory, which it does once the command runs.
func (p *shellUser) finisHaveStarted() bool {
	return !slices.ContainsFunc(p.marked(), func(proc markedProcess) bool {
		dir, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", proc.pid))
		return (proc.name == "fini" || proc.name == "reaper") && err == nil && dir != "/"
	})
}

// kill sends a signal to the shell, to its child, which is the wrapper if there is one, to the
// group of that, or to the inner fini if there is one.
func (p *shellUser) kill(whom string, sig syscall.Signal) error {
	all := p.marked()
	childOf := func(pid int) (child markedProcess) {
		if i := slices.IndexFunc(all, func(proc markedProcess) bool { return proc.parent == pid }); i >= 0 {
			child = all[i]
		}
		return child
	}
	job := childOf(p.cmd.Process.Pid)
	inner := childOf(job.pid)
	switch {
	case whom == "shell":
		return p.cmd.Process.Signal(sig)
	case job.pid == 0:
		return errors.New("the shell has no child")
	case whom == "group":
		return syscall.Kill(-job.group, sig)
	case whom == "inner" && inner.name == "reaper":
		return syscall.Kill(inner.pid, sig)
	}
	return syscall.Kill(job.pid, sig)
}

// await waits for a text on the screen, below what was waited for before, or for the facts behind a !.
func (p *shellUser) await(what string) error {
	facts, ok := strings.CutPrefix(what, "!")
	if !ok {
		facts = "below " + what
	}
	for fact := range strings.SplitSeq(facts, ", ") {
		word, name, _ := strings.Cut(fact, " ")
		if !rig.Await(p.limit, func() bool { return p.is(word, name) }) {
			return fmt.Errorf("never came true: %s; instead %q", fact, p.visible()[p.pos:])
		}
	}
	return nil
}

func (p *shellUser) is(word, name string) bool {
	screen := p.visible()
	switch word {
	case "nothing":
		return true
	case "prompt":
		at := promptForm.FindStringIndex(screen[p.pos:])
		if at != nil {
			p.pos += at[1]
		}
		return at != nil
	case "below":
		_, below, ok := strings.Cut(screen[p.pos:], name)
		if ok {
			p.pos = len(screen) - len(below)
		}
		return ok
	case "seen": // above or below what was waited for
		before, _, ok := strings.Cut(screen, name)
		if ok {
			p.pos = max(p.pos, len(before)+len(name))
		}
		return ok
	case "stopped", "foreground", "background": // the group of a process of that name
		return p.groupIs(name, word)
	case "halted": // a process of that name, whatever its group does
		return slices.ContainsFunc(p.marked(), func(proc markedProcess) bool { return proc.name == name && proc.stopped })
	case "gone": // whatever there was, but the shell
		return len(p.marked()) == 0 && p.children() == 0
	case "end": // of all that there was
		return p.hasEnded() && len(p.marked()) == 0
	}
	panic("no such fact: " + word)
}

func (p *shellUser) hasEnded() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// exit ends the shell, which wants to be told twice if it has jobs.
func (p *shellUser) exit() bool {
	prompts := func() int { return len(promptForm.FindAllString(p.visible(), -1)) }
	for w := new(rig.Wait); !p.hasEnded() && !w.Over(p.limit); {
		before := prompts()
		if p.do("exit") != nil {
			return true // hung up
		}
		rig.Poll(time.Second, func() bool { return p.hasEnded() || prompts() > before })
	}
	return p.hasEnded()
}

// leave kills what there is left, of which nothing but this case's has the mark.
func (p *shellUser) leave() {
	p.t.Helper()
	_ = p.cmd.Process.Kill()
	rig.Until(p.t, "the case's processes are gone", func() bool {
		left := p.marked()
		for _, proc := range left {
			_ = syscall.Kill(proc.pid, syscall.SIGKILL)
		}
		return len(left) == 0 && p.hasEnded()
	})
	_, _ = p.keys.Close(), p.tty.Close()
}

// A markedProcess is one that has the case's mark in its environment.
type markedProcess struct {
	pid, parent, group int
	name               string
	stopped            bool
}

// marked lists the living processes of the case, without the shell. What is older than that is not
// looked at, and neither is what another test has at a dead end.
func (p *shellUser) marked() (all []markedProcess) {
	still := map[string]bool{} // a pid that has been free may be given to one of the case's
	for _, name := range processes() {
		pid, err := strconv.Atoi(name)
		if p.older[name] || err != nil {
			still[name] = true
			continue
		}
		stat := procfs.StatOf(pid)
		if pid == p.cmd.Process.Pid || stat.Gone() || slices.Contains(programs.Silent, stat.Name) || stat.Number(22) < p.born {
			continue
		}
		env, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		if bytes.Contains(append(env, 0), []byte(p.mark+"\x00")) {
			all = append(all, markedProcess{pid, stat.Number(4), stat.Number(5), stat.Name, procfs.IsStopped(pid)})
		}
	}
	p.older = still
	return all
}

// processes are the names in /proc, most of which are pids, in no order.
func processes() []string {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer func() { _ = dir.Close() }()
	names, _ := dir.Readdirnames(-1)
	return names
}

// children counts those of the shell that are not zombies yet: one that is ending has no environment.
func (p *shellUser) children() (n int) {
	for _, pid := range procfs.ChildrenOf(p.t, p.cmd.Process.Pid) {
		if !procfs.StatOf(pid).Gone() {
			n++
		}
	}
	return n
}

// isInit reports whether a process is the init of a PID namespace below this one. See pid_namespaces(7).
func isInit(pid int) bool {
	numbers := strings.Fields(procfs.Status(pid, "NSpid"))
	return len(numbers) > 1 && numbers[len(numbers)-1] == "1"
}

// names is what is alive beside inits.
func names(all []markedProcess) string {
	var list []string
	for _, proc := range all {
		if !slices.Contains([]string{"fini", "reaper", "tini", "dumb-init", "catatonit"}, proc.name) {
			list = append(list, proc.name)
		}
	}
	slices.Sort(list)
	return strings.Join(list, " ")
}

// groupIs reports whether all of the process group of a process of this name are stopped, or none
// and the group is in the foreground or in the background.
func (p *shellUser) groupIs(name, state string) bool {
	all := p.marked()
	at := slices.IndexFunc(all, func(proc markedProcess) bool { return proc.name == name })
	if at < 0 {
		return false
	}
	group := all[at].group
	for _, proc := range all {
		// The init of a PID namespace has no default actions, so that Ctrl-Z does not stop it.
		if proc.group == group && proc.stopped != (state == "stopped") && !isInit(proc.pid) {
			return false
		}
	}
	holder := procfs.StatOf(p.cmd.Process.Pid).Number(8) // the foreground process group of its terminal
	inFront := holder == group
	if sid, _ := unix.Getsid(all[at].pid); sid != p.cmd.Process.Pid { // dumb-init's command
		inFront = holder != p.cmd.Process.Pid
	}
	return state == "stopped" || inFront == (state == "foreground")
}
