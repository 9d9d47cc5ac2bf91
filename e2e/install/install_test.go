package install

import (
	"bufio"
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/e2e/rig/containers"
	"github.com/seed-126c5d8a/fini/e2e/rig/recipes"
	"github.com/seed-126c5d8a/fini/internal/tests/need"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { rig.MainOfOthers(m) }

// The copy is whole or is not there, and is what was copied.
func TestInstall(t *testing.T) {
	t.Parallel()
	binary := rig.ReadFile(t, rig.Fini)
	// install runs a script that finds fini as $0 and the path of the copy as $1, in a folder, which then has nothing else.
	install := func(t *testing.T, script, dir string, status int, says string, left ...string) (path string) {
		t.Helper()
		path = filepath.Join(dir, "a name")
		got, stdout, stderr := rig.Ask(t, exec.Command("/bin/sh", "-c", script, rig.Fini, path))
		if got != status || stdout != "" || !strings.Contains(stderr, says) || strings.Count(stderr, "\n") != min(len(says), 1) {
			t.Errorf("status %d, %q, %q", got, stdout, stderr)
		}
		names := []string{}
		entries, err := os.ReadDir(dir)
		for _, entry := range entries {
			names = append(names, entry.Name())
		}
		if err != nil || !slices.Equal(names, left) && len(names)+len(left) > 0 {
			t.Errorf("there is %q, want %q, %v", names, left, err)
		}
		return path
	}
	installed := func(t *testing.T, path string) {
		t.Helper()
		recipes.MustBeAs(t, path, rig.Fini, 0o755)
		if status, _, stderr := rig.Ask(t, exec.Command(path, "--", "sh", "-c", "exit 7")); status != 7 {
			t.Errorf("the copy: status %d, %q", status, stderr)
		}
	}
	const installs = `exec "$0" --install="$1"`
	for name, script := range map[string]string{
		"new":                    "umask 077; " + installs,
		"over another":           `umask 0; echo old >"$1"; chmod 600 "$1"; ` + installs,
		"over itself":            `"$0" --install="$1" && exec "$1" --install="$1"`,
		"asked to end meanwhile": `strace -f -qq -o /dev/null -e trace=fsync -e inject=fsync:signal=TERM "$0" --install="$1"`,
	} {
		t.Run(name, func(t *testing.T) {
			if strings.HasPrefix(script, "strace") {
				need.Program(t, "strace")
			}
			installed(t, install(t, script, t.TempDir(), 0, "", "a name"))
		})
	}
	t.Run("over one that is executed", func(t *testing.T) {
		dir := t.TempDir()
		l := rig.StartCmd(t, exec.Command(install(t, installs, dir, 0, "", "a name"), "--", "sh", "-c", "echo ready; read line"))
		l.Out.Want("ready")
		installed(t, install(t, installs, dir, 0, "", "a name"))
		rig.Write(t, l, "go\n")
		l.MustEnd(0)
	})
	t.Run("a link is replaced, and not followed", func(t *testing.T) {
		dir := t.TempDir()
		installed(t, install(t, `cd "${1%/*}"; echo other >other; ln -s other "$1"; `+installs, dir, 0, "", "a name", "other"))
		if got := rig.ReadFile(t, filepath.Join(dir, "other")); got != "other\n" {
			t.Errorf("what it led to was written: %d bytes", len(got))
		}
	})
	t.Run("refused", func(t *testing.T) {
		install(t, `exec "$0" --install="${1%/*}"`, t.TempDir(), 125, "it is a directory; want the name of a file")
		install(t, `exec "$0" --install="$1/fini"`, t.TempDir(), 125, "no such file or directory")
		install(t, `mkfifo "$1"; `+installs, t.TempDir(), 125, "it is no regular file", "a name")
		install(t, `exec "$0" --install=`, t.TempDir(), 125, "want a PATH")
		install(t, installs+" true", t.TempDir(), 125, "runs no command")
	})
	t.Run("without /proc", func(t *testing.T) {
		need.Root(t, "to mount a file system")
		need.Program(t, "unshare", "bash")
		const hidden = `exec unshare -m bash -c 'mount -t tmpfs none /proc && exec %s "$0" --install="$1"' "$0" "$1"`
		installed(t, install(t, fmt.Sprintf(hidden, ""), t.TempDir(), 0, "", "a name"))
		install(t, fmt.Sprintf(hidden, "-a fini"), t.TempDir(), 125, "cannot read this binary: open /proc/self/exe: no such file")
	})
	t.Run("no room", func(t *testing.T) {
		dir := t.TempDir()
		if err := unix.Mount("none", dir, "tmpfs", 0, "size=1m"); err != nil {
			need.That(t, false, "the right to mount a file system")
		}
		defer func() { _ = unix.Unmount(dir, unix.MNT_DETACH) }()
		install(t, installs, dir, 125, "no space left on device")
	})
	t.Run("a reader sees one or the other", func(t *testing.T) {
		path := install(t, installs, t.TempDir(), 0, "", "a name")
		l := rig.StartCmd(t, exec.Command("/bin/sh", "-c",
			`for i in 1 2 3 4 5 6 7 8 9 10; do "$0" --install="$1" || exit 1; done; echo done`, rig.Fini, path))
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
			rig.Put(t, file, rig.ReadFile(t, "../packaging/completions/fini."+shell), 0o644)
			rig.Run(t, shell, "-n", file)
			offers := func(line string) (words []string) {
				for _, word := range complete(t, file, strings.Split(line, " ")...) {
					words = append(words, strings.TrimSuffix(word, "="))
				}
				slices.Sort(words)
				return slices.DeleteFunc(slices.Compact(words), func(word string) bool { return word == "" })
			}
			got := slices.Concat(offers("fini -"), offers("fini --"))
			slices.Sort(got)
			if got = slices.Compact(got); !slices.Equal(got, flags) {
				t.Errorf("it offers %q, and bash %q", got, flags)
			}
			for line, want := range map[string]string{
				"fini --orphans ":              "leave pipes stop wait",
				"fini -i --pdeathsig TER":      "TERM",
				"fini -p non":                  "none",
				"fini -p J":                    "", // bash calls 32 JUNK
				"fini --grace 5s --ver":        "--verbose --version",
				"fini -t 5 basenam":            "basename",
				"fini -i -- basenam":           "basename",
				"fini-init -q -p TERM basenam": "basename",
				"fini -qp TERM basenam":        "basename",
			} {
				if shell == "fish" && strings.Contains(line, "-qp") {
					continue // its helper for commands in commands knows no flags in one word
				}
				if got := strings.Join(offers(line), " "); got != want {
					t.Errorf("%q: %q, want %q", line, got, want)
				}
			}
			for _, value := range offers("fini -p ") {
				rig.StartCmd(t, exec.Command(rig.Fini, "--pdeathsig="+value, "--version")).MustEnd(0)
			}
			for _, value := range offers("fini --orphans ") {
				rig.StartCmd(t, exec.Command(rig.Fini, "--orphans="+value, "--", "true")).MustEnd(0)
			}
			if text := rig.ReadFile(t, file); strings.Contains(text, "[not ") || strings.Contains(text, "'not ") {
				t.Error("a --no- flag is told by what the flag does")
			}
			if got := offers("fini -- basename --ver"); slices.Contains(got, "--verbose") {
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
	for path, file := range map[string]string{
		"man/man1/fini.1": "docs/fini.1", "bash-completion/completions/fini": "packaging/completions/fini.bash",
		"zsh/site-functions/_fini":            "packaging/completions/fini.zsh",
		"fish/vendor_completions.d/fini.fish": "packaging/completions/fini.fish",
	} {
		recipes.MustBeAs(t, filepath.Join(dir, "usr/share", path), "../"+file, 0o644)
	}
	recipes.MustBeAs(t, filepath.Join(dir, "usr/bin/fini-sh"), "../packaging/fini-sh", 0o755)
	rig.StartCmd(t, exec.Command(filepath.Join(dir, "usr/bin/fini"), "--", "sh", "-c", "exit 7")).MustEnd(7)
}

// The script of the GitHub action, where every other program is busybox's, as in Alpine's containers.
func TestActionInAlpine(t *testing.T) {
	t.Parallel()
	busybox, bin, release := need.Program(t, "busybox"), t.TempDir(), t.TempDir()
	for applet := range strings.FieldsSeq(rig.Run(t, busybox, "--list")) {
		rig.NoError(t, os.Symlink(busybox, filepath.Join(bin, applet)))
	}
	name := "fini-linux-" + runtime.GOARCH
	rig.Put(t, filepath.Join(release, name), rig.ReadFile(t, rig.Fini), 0o644)
	rig.Put(t, filepath.Join(release, "SHA256SUMS"), rig.Run(t, "sh", "-c", `cd "$1" && sha256sum fini-*`, "sh", release), 0o644)
	server := httptest.NewServer(http.FileServer(http.Dir(release)))
	defer server.Close()
	run := func() (string, error) {
		temp := t.TempDir()
		cmd := exec.Command(busybox, "sh", "../packaging/action/install.sh")
		cmd.Env = []string{"PATH=" + bin, "RUNNER_TEMP=" + temp, "GITHUB_PATH=" + temp + "/path", "GITHUB_OUTPUT=" + temp + "/output", "RELEASE_VERSION=1.0.0", "RELEASE_URL=" + server.URL}
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if out, err := run(); err != nil || !strings.HasPrefix(out, "fini version ") {
		t.Errorf("%v: %s", err, out)
	}
	rig.Put(t, filepath.Join(release, name), "another binary", 0o644)
	if out, err := run(); err == nil || !strings.Contains(out, "::error title=fini::"+name+" is not what SHA256SUMS says") {
		t.Errorf("a changed binary: %v: %s", err, out)
	}
}
