package install

import (
	"bufio"
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/need"
	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/e2e/rig/containers"
	"github.com/seed-126c5d8a/fini/e2e/rig/recipes"
	"github.com/seed-126c5d8a/fini/e2e/rig/reports"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { rig.Main(m) }

// The copy is whole or is not there, and is what was copied.
func TestInstall(t *testing.T) {
	t.Parallel()
	binary := rig.ReadFile(t, rig.Fini)
	installed := func(t *testing.T, path string) {
		t.Helper()
		got, err := os.ReadFile(path)
		if err != nil || string(got) != binary {
			t.Fatalf("%d bytes, %v; want the %d of fini", len(got), err, len(binary))
		}
		if info, err := os.Stat(path); err != nil || info.Mode() != 0o755 {
			t.Errorf("mode %v, %v", info.Mode(), err)
		}
		reports.MustHaveOnly(t, path)
		if status, _, stderr := rig.Ask(t, exec.Command(path, "--", "sh", "-c", "exit 7")); status != 7 {
			t.Errorf("the copy: status %d, %q", status, stderr)
		}
	}
	install := func(t *testing.T, umask, path string, says string) {
		t.Helper()
		want := 0
		if says != "" {
			want = 125
		}
		status, stdout, stderr := rig.Ask(t, exec.Command("/bin/sh", "-c", "umask "+umask+`; exec "$0" --install="$1"`, rig.Fini, path))
		if status != want || stdout != "" || !strings.Contains(stderr, says) || strings.Count(stderr, "\n") != min(want, 1) {
			t.Errorf("status %d, %q, %q", status, stdout, stderr)
		}
	}
	t.Run("new", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "a name")
		install(t, "077", path, "")
		installed(t, path)
	})
	t.Run("over another", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "fini")
		rig.Put(t, path, "old", 0o600)
		install(t, "0", path, "")
		installed(t, path)
	})
	t.Run("over one that is executed", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "fini")
		install(t, "022", path, "")
		l := rig.StartCmd(t, exec.Command(path, "--", "sh", "-c", "echo ready; read line"))
		l.Out.Want("ready")
		if status, _, stderr := rig.Ask(t, exec.Command(path, "--install="+path)); status != 0 {
			t.Errorf("over itself: status %d, %q", status, stderr)
		}
		installed(t, path)
		rig.Write(t, l, "go\n")
		l.MustEnd(0)
	})
	t.Run("a link is replaced, and not followed", func(t *testing.T) {
		other := filepath.Join(t.TempDir(), "other")
		rig.Put(t, other, "other", 0o644)
		path := filepath.Join(t.TempDir(), "fini")
		rig.NoError(t, os.Symlink(other, path))
		install(t, "022", path, "")
		installed(t, path)
		if got := rig.ReadFile(t, other); got != "other" {
			t.Errorf("what it led to was written: %d bytes", len(got))
		}
	})
	t.Run("refused", func(t *testing.T) {
		dir := t.TempDir()
		fifo := filepath.Join(t.TempDir(), "fifo")
		rig.NoError(t, unix.Mkfifo(fifo, 0o600))
		install(t, "022", dir, "it is a directory; want the name of a file")
		install(t, "022", filepath.Join(dir, "none", "fini"), "no such file or directory")
		install(t, "022", fifo, "it is no regular file")
		install(t, "022", "", "want a PATH")
		if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
			t.Errorf("something was left: %v, %v", entries, err)
		}
		status, _, stderr := rig.Ask(t, exec.Command(rig.Fini, "--install="+filepath.Join(dir, "x"), "true"))
		if status != 125 || !strings.Contains(stderr, "runs no command") {
			t.Errorf("with a command: status %d, %q", status, stderr)
		}
	})
	t.Run("asked to end meanwhile", func(t *testing.T) {
		dir := t.TempDir()
		status, _, stderr := rig.Ask(t, exec.Command(need.Program(t, "strace"), "-f", "-qq", "-o", "/dev/null", "-e", "trace=fsync",
			"-e", "inject=fsync:signal=TERM", rig.Fini, "--install="+filepath.Join(dir, "fini")))
		if entries, err := os.ReadDir(dir); status != 0 || err != nil || len(entries) != 1 {
			t.Errorf("status %d, %v, %v; stderr: %s", status, entries, err, stderr)
		}
	})
	t.Run("no room", func(t *testing.T) {
		dir := t.TempDir()
		if err := unix.Mount("none", dir, "tmpfs", 0, "size=1m"); err != nil {
			need.That(t, false, "the right to mount a file system")
		}
		defer func() { _ = unix.Unmount(dir, unix.MNT_DETACH) }()
		install(t, "022", filepath.Join(dir, "fini"), "no space left on device")
		if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
			t.Errorf("a half was left: %v, %v", entries, err)
		}
	})
	t.Run("a reader sees one or the other", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "fini")
		install(t, "022", path, "")
		l := rig.StartCmd(t, exec.Command("/bin/sh", "-c", `for i in 1 2 3 4 5 6 7 8 9 10; do "$0" --install="$1" || exit 1; done; echo done`, rig.Fini, path))
		for !l.Out.EOF() {
			got, err := os.ReadFile(path)
			if err != nil || len(got) != len(binary) {
				t.Fatalf("%d bytes, %v", len(got), err)
			}
		}
		l.MustEnd(0)
	})
}

// An image that holds nothing but fini brings it to a volume, as any user.
func TestInstallFromScratch(t *testing.T) {
	containers.NeedDocker(t)
	image := containers.BuildExample(t).Fini
	for _, user := range []string{"0:0", "65532:65532"} {
		if quick := user != "0:0"; rig.Quick() && !quick {
			continue
		}
		dir := t.TempDir()
		rig.NoError(t, os.Chmod(dir, 0o777))
		containers.Docker(t, "run", "--rm", "--read-only", "--cap-drop=ALL", "--network=none", "--user="+user, "-v", dir+":/shared",
			image, "/fini", "--install=/shared/fini")
		if rig.ReadFile(t, filepath.Join(dir, "fini")) != rig.ReadFile(t, rig.Fini) {
			t.Errorf("as %s: what is installed is not fini", user)
		}
	}
}

// Each shell offers flags, the same ones, values where there are some to choose from, and then commands.
func TestCompletions(t *testing.T) {
	t.Parallel()
	flags := bashCompletes(t, "../packaging/completions/fini.bash", "fini", "-")
	for i, word := range flags {
		flags[i] = strings.TrimSuffix(word, "=")
		// fini takes the word --help for the value of a flag that wants one.
		if says, _ := exec.Command(rig.Fini, flags[i], "--help").CombinedOutput(); strings.Contains(string(says), "unknown flag") {
			t.Errorf("fini has no flag %s", word)
		}
	}
	slices.Sort(flags)
	if len(flags) < 40 {
		t.Fatalf("only %q", flags)
	}
	for shell, complete := range map[string]func(t *testing.T, file string, words ...string) []string{
		"bash": bashCompletes, "fish": fishCompletes, "zsh": zshCompletes,
	} {
		rig.Case(t, shell == "bash", shell, func(t *testing.T) {
			t.Parallel()
			need.Program(t, shell)
			file := filepath.Join(t.TempDir(), "_fini")
			rig.Put(t, file, recipes.CompletionFor(t, shell), 0o644)
			rig.Run(t, shell, "-n", file)
			var got []string
			for _, word := range complete(t, file, "fini", "-") {
				got = append(got, strings.TrimSuffix(word, "="))
			}
			for _, word := range complete(t, file, "fini", "--") {
				got = append(got, strings.TrimSuffix(word, "="))
			}
			slices.Sort(got)
			if got = slices.Compact(got); !slices.Equal(got, flags) {
				t.Errorf("it offers %q, and bash %q", got, flags)
			}
			for _, tt := range []struct {
				words []string
				want  []string
			}{
				{[]string{"fini", "--orphans", ""}, []string{"leave", "pipes", "stop", "wait"}},
				{[]string{"fini", "-i", "--pdeathsig", "TER"}, []string{"TERM"}},
				{[]string{"fini", "-p", "non"}, []string{"none"}},
				{[]string{"fini", "-p", "J"}, nil}, // bash calls 32 JUNK
				{[]string{"fini", "--grace", "5s", "--ver"}, []string{"--verbose", "--version"}},
				{[]string{"fini", "-t", "5", "basenam"}, []string{"basename"}},
				{[]string{"fini", "-i", "--", "basenam"}, []string{"basename"}},
				{[]string{"fini-init", "-q", "-p", "TERM", "basenam"}, []string{"basename"}},
				{[]string{"fini", "-qp", "TERM", "basenam"}, []string{"basename"}},
			} {
				if shell == "fish" && slices.Contains(tt.words, "-qp") {
					continue // its helper for commands in commands knows no flags in one word
				}
				got := complete(t, file, tt.words...)
				slices.Sort(got)
				got = slices.DeleteFunc(slices.Compact(got), func(word string) bool { return word == "" })
				if !slices.Equal(got, tt.want) {
					t.Errorf("%q: %q, want %q", tt.words, got, tt.want)
				}
			}
			for _, value := range complete(t, file, "fini", "-p", "") {
				rig.StartCmd(t, exec.Command(rig.Fini, "--pdeathsig="+value, "--version")).MustEnd(0)
			}
			if text := rig.ReadFile(t, file); strings.Contains(text, "[not ") || strings.Contains(text, "'not ") {
				t.Error("a --no- flag is told by what the flag does")
			}
			for _, value := range complete(t, file, "fini", "--orphans", "") {
				rig.StartCmd(t, exec.Command(rig.Fini, "--orphans="+value, "--", "true")).MustEnd(0)
			}
			if got := complete(t, file, "fini", "--", "basename", "--ver"); slices.Contains(got, "--verbose") {
				t.Errorf("behind a command it offers fini's flags: %q", got)
			}
		})
	}
}

func bashCompletes(t *testing.T, file string, words ...string) []string {
	script := `file=$1; shift; . "$file"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _fini; printf '%s\n' "${COMPREPLY[@]}"`
	return strings.Fields(rig.Run(t, "bash", append([]string{"--norc", "-c", script, "bash", file}, words...)...))
}

func fishCompletes(t *testing.T, file string, words ...string) (all []string) {
	out := rig.Run(t, "fish", "--no-config", "-c", "source "+file+"; complete -C "+recipes.Quoted([]string{strings.Join(words, " ")})[0])
	for line := range strings.Lines(out) {
		word, _, _ := strings.Cut(strings.TrimSpace(line), "\t")
		all = append(all, word)
	}
	return all
}

// zshCompletes presses the key in a zsh at a terminal and reads what it would offer.
func zshCompletes(t *testing.T, file string, words ...string) (all []string) {
	const script = `
		zmodload zsh/zpty
		zpty z zsh -f -i
		zpty -w z 'PS1= PS2= RPS1=; stty -echo; unsetopt zle_bracketed_paste 2>/dev/null; unset zle_bracketed_paste; cd /
			fpath=($DIR $fpath); autoload -Uz compinit; compinit -D -u
			compadd() {
				if [[ $@[1,(i)(-|--)] == *-(O|A|D)* ]]; then builtin compadd "$@"; return; fi
				typeset -a __found; builtin compadd -A __found "$@"
				[[ -z $__found ]] || print -rl -- "offer "$^__found
				builtin compadd "$@"
			}
			finish() { print -r -- "the"" end"; zle .kill-whole-line }
			zle -N finish; bindkey ^X finish; bindkey ^I complete-word; zstyle ":completion:*" menu no; setopt nolistbeep
			zstyle ":completion:*" list-prompt ""; LISTMAX=10000; print be""gin'
		zpty -r -m z line '*begin*'
		zpty -n -w z "$LINE"$'\t\C-x'
		while zpty -r z line; do print -r -- $line; [[ $line != *"the end"* ]] || break; done`
	cmd := exec.Command("zsh", "-f", "-c", script)
	cmd.Env = append(os.Environ(), "LINE="+strings.Join(words, " "), "DIR="+filepath.Dir(file), "TERM=dumb", "ZDOTDIR="+t.TempDir())
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("zsh: %v: %s", err, out)
	}
	in := bufio.NewScanner(bytes.NewReader(out))
	for in.Scan() {
		_, word, found := strings.Cut(strings.TrimRight(in.Text(), "\r"), "offer ")
		if found && word != "-" { // which it adds to find out whether another letter may follow
			all = append(all, word)
		}
	}
	return all
}

// `make install` puts what a package has below a folder.
func TestMakeInstall(t *testing.T) {
	rig.Long(t)
	t.Parallel()
	dir := t.TempDir()
	rig.Run(t, "make", "-s", "-C", "..", "install", "DESTDIR="+dir, "PREFIX=/usr")
	recipes.MustBeAs(t, filepath.Join(dir, "usr/share/man/man1/fini.1"), "../docs/fini.1", 0o644)
	for path, shell := range map[string]string{
		"bash-completion/completions/fini": "bash", "zsh/site-functions/_fini": "zsh", "fish/vendor_completions.d/fini.fish": "fish",
	} {
		if rig.ReadFile(t, filepath.Join(dir, "usr/share", path)) != recipes.CompletionFor(t, shell) {
			t.Errorf("%s is another than for this fini", path)
		}
	}
	rig.StartCmd(t, exec.Command(filepath.Join(dir, "usr/bin/fini"), "--", "sh", "-c", "exit 7")).MustEnd(7)
}
