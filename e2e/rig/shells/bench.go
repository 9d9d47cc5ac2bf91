package shells

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/seed-126c5d8a/fini/e2e/need"
	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/e2e/rig/containers"
	"github.com/seed-126c5d8a/fini/e2e/rig/procfs"
	"github.com/seed-126c5d8a/fini/e2e/rig/programs"
	"github.com/seed-126c5d8a/fini/e2e/rig/pty"
	"golang.org/x/sys/unix"
)

// Shells are those in which a case is done.
func (c typedCase) Shells() (all []shellKind) {
	for _, shell := range Shells {
		if c.in == "" || slices.Contains(strings.Fields(c.in), shell.Name) {
			all = append(all, shell)
		}
	}
	return all
}

// Compare does a case with fini, and without it unless bare is how that went. It returns how it went. A case in which
// programs have a race of their own may go otherwise: then it is done several times with fini and without, and may not
// go otherwise more often with fini.
func (b *bench) Compare(t *testing.T, shell shellKind, c typedCase, p rig.Place, bare *Sitting) *Sitting {
	wrap := strings.Join(append([]string{"fini"}, p.Flags()...), " ")
	for try := 1; bare == nil; try++ {
		s := b.Sit(t, shell, c, "", nil, rig.Enough)
		if s.Broken == "" {
			bare = &s
		} else if try == max(c.Attempts(), 3) {
			t.Fatalf("without fini: %s\n%s", s.Broken, s.Screen)
		} else { // what goes wrong without fini is no measure
			t.Logf("TRIED AGAIN: without fini, %s in %s", c.Name, shell.Name)
		}
	}
	c.Holds(t, *bare)
	if c.Differs != "" {
		other := c
		other.keys = c.differ
		with := b.Sit(t, shell, other, wrap, nil, rig.Enough)
		if with.Broken != "" || with.left != "" || with.after != "" {
			t.Errorf("not so, or not only so: %s: %s; alive: %q and %q\n%s", c.Differs, with.Broken, with.left, with.after, with.Screen)
		}
		c.Holds(t, with)
		return bare
	}
	with := b.Sit(t, shell, c, wrap, bare, rig.Enough)
	difference := bare.Unlike(with, c)
	if difference == "" {
		c.Holds(t, with)
		return bare
	}
	explain := fmt.Sprintf("%s\nwithout fini:\n%s\nwith fini:\n%s", difference, bare.Screen, with.Screen)
	if c.Attempts() == 1 {
		t.Error(explain)
		return bare
	}
	t.Log(explain)
	bares, withs := []Sitting{*bare}, []Sitting{with}
	other, otherBare := 1, 0
	for len(withs) < max(c.Attempts(), 10) && !moreOften(other, otherBare, len(withs)) {
		withs = append(withs, b.Sit(t, shell, c, wrap, bare, rig.Enough))
		bares = append(bares, b.Sit(t, shell, c, "", bare, rig.Enough))
		otherBare = len(bares)
		for _, usual := range bares { // it may have been the first one that was unusual
			unlike := func(s Sitting) bool { return usual.Broken != "" || usual.Unlike(s, c) != "" }
			if n := count(bares, unlike); n < otherBare {
				other, otherBare = count(withs, unlike), n
			}
		}
	}
	n := len(withs)
	t.Logf("TRIED AGAIN: with %s, %s in %s: %d of %d went otherwise, without fini %d of %d", wrap, c.Name, shell.Name, other, n, otherBare, n)
	if moreOften(other, otherBare, n) {
		t.Errorf("it goes otherwise with fini in %d of %d tries, and without in %d of %d:\n%s", other, n, otherBare, n, explain)
	}
	return bare
}

func count(all []Sitting, is func(Sitting) bool) (n int) {
	for _, s := range all {
		if is(s) {
			n++
		}
	}
	return n
}

// moreOften reports whether a of n tries are so many more than b of as many that chance makes them so once in a hundred
// times at most. That is Fisher's exact test.
func moreOften(a, b, n int) bool {
	choose := func(n, k int) float64 {
		c := 1.0
		for i := range k {
			c *= float64(n-i) / float64(i+1)
		}
		return c
	}
	chance := 0.0
	for k := a; k <= min(n, a+b); k++ {
		chance += choose(n, k) * choose(n, a+b-k) / choose(2*n, a+b)
	}
	return chance <= 0.01
}

// A typedCase is one thing that is done at a terminal.
type typedCase struct {
	Name string
	in   string // the shells; "" for all

	// quick is what make test has of it: the shell and the place, as "zsh/pair".
	quick string

	// What is typed, and what is then waited for. See shellUser.do and shellUser.await.
	keys [][2]string

	shows string // is on the screen in the end, without fini and with it
	never string // is not

	says      bool // fini says what it stops, in a line that is not compared
	loose     bool // the screen is drawn in an order that varies: only statuses are compared
	unordered bool // a job in the background and the shell write at the same time: so are sorted lines
	tries     int  // how often it is done where it does not go the same at once, if a program has a race of its own

	Differs string      // why it is not the same with fini
	differ  [][2]string // what is then typed, and what is then waited for

	Row  string // the question that the case answers in the table of docs/terminal.md; "" for none
	Part string // what answers it: "" for what the keys do, or "screen" or "survivors"

	needs func(t *testing.T, b *bench)
}

// IsQuick reports whether make test has the case in this shell and place.
func (c typedCase) IsQuick(shell shellKind, p rig.Place) bool {
	return c.quick == shell.Name+"/"+p.Name
}

// MustHave skips a case that types the name of a program that is missing, or lacks something else.
func (c typedCase) MustHave(t *testing.T, b *bench) {
	t.Helper()
	for _, program := range []string{"less", "vi", "man", "tmux", "ssh", "make"} {
		if slices.ContainsFunc(c.keys, func(key [2]string) bool { return slices.Contains(strings.Fields(key[0]), program) }) {
			need.Program(t, program)
		}
	}
	if c.needs != nil {
		c.needs(t, b)
	}
}

// Attempts is how often a case is done if it does not go the same at once; 1 if it has to. A shell may hear of a job in
// the background before its prompt or after it.
func (c typedCase) Attempts() int {
	if c.unordered {
		return 5
	}
	return max(c.tries, 1)
}

func (c typedCase) Holds(t *testing.T, s Sitting) {
	t.Helper()
	if !strings.Contains(s.Screen, c.shows) {
		t.Errorf("the screen lacks %q:\n%s", c.shows, s.Screen)
	}
	if c.never != "" && strings.Contains(s.Screen, c.never) {
		t.Errorf("the screen has %q:\n%s", c.never, s.Screen)
	}
}

// A shellKind is an interactive shell. Its prompt tells the status of each process of the
// pipeline that has ended before, and that is what a user waits for.
type shellKind struct {
	Name string
	args []string
	env  []string
}

var Shells = []shellKind{
	{"bash", []string{"--norc", "--noprofile", "--noediting", "-i"}, []string{"PS1==<$?:${PIPESTATUS[*]}>="}},
	{"dash", []string{"-i"}, []string{"PS1==<$?:>="}},
	{"zsh", []string{"-d", "-i"}, nil},
	{"fish", []string{"-N", "-i", "-C", `source "$D/init.fish"`}, nil},
}

var promptForm = regexp.MustCompile(`=<[0-9]+:[0-9 ]*>=`)

// What fish's line editor draws is between its prompt and the start of the command.
var fishEditing = regexp.MustCompile("(?s)\x1d[^\x1e]*(\x1e|$)")

// A bench has the programs that cases run, and what several of them share.
type bench struct {
	dir                      string
	container                string
	startSSH, startContainer func() error
}

func needRoot(t *testing.T, _ *bench) { need.Root(t) }

func needTmux(t *testing.T, _ *bench) { need.Program(t, "tmux") }

func needSSH(t *testing.T, b *bench) {
	need.Program(t, "ssh")
	if err := b.startSSH(); err != nil {
		need.That(t, false, fmt.Sprintf("an sshd for this user (%v)", err))
	}
}

func needContainer(t *testing.T, b *bench) {
	containers.NeedDocker(t)
	rig.NoError(t, b.startContainer())
}

// caseScripts that cases run, each a script of that name.
var caseScripts = map[string]string{
	"napper": perlNaps + `print STDERR "ready\n"; sleep 1000`,
	// A pipeline whose members have all started once the last one says ready.
	"feeder": perlNaps + `print "go\n"; sleep 1000`,
	"passer": perlNaps + `<STDIN>; print "go\n"; sleep 1000`,
	"taker":  perlNaps + `<STDIN>; print "ready\n"; sleep 1000`,
	"reader": `echo ready; while read x; do echo "read $x"; done; echo eof`,
	"teller": `echo telling; while read x; do echo "read $x"; done`,
	"asker":  `echo ready; until [ -e "$GO" ]; do sleep 0.01; done; read x; echo "read $x"`,
	"talker": `echo said`,
	"chatty": `seq 100; until [ -e "$GO" ]; do sleep 0.01; done; seq 100000`,
	// It waits in wait, for a trap that comes just before read has to wait for a line.
	"tough":   `trap 'echo caught' INT QUIT; exec 3<&0; (read x <&3; echo "read $x") & echo ready; until wait $!; do :; done; exit 3`,
	"tidy":    `trap 'echo tidied; exit 4' INT TERM HUP; echo ready; while :; do read x; done`,
	"script":  `$1 napper; echo after`,
	"strict":  `set -e; $1 napper; echo after`,
	"trapper": `trap 'echo trapped' INT; $1 napper; echo after`,
	"selfish": `kill -STOP $$; echo continued`,
	"mother":  `trap 'echo mother; kill $!; wait; exit 5' INT; napper & wait`,
	"leaver":  `sleep 1000 & echo left`,
	// It puts things in order before it stops, as less and mutt do.
	"polite": `trap 'echo folding; trap - TSTP; kill -TSTP $$; echo unfolding' TSTP; echo ready; while :; do read x && exit 6; done`,
	"deaf":   `trap "" TSTP; echo ready; read x; echo "read $x"`,
}

// In perl: a shell that says ready and then executes sleep might be stopped in between.
const perlNaps = "#!/usr/bin/perl\n$| = 1; "

const zshrc = `
unsetopt zle promptsp promptcr beep notify
setopt promptsubst
precmd() { st="$pipestatus" }
PROMPT='=<%?:$st>='
`

const fishInit = `
set fish_greeting
function fish_prompt; end
function fish_right_prompt; end
function fish_mode_prompt; end
function the_prompt --on-event fish_prompt; set -l st $status $pipestatus; printf '=<%s:%s>=\x1d' $st[1] "$st[2..]"; end
function the_start --on-event fish_preexec; printf '\x1e'; end
`

func NewBench(t *testing.T) *bench {
	t.Helper()
	dir, err := os.MkdirTemp("", "fini-e2e-tty-")
	rig.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil { // another uid runs what is in it
		t.Fatal(err)
	}
	file := func(name, text string, mode os.FileMode) {
		rig.NoError(t, rig.WriteProgram(filepath.Join(dir, name), []byte(text), mode))
	}
	binary, err := os.ReadFile(rig.Fini)
	rig.NoError(t, err)
	file("fini", string(binary), 0o755)
	for name, text := range caseScripts {
		if !strings.HasPrefix(text, "#!") {
			text = "#!/bin/sh\n" + text
		}
		file(name, text+"\n", 0o755)
	}
	file("counter", "#!/bin/sh\nexec "+strings.Join(rig.Mode("signals", "3"), " ")+"\n", 0o755)
	file(".zshrc", zshrc, 0o644)
	file("init.fish", fishInit, 0o644)
	file("Makefile", "nap:\n\t$(P) napper\n\techo after\n", 0o644)
	file("text", strings.Repeat("a line of text\n", 100), 0o644)
	file("tmux.conf", "set -g default-shell /bin/sh\nset -g status off\nset -g default-terminal screen\nset -g escape-time 0\n", 0o644)
	b := &bench{dir: dir, container: containers.UniqueName("tty")}
	b.startSSH = sync.OnceValue(func() error { return b.serveSSH(t) })
	b.startContainer = sync.OnceValue(func() error { return b.runContainer(t) })
	return b
}

// serveSSH is a server for this user alone: an sshd for each connection to a port of the loopback,
// with keys of its own.
func (b *bench) serveSSH(t *testing.T) error {
	sshd, err := exec.LookPath("/usr/sbin/sshd")
	if err != nil {
		return err
	}
	if os.Geteuid() == 0 {
		if err := os.MkdirAll("/run/sshd", 0o755); err != nil { // sshd wants it
			return err
		}
	}
	dir, err := os.MkdirTemp("", "fini-e2e-ssh-")
	if err != nil {
		return err
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	for _, name := range []string{"host", "user"} {
		if out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", filepath.Join(dir, name)).CombinedOutput(); err != nil {
			return fmt.Errorf("ssh-keygen: %w: %s", err, out)
		}
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	t.Cleanup(func() { _ = listener.Close() })
	port := listener.Addr().(*net.TCPAddr).Port
	who, err := user.Current()
	if err != nil {
		return err
	}
	config := fmt.Sprintf("HostKey %[1]s/host\nAuthorizedKeysFile %[1]s/user.pub\nStrictModes no\nUsePAM no\nPermitRootLogin yes\n"+
		"AcceptEnv *\nPidFile none\nPrintMotd no\nPrintLastLog no\nSetEnv HOME=%[1]s\n", dir) // where no shell has a file to read
	client := fmt.Sprintf("Host pty\nHostName 127.0.0.1\nPort %d\nUser %s\nIdentityFile %s/user\nIdentitiesOnly yes\nLogLevel ERROR\n"+
		"StrictHostKeyChecking no\nUserKnownHostsFile /dev/null\nSendEnv PATH D GO PTYMARK PS1 LC_ALL\n", port, who.Username, dir)
	err = errors.Join(
		os.WriteFile(filepath.Join(dir, "sshd_config"), []byte(config), 0o600),
		os.WriteFile(filepath.Join(b.dir, "ssh_config"), []byte(client), 0o600),
	)
	if err != nil {
		return err
	}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			file, err := conn.(*net.TCPConn).File()
			_ = conn.Close()
			if err != nil {
				return
			}
			cmd := exec.Command(sshd, "-i", "-f", filepath.Join(dir, "sshd_config"))
			cmd.Stdin, cmd.Stdout = file, file
			_ = cmd.Start()
			_ = file.Close()
			go func() { _ = cmd.Wait() }()
		}
	}()
	if out, err := exec.Command("ssh", "-F", filepath.Join(b.dir, "ssh_config"), "pty", "true").CombinedOutput(); err != nil {
		return fmt.Errorf("as %s: %w: %s", who.Username, err, out)
	}
	return nil
}

// runContainer runs a container with busybox, into which cases go by docker exec.
func (b *bench) runContainer(t *testing.T) error {
	image := containers.Base(t)
	out, err := containers.Client(t, "run", "-d", "--rm", "--init", "--name", b.container, "-v", b.dir+":"+b.dir, image, "sleep", "1000000").CombinedOutput()
	if err != nil {
		return fmt.Errorf("docker run: %w: %s", err, out)
	}
	t.Cleanup(func() { _ = containers.Client(t, "rm", "-f", b.container).Run() })
	return nil
}

// A sitting is what came of a case.
type Sitting struct {
	Screen string // normalised
	left   string // what was alive at the last prompt, beside the shell and the wrapper
	after  string // what was alive when the shell had ended
	state  string // and what that was doing
	Broken string // what was waited for in vain
}

// Unlike returns how b, with fini, differs from s, without it; "" if it does not.
func (s Sitting) Unlike(b Sitting, c typedCase) string {
	screen, other := s.Screen, b.Screen
	if c.says {
		other = finiSays.ReplaceAllString(other, "")
	}
	switch {
	case c.loose:
		screen, other = statuses(screen), statuses(other)
	case c.unordered:
		screen, other = inOrder(screen), inOrder(other)
	}
	switch {
	case b.Broken != "":
		return b.Broken
	case screen != other:
		return "another screen"
	case b.left != "" && s.left != b.left: // the shell may have its prompt before a pipeline has ended
		return fmt.Sprintf("at the last prompt %q is alive, without fini %q", b.left, s.left)
	case b.after != "":
		return fmt.Sprintf("after the shell's end %q is alive:\n%s", b.after, b.state)
	}
	return ""
}

// statuses are those of the prompts. One that is drawn again is one.
func statuses(screen string) string {
	return strings.Join(slices.Compact(promptForm.FindAllString(screen, -1)), " ")
}

// inOrder is a screen whose lines are sorted, each prompt being one.
func inOrder(screen string) string {
	var lines []string
	for line := range strings.Lines(promptForm.ReplaceAllString(screen, "\n$0\n")) {
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// A shellUser types at a terminal, to a shell of its own.
type shellUser struct {
	t     *testing.T
	bench *bench
	cmd   *exec.Cmd
	ended chan struct{}
	keys  *os.File
	fd    int             // of keys
	wrap  string          // what is before the command; "" for nothing
	born  int             // when the shell was started, as field 22 of /proc/PID/stat has it
	mark  string          // in the environment of the shell and of all that it starts
	older map[string]bool // the entries of /proc that were there before the shell, and are still
	dir   string
	limit time.Duration

	mu    sync.Mutex
	raw   []byte
	grown chan struct{}
	pos   int // up to here the screen has been waited for
}

var sittings atomic.Int64

// Sit does a case: the bare command, or what is to be like it.
func (b *bench) Sit(t *testing.T, shell shellKind, c typedCase, wrap string, bare *Sitting, limit time.Duration) (s Sitting) {
	t.Helper()
	p := &shellUser{
		t: t, bench: b, wrap: wrap, limit: limit, dir: t.TempDir(),
		mark:  fmt.Sprintf("PTYMARK=%d-%d", os.Getpid(), sittings.Add(1)),
		grown: make(chan struct{}, 1), ended: make(chan struct{}),
	}
	p.start(t, shell)
	defer p.leave(t)
	do := func() error {
		if err := p.see(""); err != nil {
			return err
		}
		for _, turn := range c.keys {
			if err := p.do(turn[0]); err != nil {
				return err
			}
			if err := p.await(turn[1]); err != nil {
				return fmt.Errorf("after %q: %w", turn[0], err)
			}
		}
		return nil
	}
	if err := do(); err != nil {
		s.Broken, s.Screen = err.Error(), normalised(p.visible(), wrap)
		return s
	}
	s.Screen = normalised(p.visible()[:p.pos], wrap)
	rig.Await(limit/3, func() bool { s.left = names(p.marked()); return bare == nil || s.left == "" || s.left == bare.left })
	if err := p.exit(); err != nil {
		s.Broken = err.Error()
	}
	rig.Await(limit/3, func() bool { s.after = names(p.marked()); return bare == nil || s.after == "" })
	if bare != nil && s.after != "" {
		for _, proc := range p.marked() {
			s.state += proc.describe()
		}
	}
	return s
}

// start starts the shell as the leader of a session on a pty without echo: what is typed is
// not on the screen.
func (p *shellUser) start(t *testing.T, shell shellKind) {
	t.Helper()
	theirs, ours := pty.Open(t)
	defer func() { _ = theirs.Close() }()
	mode, err := unix.IoctlGetTermios(int(theirs.Fd()), unix.TCGETS)
	if err == nil {
		mode.Lflag &^= unix.ECHO
		mode.Lflag |= unix.NOFLSH // a key that sends a signal drops nothing that was written before
		err = errors.Join(
			unix.IoctlSetTermios(int(theirs.Fd()), unix.TCSETS, mode),
			unix.IoctlSetWinsize(int(theirs.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 250}),
		)
	}
	rig.NoError(t, err)
	// With a descriptor in blocking mode a read that is under way would keep the line open.
	if p.fd, err = unix.FcntlInt(ours.Fd(), unix.F_DUPFD_CLOEXEC, 3); err == nil {
		err = errors.Join(unix.SetNonblock(p.fd, true), ours.Close())
	}
	rig.NoError(t, err)
	p.keys = os.NewFile(uintptr(p.fd), "pty")
	p.cmd = exec.Command(shell.Name, shell.args...)
	p.cmd.Dir = p.dir
	p.cmd.Env = append([]string{
		"PATH=" + p.bench.dir + ":" + os.Getenv("PATH") + ":/usr/sbin:/sbin",
		"D=" + p.bench.dir, "CONTAINER=" + p.bench.container, "ZDOTDIR=" + p.bench.dir, "HOME=" + p.dir, "GO=" + filepath.Join(p.dir, "go"),
		"TERM=vt100", "LC_ALL=C", "HISTFILE=", "LESSHISTFILE=-", "LESS=", p.mark,
	}, shell.env...)
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = theirs, theirs, theirs
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	p.older = map[string]bool{}
	for _, name := range processes() {
		p.older[name] = true
	}
	rig.NoError(t, p.cmd.Start())
	p.born = procfs.StatOf(p.cmd.Process.Pid).Number(22)
	go func() { _ = p.cmd.Wait(); close(p.ended) }()
	go p.read()
}

func (p *shellUser) read() {
	b := make([]byte, 4096)
	for {
		n, err := p.keys.Read(b)
		p.mu.Lock()
		p.raw = append(p.raw, b[:n]...)
		p.mu.Unlock()
		select {
		case p.grown <- struct{}{}:
		default:
		}
		if err != nil {
			return
		}
	}
}

func (p *shellUser) visible() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return string(fishEditing.ReplaceAll(p.raw, nil))
}

// see waits until a text is on the screen below what was waited for before. "" stands for a
// prompt.
func (p *shellUser) see(text string) error {
	for w := new(rig.Wait); ; {
		screen := p.visible()
		below := screen[p.pos:]
		if text == "" {
			if at := promptForm.FindStringIndex(below); at != nil {
				p.pos += at[1]
				return nil
			}
		} else if at := strings.Index(below, text); at >= 0 {
			p.pos += at + len(text)
			return nil
		}
		select {
		case <-p.grown:
		case <-time.After(100 * time.Millisecond):
		}
		if w.Over(p.limit) {
			if text == "" {
				text = "a prompt"
			}
			return fmt.Errorf("never seen: %s; instead %q", text, below)
		}
	}
}

const (
	ctrlC         = "\x03"
	ctrlD         = "\x04"
	ctrlZ         = "\x1a"
	ctrlBackslash = "\x1c"
	escape        = "\x1b"
	key           = "\x00" // stands before what is typed without a newline
)

// do types a line or a control character, or does what is behind a "!". In a line, "fini" is fini
// with its flags, another init, or nothing.
func (p *shellUser) do(what string) error {
	if order, ok := strings.CutPrefix(what, "!"); ok {
		words := strings.Fields(order + " nothing")
		switch words[0] {
		case "nothing":
			return nil
		case "touch": // what asker and chatty wait for
			return os.WriteFile(filepath.Join(p.dir, "go"), nil, 0o644)
		case "winch":
			rig.Await(p.limit, p.finisHaveStarted) // like a key
			return unix.IoctlSetWinsize(p.fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 25, Col: 251})
		case "hangup":
			return p.keys.Close()
		case "kill":
			return p.kill(words[1], unix.SignalNum("SIG"+words[2]))
		}
		return fmt.Errorf("no such order: %s", what)
	}
	text, raw := strings.CutPrefix(what, key)
	if !raw {
		if p.wrap == "" {
			text = strings.ReplaceAll(text, "fini ", "")
		}
		text = strings.ReplaceAll(text, "fini", p.wrap)
		if what == "" || what[0] >= ' ' {
			text += "\n"
		} else {
			// A key in the moment in which the command starts may count twice: see docs/limits.md.
			rig.Await(p.limit, p.finisHaveStarted)
		}
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
	if whom == "shell" {
		return p.cmd.Process.Signal(sig)
	}
	all := p.marked()
	childOf := func(pid int) int {
		return slices.IndexFunc(all, func(proc markedProcess) bool { return proc.parent == pid })
	}
	i := childOf(p.cmd.Process.Pid)
	if i < 0 {
		return errors.New("the shell has no child")
	}
	if inner := childOf(all[i].pid); whom == "inner" && inner >= 0 && all[inner].name == "reaper" {
		i = inner
	}
	if whom == "group" {
		return syscall.Kill(-all[i].group, sig)
	}
	return syscall.Kill(all[i].pid, sig)
}

// await waits for a text on the screen; for a prompt, if that is ""; or for what is behind a "!".
func (p *shellUser) await(what string) error {
	order, ok := strings.CutPrefix(what, "!")
	if !ok {
		return p.see(what)
	}
	if first, second, ok := strings.Cut(order, ", "); ok {
		if err := p.await("!" + first); err != nil {
			return err
		}
		return p.await("!" + second)
	}
	words := strings.Fields(order)
	var fact func() bool
	if text, ok := strings.CutPrefix(order, "seen "); ok { // above or below what was waited for
		fact = func() bool {
			at := strings.Index(p.visible(), text)
			if at >= 0 {
				p.pos = max(p.pos, at+len(text))
			}
			return at >= 0
		}
		if !rig.Await(p.limit, fact) {
			return fmt.Errorf("never %s", order)
		}
		return nil
	}
	switch words[0] {
	case "nothing":
		return nil
	case "prompt":
		return p.see("")
	case "stopped", "foreground", "background": // the group of a process of that name
		fact = func() bool { return p.groupIs(words[1], words[0]) }
	case "halted": // a process of that name, whatever its group does
		fact = func() bool {
			return slices.ContainsFunc(p.marked(), func(proc markedProcess) bool { return proc.name == words[1] && proc.stopped })
		}
	case "gone": // whatever there was, but the shell
		fact = func() bool { return len(p.marked()) == 0 && p.children() == 0 }
	case "end": // of all that there was
		fact = func() bool { return p.hasEnded() && len(p.marked()) == 0 }
	default:
		return fmt.Errorf("no such fact: %s", what)
	}
	if !rig.Await(p.limit, fact) {
		return fmt.Errorf("never came true: %s", order)
	}
	return nil
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
func (p *shellUser) exit() error {
	for w := new(rig.Wait); !p.hasEnded(); {
		prompts := p.prompts()
		if p.do("exit") != nil {
			break // hung up
		}
		if rig.Poll(time.Second, func() bool { return p.hasEnded() || p.prompts() > prompts }) && p.hasEnded() {
			break
		}
		if w.Over(p.limit) {
			return errors.New("the shell does not end")
		}
	}
	return nil
}

// prompts counts those that the screen has had.
func (p *shellUser) prompts() int { return len(promptForm.FindAllString(p.visible(), -1)) }

// leave kills what there is left, of which nothing but this case's has the mark.
func (p *shellUser) leave(t *testing.T) {
	t.Helper()
	_ = p.cmd.Process.Kill()
	rig.Until(t, "the case's processes are gone", func() bool {
		left := p.marked()
		for _, proc := range left {
			_ = syscall.Kill(proc.pid, syscall.SIGKILL)
		}
		return len(left) == 0 && p.hasEnded()
	})
	_ = p.keys.Close()
}

// A markedProcess is one that has the case's mark in its environment.
type markedProcess struct {
	pid, parent, group int
	name               string
	stopped            bool
}

// describe says for a failure where each of the process's threads is.
func (proc markedProcess) describe() string {
	text := fmt.Sprintf("%d %s: parent %d, group %d, pending %s\n", proc.pid, proc.name, proc.parent, proc.group, procfs.Status(proc.pid, "ShdPnd"))
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", proc.pid))
	for _, task := range tasks {
		wchan, _ := os.ReadFile(task + "/wchan")
		call, _ := os.ReadFile(task + "/syscall")
		if state := procfs.ReadStat(task + "/stat").State(); state != 0 {
			text += fmt.Sprintf("  %s %c %s %s\n", filepath.Base(task), state, wchan, bytes.TrimSpace(call))
		}
	}
	return text
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
		if pid == p.cmd.Process.Pid {
			continue
		}
		stat := procfs.StatOf(pid)
		if stat.Gone() || slices.Contains(programs.Silent, stat.Name) || stat.Number(22) < p.born {
			continue
		}
		env, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		if !bytes.Contains(append(env, 0), []byte(p.mark+"\x00")) {
			continue
		}
		all = append(all, markedProcess{pid, stat.Number(4), stat.Number(5), stat.Name, procfs.IsStopped(pid)})
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
		if state := procfs.Status(pid, "State"); state != "" && state[0] != 'Z' {
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
	holder, err := unix.IoctlGetInt(p.fd, unix.TIOCGPGRP)
	if err != nil {
		return false
	}
	inFront := holder == group
	if sid, _ := unix.Getsid(all[at].pid); sid != p.cmd.Process.Pid { // dumb-init's command
		inFront = holder != p.cmd.Process.Pid
	}
	return state == "stopped" || inFront == (state == "foreground")
}

var (
	// Of a terminal: its escape sequences, what it echoes of control characters, which is now
	// before and now behind what the command says of them, and fish's mark of a line without an end.
	escapes = regexp.MustCompile(`\x1b\[[0-9;?]*[a-zA-Z]|\x1b[=>()][0B]?|\x1b\][^\x07]*\x07|\$<[0-9]+>|[\r\x07\x0f]|\^[CZ\\]|⏎ *`)
	// fish names a process of a pipeline by its first word, and cuts a job's text off at a width.
	fishNames = regexp.MustCompile(`fish: Process [0-9]+, '[^']*' from job [0-9]+, '.*'|fish: Job [0-9]+, '.*'`)
	finiSays  = regexp.MustCompile(`fini: .*\n`)
	numbers   = regexp.MustCompile(`\b[0-9]{3,}\b|\bready [0-9]+`) // of counter, whose pid is small in a namespace
)

// normalised is a screen without what differs from one sitting to the next: pids, and fini's
// own words in what a shell says of its jobs. A core is dumped by the bare command alone.
func normalised(screen, wrap string) string {
	screen = escapes.ReplaceAllString(screen, "")
	screen = strings.ReplaceAll(screen, " (core dumped)", "")
	if wrap != "" {
		screen = strings.ReplaceAll(screen, wrap+" ", "")
	}
	screen = fishNames.ReplaceAllString(screen, "fish:")
	var b strings.Builder
	for last := 0; last < len(screen); {
		at := promptForm.FindStringIndex(screen[last:])
		if at == nil {
			at = []int{len(screen) - last, len(screen) - last}
		}
		b.WriteString(numbers.ReplaceAllString(screen[last:last+at[0]], "PID"))
		b.WriteString(screen[last+at[0] : last+at[1]])
		last += at[1]
	}
	return b.String()
}
