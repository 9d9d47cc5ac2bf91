package transparent

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/internal/tests/need"
)

func TestMain(m *testing.M) { rig.Main(m) }

// probeScript writes to the file named by its first argument what a process can see of how it
// was started.
const probeScript = `out=$1
	{ pwd; umask; ulimit -a; ulimit -H -a; echo "argv0 $0"; echo "arguments $*"; } >$out 2>&1
	tr '\0' '\n' </proc/$$/environ | grep -v -e ^_= -e ^MAKEFLAGS= -e ^command= | sort >>$out
	nice >>$out
	cat /proc/self/oom_score_adj >>$out
	grep -E '^(Sig(Ign|Blk)|Cap|NoNewPrivs|Seccomp|Uid|Gid|Groups)' /proc/self/status >>$out
	python3 -I -S -c '
import fcntl, os, stat, sys
seen = []
for fd in range(64):
    try:
        st = os.fstat(fd)
    except OSError:
        continue
    # Pipes differ from one run to the next.
    what = "pipe or socket" if stat.S_ISFIFO(st.st_mode) or stat.S_ISSOCK(st.st_mode) else (st.st_dev, st.st_ino, st.st_rdev)
    seen.append(f"descriptor {fd} {what} flags {fcntl.fcntl(fd, fcntl.F_GETFL):#o} {fcntl.fcntl(fd, fcntl.F_GETFD)}")
with open(sys.argv[1], "a") as out:
    print(*seen, f"open below 64: {len(seen)}", sep="\n", file=out)
' $out`

// Each setting is a shell script that prepares what the probe is to see, and then executes
// "$@".
var settings = []struct{ name, script string }{
	{"as it is", `exec "$@"`},
	{"nohup", `exec nohup "$@"`},
	{"INT ignored", `trap "" INT; exec "$@"`},
	// Not the faults, STKFLT, CHLD, PROF and SYS, which a Go program can't ignore without harm.
	{"many signals ignored", `trap "" 1 2 3 6 10 {12..15} 18 {20..26} {28..30} {35..64}; exec "$@"`},
	{"descriptors 3 to 9", `exec 3</dev/null 4>/dev/null 5<>/dev/null 6</etc/passwd 7<. 8>>/dev/null 9<&0; exec "$@"`},
	{"a gap in the descriptors", `exec 5</dev/null 9>/dev/null; exec "$@"`},
	{"ulimit -n 256", `ulimit -n 256; exec "$@"`},
	{"ulimit -S -n 300", `ulimit -S -n 300; ulimit -c 0; ulimit -S -s 4096; exec "$@"`},
	{"another's sockets", `export LISTEN_FDS=1 LISTEN_PID=1; exec "$@"`},
	{"umask 077", `umask 077; exec "$@"`},
	{"nice 5", `exec nice -n 5 "$@"`},
	{"closed stdin", `exec <&-; exec "$@"`},
	{"closed stdout", `exec >&-; exec "$@"`},
	{"closed stderr", `exec 2>&-; exec "$@"`},
	{"all three closed", `exec <&- >&- 2>&-; exec "$@"`},
	{"/dev/null for all three", `exec </dev/null >/dev/null 2>/dev/null; exec "$@"`},
	{"blocked signals", `exec python3 -c 'import os, signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
os.execvp(sys.argv[1], sys.argv[1:])' "$@"`},
	{"oom_score_adj", `echo 200 >/proc/self/oom_score_adj; exec "$@"`},
	{"no PATH", `unset PATH; exec "$@"`},
	{"jobserver of make", `exec make -s -j2 -f /dev/null --eval='all: ; +@$(command)' command="$(for word; do printf "'%s' " "$word"; done)" all`},
	{"non-blocking stdin", `exec python3 -c 'import os, sys
os.set_blocking(0, False)
os.execvp(sys.argv[1], sys.argv[1:])' "$@"`},
}

// The command sees no difference between being started by fini and without it.
func TestCommandSeesNoDifference(t *testing.T) {
	t.Parallel()
	need.Program(t, "bash", "python3", "make", "nohup")
	dir := t.TempDir()
	file := rig.Put(t, filepath.Join(dir, "probe"), probeScript, 0o644)
	for _, setting := range settings {
		t.Run(setting.name, func(t *testing.T) {
			t.Parallel()
			out := filepath.Join(dir, filepath.Base(t.Name()))
			direct := probed(t, setting.script, "/bin/sh", file, out, "second argument", "")
			if !strings.Contains(direct, "SigIgn") || !strings.Contains(direct, "\nPATH=") && !strings.Contains(setting.script, "unset PATH") ||
				!strings.Contains(direct, "open below 64: ") {
				t.Fatalf("the probe sees nothing: %s", direct)
			}
			for _, p := range []rig.Place{rig.Pair, rig.Alone} {
				// What a pair hands on goes through two of them.
				rig.Case(t, p == rig.Pair, p.Name, func(t *testing.T) {
					argv := append(p.Command().Args, "--", "/bin/sh", file, out, "second argument", "")
					if under := probed(t, setting.script, argv...); under != direct {
						t.Errorf("under fini:\n%s", difference(direct, under))
					}
				})
			}
		})
	}
}

// probed is what the probe writes, whose file is the last argument but two.
func probed(t *testing.T, script string, argv ...string) string {
	t.Helper()
	out := argv[len(argv)-3]
	cmd := exec.Command("/bin/bash", append([]string{"-c", script, "sh"}, argv...)...)
	stdin, w := rig.Pipe(t)
	// Descriptors rather than copying goroutines, which would be pipes of their own.
	stdout, err := os.OpenFile(os.DevNull, os.O_WRONLY|os.O_APPEND, 0)
	rig.NoError(t, err)
	// Make sets O_APPEND on what it inherits: this one is nobody else's.
	stderr, err := os.OpenFile(out+".stderr", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	rig.NoError(t, err)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, stdout, stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %v: %s", argv, err, rig.ReadFile(t, out+".stderr"))
	}
	_, _, _, _ = stdout.Close(), stderr.Close(), stdin.Close(), w.Close()
	// Whether 32 to 34 are ignored the runtime does not let fini hand on. They are the C library's own, and make leaves them
	// ignored.
	return regexp.MustCompile(`SigIgn:\t[0-9a-f]+`).ReplaceAllStringFunc(rig.ReadFile(t, out), func(line string) string {
		var ignored uint64
		_, _ = fmt.Sscanf(line, "SigIgn:\t%x", &ignored)
		return fmt.Sprintf("SigIgn: %x", ignored&^(7<<31))
	})
}

// difference lists the lines that only one of two texts has.
func difference(a, b string) string {
	var text strings.Builder
	for sign, pair := range map[string][2]string{"-": {a, b}, "+": {b, a}} {
		for line := range strings.Lines(pair[0]) {
			if !strings.Contains(pair[1], line) {
				text.WriteString(sign + line)
			}
		}
	}
	return text.String()
}
