package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seed-126c5d8a/fini/e2e/need"
)

// Each leftover says "ready" once it is what its name says, and the command waits for
// that before it ends. All of them hold the witness, and all sleep far longer than any
// test may take.
var leftoverKinds = []struct {
	name   string
	script string // run in the background of the command
	root   bool   // can only be made by root
}{
	{"background", `echo ready >&4; exec sleep 1000`, false},
	{"setsid", `exec setsid sh -c 'echo ready >&4; exec sleep 1000'`, false},
	{"daemon", `setsid sh -c 'sh -c "echo ready >&4; exec sleep 1000" & exit' & exit`, false},
	{"without streams", `exec setsid sh -c 'echo ready >&4; exec sleep 1000 </dev/null >/dev/null 2>&1 4>&-'`, false},
	{"ignores TERM", `trap "" TERM; echo ready >&4; sleep 1000`, false},
	{"stopped", `echo ready >&4; kill -STOP $(exec sh -c 'echo $PPID'); sleep 1000`, false},
	{"other uid", `exec setpriv --reuid 12345 --clear-groups sh -c 'echo ready >&4; exec sleep 1000'`, true},
	{"forks while it is stopped", `exec %FORKER% >&4`, false},
}

func TestNothingIsLeft(t *testing.T) {
	t.Parallel()
	inPlaces(t, func(t *testing.T, p place) {
		for i, kind := range leftoverKinds {
			if !asInCI() && !p.takes(i) {
				continue // all at once they are in each place
			}
			t.Run(kind.name, func(t *testing.T) {
				if kind.root {
					need.Root(t)
				}
				t.Parallel()
				mustStopAll(t, p, kind.script)
			})
		}
		t.Run("all at once", func(t *testing.T) {
			t.Parallel()
			var all []string
			for _, kind := range leftoverKinds {
				if !kind.root || need.IsRoot() {
					all = append(all, kind.script)
				}
			}
			mustStopAll(t, p, all...)
		})
	})
}

func mustStopAll(t *testing.T, p place, leftovers ...string) {
	const linger, grace = 100 * time.Millisecond, time.Second
	// Descriptor 4 is a pipe by which the leftovers report to the command.
	var script strings.Builder
	script.WriteString("dir=$(mktemp -d); mkfifo $dir/ready; exec 4<>$dir/ready; rm -r $dir\n")
	for _, l := range leftovers {
		fmt.Fprintf(&script, "{ %s ; } &\n", strings.ReplaceAll(l, "%FORKER%", strings.Join(mode("forker"), " ")))
	}
	for range leftovers {
		script.WriteString("read line <&4\n")
	}
	script.WriteString("echo end; exit 9\n")

	l := start(t, p, "--linger="+linger.String(), "--grace="+grace.String(), "--", "/bin/sh", "-c", script.String())
	l.Out.want("end")
	l.mustEnd(9)
	if said := l.Err.whole(); !strings.Contains(said, "fini: stopping leftover ") {
		t.Errorf("says nothing of a leftover that it stopped: %q", said)
	}
}

// A daemon that handles SIGTERM gets the time it needs: PID 1 must not end before it.
func TestLeftoverMayFinishAfterTerm(t *testing.T) {
	t.Parallel()
	inPlaces(t, func(t *testing.T, p place) {
		l := start(t, p, "--linger=0", "--", "/bin/sh", "-c", `
			dir=$(mktemp -d); mkfifo $dir/ready
			setsid sh -c 'trap "sleep 1; echo last words; exit" TERM; echo >$0; while :; do sleep 0.05; done' $dir/ready &
			read line <$dir/ready; rm -r $dir; echo end`)
		l.Out.want("end")
		l.Out.want("last words")
		l.mustEnd(0)
	})
}

func TestEachLeftoverIsAskedOnce(t *testing.T) {
	t.Parallel()
	inPlaces(t, func(t *testing.T, p place) {
		l := start(t, p, "--linger=0", "--grace=700ms", "--", "/bin/sh", "-c",
			strings.Join(mode("signals"), " ")+" & read line; exit 0")
		l.Out.want("ready")
		write(t, l, "go\n")
		var terms int
		for _, line := range l.Out.rest() {
			if line == "signal 15" {
				terms++
			}
		}
		l.mustEnd(0)
		if terms != 1 {
			t.Errorf("a leftover that stays got SIGTERM %d times, want once", terms)
		}
	})
}

// untilOlder waits until what is ready is older than a tick of 10 ms: within the one in which it
// started it may have come after a signal.
func untilOlder(t testing.TB) {
	t.Helper()
	ready := time.Now()
	until(t, "all are older than a tick", func() bool { return time.Since(ready) > 20*time.Millisecond })
}

// The first writer of the pipe is gone at the end of bash; the last line comes from the
// process substitution, which is a leftover that finishes by itself.
func TestProcessSubstitutionLosesNoLine(t *testing.T) {
	t.Parallel()
	bash := need.Program(t, "bash")
	inPlaces(t, func(t *testing.T, p place) {
		l := start(t, p, "--linger=1h", "--", bash, "-c", "exec > >(sleep 0.2; cat); echo last")
		if got := l.Out.rest(); len(got) != 1 || got[0] != "last" {
			t.Errorf("got %q, want the one line", got)
		}
		l.mustEnd(0)
		if said := l.Err.whole(); said != "" {
			t.Errorf("says %q of a leftover that ended by itself", said)
		}
	})
}

// The reader has the last line and then EOF, though an escapee holds the stream.
func TestReaderGetsEOF(t *testing.T) {
	t.Parallel()
	node := func() (*os.File, *os.File) { return socketpair(t) } // libuv's kind of pipe
	plain := func() (*os.File, *os.File) { return pipe(t) }
	inPlaces(t, func(t *testing.T, p place) {
		for name, stream := range map[string]func() (*os.File, *os.File){"pipe": plain, "socketpair": node} {
			t.Run(name, func(t *testing.T) {
				r, w := stream()
				// What is inside execve(2), which takes its time on a slow machine, does not show what it holds.
				cmd := p.command("--", "/bin/sh", "-c",
					`echo first; setsid sh -c 'echo ready >&4; while :; do sleep 1000; done' 4>&1 & read x; echo last`)
				cmd.Stdout = w
				l := startCmd(t, cmd)
				_ = w.Close()
				out := newLines(t, r)
				out.want("first")
				out.want("ready")
				write(t, l, "go\n")
				out.want("last")
				if more := out.rest(); len(more) > 0 {
					t.Errorf("after the last line came %q", more)
				}
				l.mustEnd(0)
				// No reader waits for a leftover of PID 1, whose end is that of the whole tree.
				if said := l.Err.whole(); strings.Contains(said, "holds stdout") == p.pid1 {
					t.Errorf("says %q of the leftover that holds stdout", said)
				}
			})
		}
	})
}

// The shell that started fini, and a job that it started before, hold the same pipe for
// writing. Neither is of the tree, and neither is ever signalled.
func TestBystandersAreNeverSignalled(t *testing.T) {
	t.Parallel()
	rounds := quickOrFull(20, 100)
	signals := strings.Join(mode("signals"), " ")
	cmd := exec.Command("/bin/bash", "-c", fmt.Sprintf(`
		for sig in 1 2 3 10 12 15 18 20 21 22 28; do trap "echo shell hit by $sig" $sig; done
		%s 10 3>&- & job=$!
		read go
		for i in $(seq %d); do
			"$1" --linger=0 -- sh -c 'setsid sleep 1000 & sleep 1000 & echo main'
		done
		kill -USR1 $job; wait $job; echo "job $?"`, signals, rounds), "sh", finiPath)
	need.Program(t, "bash")
	l := startCmd(t, cmd)
	l.Out.want("ready")
	write(t, l, "go\n")
	mains := 0
	for {
		line, ok := l.Out.next()
		if !ok {
			t.Fatalf("EOF before the job's end: %s", l.Err.text())
		}
		switch line {
		case "main":
			mains++
			continue
		case "signal 10": // the sentinel: the job can be hit
			continue
		case "job 7":
		default:
			t.Errorf("unexpected: %q", line)
			continue
		}
		break
	}
	l.mustEnd(0)
	if stopped := strings.Count(l.Err.whole(), "stopping leftover"); mains != rounds || stopped != 2*rounds {
		t.Errorf("%d rounds with %d leftovers stopped, want %d with %d", mains, stopped, rounds, 2*rounds)
	}
}

func TestPolicies(t *testing.T) {
	t.Parallel()
	// One leftover holds stdout, the other holds nothing but the witness.
	const script = `
		setsid sh -c 'echo holder $$; exec sleep 1000' &
		setsid sleep 1000 >/dev/null 2>&1 </dev/null &
		while [ "$(cat /proc/$!/comm)" != sleep ]; do :; done; echo quiet $!
		read go; exit 4`
	started := func(t *testing.T, p place, flags ...string) (l *life) {
		l = start(t, p, append(flags, "--linger=0", "--", "/bin/sh", "-c", script)...)
		for range 2 {
			line, _ := l.Out.next()
			t.Log(line)
		}
		return l
	}
	t.Run("pipes", func(t *testing.T) {
		l := started(t, pair, "--orphans=pipes")
		write(t, l, "go\n")
		if got := l.status(); got != 4 {
			t.Errorf("status %d, want 4", got)
		}
		l.Out.rest() // the reader has EOF
		said := l.Err.whole()
		if hungUp(l.witness) || !strings.Contains(said, "stopping leftover") {
			t.Errorf("the quiet one should be alive and the holder stopped; it says %q", said)
		}
		endEscapee(t, l, "quiet ")
	})
	t.Run("leave", func(t *testing.T) {
		l := started(t, pair, "--orphans=leave")
		write(t, l, "go\n")
		if got := l.status(); got != 4 {
			t.Errorf("status %d, want 4", got)
		}
		if hungUp(l.witness) || l.Err.text() != "" {
			t.Errorf("both should be alive and nothing said; it says %q", l.Err.text())
		}
		endEscapee(t, l, "quiet ")
		endEscapee(t, l, "holder ")
	})
	t.Run("wait", func(t *testing.T) {
		inPlaces(t, func(t *testing.T, p place) {
			l := start(t, p, "--orphans=wait", "--linger=0", "--", "/bin/sh", "-c",
				`exec 4<&0; setsid sh -c 'echo ready; read go <&4; echo done by itself' & echo end`)
			l.Out.want("ready")
			write(t, l, "go\n")
			l.Out.want("done by itself")
			l.mustEnd(0)
			if said := l.Err.whole(); said != "" {
				t.Errorf("says %q", said)
			}
		})
	})
	t.Run("wait ends on TERM", func(t *testing.T) {
		inPlaces(t, func(t *testing.T, p place) {
			l := start(t, p, "-v", "--orphans=wait", "--", "/bin/sh", "-c", `setsid sh -c 'echo ready; exec sleep 1000' & exit 5`)
			l.Out.want("ready")
			l.Err.want("fini: command ") // the main child has ended
			l.signal(syscall.SIGTERM)
			l.mustEnd(5)
		})
	})
}

// endEscapee ends a process that a policy left alive, whose pid its line named.
func endEscapee(t *testing.T, l *life, prefix string) {
	t.Helper()
	for line := range strings.Lines(l.Out.text()) {
		if rest, ok := strings.CutPrefix(line, prefix); ok {
			var pid int
			if _, err := fmt.Sscan(rest, &pid); err != nil {
				t.Fatal(err)
			}
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				t.Errorf("%s%d: %v", prefix, pid, err)
			}
		}
	}
}

func TestQuietSaysNothingOfLeftovers(t *testing.T) {
	t.Parallel()
	l := start(t, pair, "-q", "--linger=0", "--", "sh", "-c", "setsid sleep 1000 & exit 0")
	l.mustEnd(0)
	if said := l.Err.rest(); len(said) > 0 {
		t.Errorf("says %q", said)
	}
}

// Without a /proc of its own fini finds its children all the same, and whatever these leave
// to it. With none at all there is no second fini to be had.
func TestWithoutProc(t *testing.T) {
	t.Parallel()
	need.Root(t)
	unshare := need.Program(t, "unshare")
	for _, tt := range []struct {
		name string
		argv []string
		says []string
	}{
		{"none", []string{unshare, "-m", "sh", "-c", `mount -t tmpfs none /proc && exec "$0" "$@"`},
			[]string{"stopping leftover", "killing leftover"}},
		{"another namespace's", []string{unshare, "-p", "-f", "sh", "-c", `"$0" "$@"; exit $?`},
			[]string{"stopping leftover", "killing leftover"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			argv := append(tt.argv, finiPath, "--linger=0", "--grace=10ms", "--", "/bin/sh", "-c",
				`setsid sh -c 'trap "" TERM; (echo ready; exec sleep 1000); :' & read go; exit 3`)
			l := startCmd(t, exec.Command(argv[0], argv[1:]...))
			l.Out.want("ready")
			write(t, l, "go\n")
			l.mustEnd(3)
			stderr := l.Err.whole()
			for _, want := range tt.says {
				if !strings.Contains(stderr, want) {
					t.Errorf("says %q, want %q in it", stderr, want)
				}
			}
		})
	}
}
