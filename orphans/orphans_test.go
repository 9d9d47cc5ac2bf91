package orphans_test

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/seed-126c5d8a/fini/internal/tests/check"
	"github.com/seed-126c5d8a/fini/internal/tests/self"
	"github.com/seed-126c5d8a/fini/orphans"
)

// threads runs something on eight threads at a time, each with a number, and returns when all have returned.
func threads(do func(n int)) {
	var all sync.WaitGroup
	for n := range 8 {
		all.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			do(n)
		})
	}
	all.Wait()
}

// adopt returns the tree of this process, in which nothing is left.
func adopt(t *testing.T) *orphans.Tree {
	t.Helper()
	tree, err := orphans.Adopt()
	check.NoError(t, err)
	t.Cleanup(tree.Close)
	return tree
}

func look(t *testing.T, tree *orphans.Tree, except ...int) (pids []int) {
	t.Helper()
	found, err := tree.Look(except...)
	check.NoError(t, err)
	for _, p := range found {
		pids = append(pids, p.Pid)
	}
	slices.Sort(pids)
	return pids
}

// start starts a shell script whose standard input ends with this process, at the latest, and which has said "ready".
func start(t *testing.T, script string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("/bin/sh", "-c", script)
	_, err := cmd.StdinPipe()
	check.NoError(t, err)
	out, err := cmd.StdoutPipe()
	check.NoError(t, err)
	check.NoError(t, cmd.Start())
	if n, err := out.Read(make([]byte, len("ready\n"))); n == 0 {
		t.Errorf("a script was not ready: %v", err)
	}
	return cmd
}

// The children that any of eight threads has started are found and ended, with what they have left behind, and os/exec gets
// the status of each, although the orphans were reaped before.
func TestEightThreads(t *testing.T) {
	each := check.QuickOrFull(25, 25)
	tree := adopt(t)
	// Each leaves a process that ignores SIGTERM in a session of its own.
	var cmds [8][]*exec.Cmd
	threads(func(n int) {
		for range each {
			cmds[n] = append(cmds[n], start(t, `exec 3<&0; (setsid sh -c 'trap "" TERM; echo ready; read line' <&3 &); read line`))
		}
	})
	var own []int
	for _, cmd := range slices.Concat(cmds[:]...) {
		own = append(own, cmd.Process.Pid)
	}
	slices.Sort(own)
	found := look(t, tree)
	check.Equal(t, "how many processes are found", len(found), 2*8*each)
	check.Equal(t, "those of them that os/exec waits for", slices.DeleteFunc(found, func(pid int) bool {
		_, is := slices.BinarySearch(own, pid)
		return !is
	}), own)
	check.Equal(t, "how many are found without three of them", len(look(t, tree, own[:3]...)), 2*8*each-3)
	if t.Failed() {
		return // the others end with this process
	}

	check.NoError(t, tree.End(5*time.Second))
	if left := look(t, tree); len(left) > 0 {
		t.Fatalf("%d are alive", len(left)) // nobody would see the end of them
	}
	reaped, err := tree.Reap(own...)
	check.NoError(t, err)
	var statuses [8][]string
	threads(func(n int) {
		for _, cmd := range cmds[n] {
			statuses[n] = append(statuses[n], fmt.Sprint(cmd.Wait()))
		}
	})
	check.Equal(t, "the statuses", slices.Concat(statuses[:]...), slices.Repeat([]string{"signal: terminated"}, 8*each))
	check.Equal(t, "how many orphans were reaped", reaped, 8*each)
}

// Commands that come and go on eight threads get their statuses, while the tree is looked at all the time.
func TestStatusesDuringLooks(t *testing.T) {
	tree := adopt(t)
	done := make(chan []string)
	go func() {
		var got [8][]string
		threads(func(n int) {
			for i := range 25 {
				err := exec.Command("/bin/sh", "-c", fmt.Sprintf("exit %d", n*25+i)).Run()
				got[n] = append(got[n], fmt.Sprint(err))
			}
		})
		done <- slices.Concat(got[:]...)
	}()
	want := []string{"<nil>"}
	for status := 1; status < 200; status++ {
		want = append(want, fmt.Sprintf("exit status %d", status))
	}
	for {
		select {
		case got := <-done:
			check.Equal(t, "the statuses", got, want)
			return
		default:
			look(t, tree)
		}
	}
}

// A process that holds a pipe open is found by either end of the pipe, and one that only reads it is not.
func TestHolders(t *testing.T) {
	tree := adopt(t)
	read, write := check.Pipe(t)
	cmd := exec.Command("/bin/sh", "-c", `(read line <&3) 4>&- & exec 3<&-; echo ready; read line`)
	cmd.ExtraFiles = []*os.File{read, write}
	stdin, err := cmd.StdinPipe()
	check.NoError(t, err)
	out, err := cmd.StdoutPipe()
	check.NoError(t, err)
	check.NoError(t, cmd.Start())
	_, err = out.Read(make([]byte, len("ready\n")))
	check.NoError(t, err)
	for _, end := range []*os.File{read, write} {
		var found []orphans.Process
		check.Until(t, "the reader has closed its writing end", func() bool {
			found, err = tree.Holders(end)
			return len(found) == 1
		})
		check.NoError(t, err)
		check.Equal(t, "who holds the pipe", found[0].Pid, cmd.Process.Pid)
	}
	file, err := os.Open(os.DevNull)
	check.NoError(t, err)
	defer func() { _ = file.Close() }()
	_, err = tree.Holders(file)
	check.Equal(t, "of another file", fmt.Sprint(err), "/dev/null is not a pipe")
	_ = stdin.Close()
	check.NoError(t, tree.End(0))
	_ = cmd.Wait()
	_, err = tree.Reap()
	check.NoError(t, err)
}

// Without /proc only children are found, and it says so.
func TestLookWithoutProc(t *testing.T) {
	tree := adopt(t)
	cmd := start(t, "echo ready; read line")
	self.WithoutRoot(t, func() {
		found, err := tree.Look()
		check.Equal(t, "the error", fmt.Sprint(err), "cannot use /proc: only children are found")
		check.Equal(t, "it is found", len(found) == 1 && found[0].Pid == cmd.Process.Pid, true)
	})
	check.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait()
}

// A process that has ended isn't signalled, nor one that has got its pid.
func TestSignalAfterEnd(t *testing.T) {
	tree := adopt(t)
	cmd := start(t, "echo ready; read line")
	found, err := tree.Look()
	check.NoError(t, err)
	check.Equal(t, "how many are found", len(found), 1)
	if line := tree.CommandLine(found[0]); !strings.HasPrefix(line, "/bin/sh -c echo ready") {
		t.Errorf("its command line is %q", line)
	}
	check.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait()
	check.NoError(t, tree.Signal(found[0], syscall.SIGKILL))
	check.Equal(t, "what is left", len(look(t, tree)), 0)
}
