package e2e

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
)

// A shell may start a process and then execute fini in its own place: what is below that process comes to
// fini when its parent ends, and is not of the command's tree. It is left alone, whoever of fini's does the
// work. The shell's own children are the subject of TestEarlierChildren.
func TestChildrenFromBefore(t *testing.T) {
	const leaves = `(trap "" TERM; exec setsid sleep 1000 </dev/null >/dev/null 2>&1 3>&-) & echo left; read x; exit 3`
	for _, tt := range []struct {
		name  string
		flags []string
		kill  bool // the inner fini
		want  int
	}{
		{"alone", []string{"--no-shield"}, false, 3},
		{"pair whose inner one is killed", nil, true, 128 + 9},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			start := fmt.Sprintf(`mkfifo %[1]s; sh -c '"$0" "$1" & echo >%[1]s; exec sleep 1000' "$1" "$2" & read x <%[1]s;`, filepath.Join(t.TempDir(), "started"))
			args := append([]string{"-c", start + ` shift 2; exec "$@"`, "sh"}, mode("signals")...)
			args = append(append(args, finiPath, "--linger=0", "--grace=300ms"), tt.flags...)
			l := startCmd(t, exec.Command("/bin/sh", append(args, "--", "/bin/sh", "-c", leaves)...))
			var earlier int
			for said := 0; said < 2; said++ { // in any order
				line, ok := l.Out.next()
				if !ok {
					t.Fatalf("EOF; so far: %q", l.Out.text())
				}
				_, _ = fmt.Sscanf(line, "ready %d", &earlier)
			}
			parent := procStatus(earlier, "PPid")
			pid, _ := strconv.Atoi(parent)
			_ = syscall.Kill(pid, syscall.SIGKILL)
			until(t, "its parent is gone", func() bool { return procStatus(earlier, "PPid") != parent })
			if tt.kill {
				for _, pid := range childrenOf(t, l.pid()) {
					if line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); bytes.Contains(line, []byte("--inner=")) {
						_ = syscall.Kill(pid, syscall.SIGKILL)
					}
				}
			} else {
				_ = l.Stdin.Close()
			}
			if got := l.status(); got != tt.want {
				t.Errorf("status %d, want %d; stderr: %s", got, tt.want, l.Err.text())
			}
			if err := syscall.Kill(earlier, syscall.SIGUSR1); err != nil {
				t.Fatalf("the earlier child is gone: %v; stderr: %s", err, l.Err.text())
			}
			if line, _ := l.Out.next(); line != "signal 10" {
				t.Errorf("it got %q, want only what this test sends it", line)
			}
			_ = syscall.Kill(earlier, syscall.SIGKILL)
		})
	}
}
