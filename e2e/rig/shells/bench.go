package shells

import (
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/e2e/rig/containers"
	"github.com/seed-126c5d8a/fini/internal/tests/need"
)

// A bench has the programs that cases run, and what several of them share.
type bench struct {
	dir                      string
	container                string
	startSSH, startContainer func()
}

// Each of these is a script of that name.
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
	"polite":  `trap 'echo folding; trap - TSTP; kill -TSTP $$; echo unfolding' TSTP; echo ready; while :; do read x && exit 6; done`,
	"deaf":    `trap "" TSTP; echo ready; read x; echo "read $x"`,
	"counter": "exec " + strings.Join(rig.Mode("signals", "3"), " "),
}

// In perl: a shell that says ready and then executes sleep might be stopped in between.
const perlNaps = "#!/usr/bin/perl\n$| = 1; "

// What shells and programs read.
var caseFiles = map[string]string{
	".zshrc": `
unsetopt zle promptsp promptcr beep notify
setopt promptsubst
precmd() { st="$pipestatus" }
PROMPT='=<%?:$st>='
`,
	"init.fish": `
set fish_greeting
function fish_prompt; end
function fish_right_prompt; end
function fish_mode_prompt; end
function the_prompt --on-event fish_prompt; set -l st $status $pipestatus; printf '=<%s:%s>=\x1d' $st[1] "$st[2..]"; end
function the_start --on-event fish_preexec; printf '\x1e'; end
`,
	"Makefile":  "nap:\n\t$(P) napper\n\techo after\n",
	"text":      strings.Repeat("a line of text\n", 100),
	"tmux.conf": "set -g default-shell /bin/sh\nset -g status off\nset -g default-terminal screen\nset -g escape-time 0\n",
}

func NewBench(t *testing.T) *bench {
	t.Helper()
	dir, err := os.MkdirTemp("", "fini-e2e-tty-")
	rig.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	rig.NoError(t, os.Chmod(dir, 0o755)) // another uid runs what is in it
	rig.NoError(t, rig.WriteProgram(filepath.Join(dir, "fini"), []byte(rig.ReadFile(t, rig.Fini)), 0o755))
	for name, text := range caseScripts {
		if !strings.HasPrefix(text, "#!") {
			text = "#!/bin/sh\n" + text
		}
		rig.NoError(t, rig.WriteProgram(filepath.Join(dir, name), []byte(text+"\n"), 0o755))
	}
	for name, text := range caseFiles {
		rig.Put(t, filepath.Join(dir, name), text, 0o644)
	}
	b := &bench{dir: dir}
	b.startSSH = sync.OnceFunc(func() { b.setUpSSH(t) })
	b.startContainer = sync.OnceFunc(func() {
		b.container = containers.StartContainer(t, "--init", "-v", dir+":"+dir, containers.Base(t), "sleep", "1000000").Name
	})
	return b
}

// MustHave skips a case that types the name of a program that is missing, or lacks something else.
func (c typedCase) MustHave(t *testing.T, b *bench) {
	t.Helper()
	words := strings.Fields(c.keys)
	for _, program := range []string{"less", "vi", "tmux", "make", "ssh"} {
		if slices.Contains(words, program) {
			need.Program(t, program)
		}
	}
	for _, program := range []string{"unshare", "setpriv", "su", "runuser"} {
		if slices.Contains(words, program) {
			need.Root(t)
		}
	}
	if slices.Contains(words, "ssh") {
		need.Program(t, "/usr/sbin/sshd")
		b.startSSH()
	}
	if slices.Contains(words, "$CONTAINER") {
		containers.NeedDocker(t)
		b.startContainer()
	}
}

// setUpSSH writes what an ssh is told that starts its own server: an sshd for this user alone, with keys of its own, in a
// session of its own.
func (b *bench) setUpSSH(t *testing.T) {
	dir, err := os.MkdirTemp("", "fini-e2e-ssh-")
	rig.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if os.Geteuid() == 0 {
		rig.NoError(t, os.MkdirAll("/run/sshd", 0o755)) // sshd wants it
	}
	for _, name := range []string{"host", "user"} {
		rig.Run(t, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", filepath.Join(dir, name))
	}
	who, err := user.Current()
	rig.NoError(t, err)
	// Its HOME is where no shell has a file to read.
	rig.Put(t, filepath.Join(dir, "sshd_config"), fmt.Sprintf("HostKey %[1]s/host\nAuthorizedKeysFile %[1]s/user.pub\nStrictModes no\nUsePAM no\n"+
		"PermitRootLogin yes\nAcceptEnv *\nPidFile none\nPrintMotd no\nPrintLastLog no\nSetEnv HOME=%[1]s\n", dir), 0o600)
	rig.Put(t, filepath.Join(b.dir, "ssh_config"), fmt.Sprintf("Host pty\nUser %s\nIdentityFile %[2]s/user\nIdentitiesOnly yes\nLogLevel ERROR\n"+
		"ProxyCommand env -i setsid /usr/sbin/sshd -i -f %[2]s/sshd_config\nStrictHostKeyChecking no\nUserKnownHostsFile /dev/null\n"+
		"SendEnv PATH D GO PTYMARK PS1 LC_ALL\n", who.Username, dir), 0o600)
	out, err := exec.Command("ssh", "-F", filepath.Join(b.dir, "ssh_config"), "pty", "true").CombinedOutput()
	need.That(t, err == nil, fmt.Sprintf("an sshd for this user (%v: %s)", err, out))
}
