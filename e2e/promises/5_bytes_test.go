package promises

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/e2e/rig/pty"
)

// Promise 5, Bytes: the command inherits fini's own descriptors, and no byte passes through fini. Whether they are a pipe, a
// socket, a terminal or a file: the command has the same device and inode, with the same flags and position.
func TestBytes(t *testing.T) {
	t.Parallel()
	pipe, into := rig.Pipe(t)
	socket, _ := rig.Socketpair(t)
	terminal, _ := pty.Open(t)
	file, err := os.OpenFile(filepath.Join(t.TempDir(), "file"), os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	rig.NoError(t, err)
	_, _ = file.WriteString("its position is not 0")
	// The command tells in the file that is its argument.
	const script = `for fd in 0 1 2 7; do all="$all $(echo $fd; stat -L -c "%F %d:%i" /proc/$$/fd/$fd; cat /proc/$$/fdinfo/$fd)"; done; echo "$all" >$0`
	for name, files := range map[string][2]*os.File{
		"pipe": {pipe, into}, "socket": {socket, socket}, "terminal": {terminal, terminal}, "file": {file, file},
	} {
		tell := func(t *testing.T, cmd *exec.Cmd) string {
			said := filepath.Join(t.TempDir(), "said")
			cmd.Args = append(cmd.Args, "sh", "-c", script, said)
			cmd.Stdin, cmd.Stdout, cmd.Stderr = files[0], files[1], files[1]
			cmd.ExtraFiles = []*os.File{4: files[1]} // the first one is descriptor 3
			rig.Complete(t, cmd)
			return rig.ReadFile(t, said)
		}
		want := tell(t, exec.Command("env"))
		t.Run(name, func(t *testing.T) {
			rig.InEveryPlace(t, func(t *testing.T, p rig.Place) {
				if got := tell(t, p.Command("--")); got != want {
					t.Errorf("the command has\n%s\nand without fini\n%s", got, want)
				}
			})
		})
	}
}
