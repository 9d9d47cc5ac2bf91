package refused

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/e2e/rig/containers"
	"github.com/seed-126c5d8a/fini/e2e/rig/runners"
	"github.com/seed-126c5d8a/fini/internal/tests/need"
)

// Those of the commands here, a static busybox, which fini does not make.
const commandsCalls = `access brk clock_nanosleep dup2 fork getegid getgid getrandom getuid lseek lstat mprotect munmap pipe pread64 readlink
	rseq set_robust_list set_tid_address setgid setsid setuid stat vfork`

func TestSecurityCalls(t *testing.T) {
	t.Parallel()
	busybox := need.Program(t, "busybox")
	need.That(t, containers.IsStatic(busybox), "a static busybox (busybox-static)")
	_, section, _ := strings.Cut(rig.ReadFile(t, "../docs/security.md"), "\n## System calls\n")
	section, _, _ = strings.Cut(section, "\n## ")
	var calls []string
	for _, line := range regexp.MustCompile(`(?m)^    \w+ +(.*)$`).FindAllStringSubmatch(section, -1) { // behind what they are for
		calls = append(calls, strings.Fields(line[1])...)
	}
	if len(calls) < 50 {
		t.Fatalf("only %q", calls)
	}
	var profile struct{ Syscalls []struct{ Names []string } }
	rig.MustParse(t, []byte(rig.ReadFile(t, "../docs/seccomp.json")), &profile)
	if want := slices.Sorted(slices.Values(calls)); !slices.Equal(profile.Syscalls[0].Names, slices.Compact(want)) {
		t.Errorf("docs/seccomp.json has %q, and the page %q", profile.Syscalls[0].Names, want)
	}
	// A program has no names of its constants.
	constants := rig.ReadFile(t, strings.TrimSpace(rig.Run(t, "go", "list", "-m", "-f={{.Dir}}", "golang.org/x/sys"))+"/unix/zsysnum_linux_amd64.go")
	var allowed []string
	for _, call := range append(calls, strings.Fields(commandsCalls)...) {
		number := regexp.MustCompile(`SYS_` + strings.ToUpper(call) + ` += (\d+)`).FindStringSubmatch(constants)
		if number == nil {
			t.Fatalf("no such call: %s", call)
		}
		allowed = append(allowed, number[1])
	}
	// busybox runs its own setsid and sleep where they are not on PATH.
	leak := busybox + " setsid " + busybox + " sleep 1000 & "
	deaf := "trap '' TERM; while :; do " + busybox + " sleep 1; done"
	sleep := busybox + " sleep 1000"
	for _, tt := range []struct {
		name   string
		flags  string // FILE is one in a directory of the test's own
		script string // of a shell, if there is one
		status int
	}{
		{"pair", "", "exit 3", 3},
		{"alone", "--no-shield", "exit 3", 3},
		{"leftover", "-v --linger=0", leak + "exit 3", 3},
		{"alone, leftover", "--no-shield -w --linger=0", leak + "exit 3", 3},
		{"lingering", "--linger=100ms --orphans-exit=9 --report=FILE", leak + "exit 0", 9},
		{"deaf leftover", "--grace=50ms --linger=0", "(" + deaf + ") & " + leak + "exit 3", 3},
		{"timeout", "-t 100ms --grace=50ms --report=/dev/stderr", deaf, 124},
		{"stdin", "-i -k 5s --grace=50ms", sleep, 143},
		{"pipes", "--orphans=pipes --linger=0", leak + "exit 3", 3},
		{"wait", "--orphans=wait", busybox + " sleep 0.1 & exit 3", 3},
		{"rewritten", "-c -r TERM:INT -e 130", "read a b c outer d </proc/$PPID/stat; kill -TERM $outer; " + sleep, 0},
		{"inner killed", "--grace=1s", "kill -9 $PPID; " + sleep, 137},
		{"signal", "", "kill -TERM $$", 143},
		{"not found", "no-such-command", "", 127},
		{"bad flag", "--no-such-flag", "", 125},
		{"version", "--version", "", 0},
		{"install", "--install=FILE", "", 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			args := strings.Fields(strings.Replace(tt.flags, "FILE", filepath.Join(t.TempDir(), "file"), 1))
			if tt.script != "" {
				args = append(args, "--", busybox, "sh", "-c", tt.script)
			}
			l := runners.StartStep(t, nil, append(rig.Mode("allow", strings.Join(allowed, ","), rig.Fini), args...)...)
			if tt.name == "stdin" {
				_ = l.Stdin.Close()
			}
			if l.MustHaveStatus(tt.status); !t.Failed() {
				l.MustBeGone()
			}
			if said := l.Err.Whole(); strings.Contains(said, "without") || strings.Contains(said, "cannot") && tt.status != 125 && tt.status != 127 {
				t.Errorf("it says %q", said)
			}
		})
	}
}
