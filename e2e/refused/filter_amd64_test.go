package refused

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/need"
	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/e2e/rig/containers"
	"github.com/seed-126c5d8a/fini/e2e/rig/runners"
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
	for _, row := range regexp.MustCompile(`(?m)^\| .* \| (.*) \|$`).FindAllStringSubmatch(section, -1) {
		for _, m := range regexp.MustCompile("`(\\w+)`").FindAllStringSubmatch(row[1], -1) {
			calls = append(calls, m[1])
		}
	}
	if len(calls) < 50 {
		t.Fatalf("only %q", calls)
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
	sh := func(script string) []string { return []string{"--", busybox, "sh", "-c", script} }
	// busybox runs its own setsid and sleep where they are not on PATH.
	leak := busybox + " setsid " + busybox + " sleep 1000 & "
	deaf := "trap '' TERM; while :; do " + busybox + " sleep 1; done"
	killInner := "kill -9 $PPID; " + busybox + " sleep 1000"
	for _, tt := range []struct {
		name   string
		args   []string
		status int
	}{
		{"pair", sh("exit 3"), 3},
		{"alone", append([]string{"--no-shield"}, sh("exit 3")...), 3},
		{"leftover", append([]string{"-v", "--linger=0"}, sh(leak+"exit 3")...), 3},
		{"alone, leftover", append([]string{"--no-shield", "-w", "--linger=0"}, sh(leak+"exit 3")...), 3},
		{"lingering", append([]string{"--linger=100ms", "--orphans-exit=9", "--report=REPORT"}, sh(leak+"exit 0")...), 9},
		{"deaf leftover", append([]string{"--grace=50ms", "--linger=0"}, sh("("+deaf+") & "+leak+"exit 3")...), 3},
		{"timeout", append([]string{"-t", "100ms", "--grace=50ms", "--report=/dev/stderr"}, sh(deaf)...), 124},
		{"stdin", append([]string{"-i", "-k", "5s", "--grace=50ms"}, sh(busybox+" sleep 1000")...), 143},
		{"pipes", append([]string{"--orphans=pipes", "--linger=0"}, sh(leak+"exit 3")...), 3},
		{"wait", append([]string{"--orphans=wait"}, sh(busybox+" sleep 0.1 & exit 3")...), 3},
		{"rewritten", append([]string{"-c", "-r", "TERM:INT", "-e", "130"}, sh("read a b c outer d </proc/$PPID/stat; kill -TERM $outer; "+busybox+" sleep 1000")...), 0},
		{"inner killed", append([]string{"--grace=1s"}, sh(killInner)...), 137},
		{"signal", sh("kill -TERM $$"), 143},
		{"not found", []string{"no such command"}, 127},
		{"bad flag", []string{"--no-such-flag"}, 125},
		{"version", []string{"--version"}, 0},
		{"install", []string{"--install=REPORT"}, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			report := filepath.Join(t.TempDir(), "file")
			args := slices.Clone(tt.args)
			for i := range args {
				args[i] = strings.Replace(args[i], "REPORT", report, 1)
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
