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

	"github.com/seed-126c5d8a/fini/e2e/rig"
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
	rig.NoError(t, err)
	t.Cleanup(tree.Close)
	return tree
}

func look(t *testing.T, tree *orphans.Tree, except ...int) (pids []int) {
	t.Helper()
	found, err := tree.Look(except...)
	rig.NoError(t, err)
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
	rig.NoError(t, err)
	out, err := cmd.StdoutPipe()
	rig.NoError(t, err)
	rig.NoError(t, cmd.Start())
	if n, err := out.Read(make([]byte, len("ready\n"))); n == 0 {
		t.Errorf("a script was not ready: %v", err)
	}
	return cmd
}

// The children that any of eight threads has started are found and ended, with what they have left behind, and os/exec gets
// the status of each, although the orphans are reaped at the same time.
func TestEightThreads(t *testing.T) {
	each := rig.QuickOrFull(25, 25)
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
	rig.Equal(t, "how many processes are found", len(found), 2*8*each)
	rig.Equal(t, "those of them that os/exec waits for", slices.DeleteFunc(found, func(pid int) bool {
		_, is := slices.BinarySearch(own, pid)
		return !is
	}), own)
	rig.Equal(t, "how many are found without three of them", len(look(t, tree, own[:3]...)), 2*8*each-3)
	if t.Failed() {
		return // the others end with this process
	}

	var statuses [8][]string
	var waits sync.WaitGroup
	waits.Go(func() {
		threads(func(n int) {
			for _, cmd := range cmds[n] {
				statuses[n] = append(statuses[n], fmt.Sprint(cmd.Wait()))
			}
		})
	})
	rig.NoError(t, tree.End(100*time.Millisecond))
	reaped := 0
	for rest := []int{0}; len(rest) > 0; {
		n, err := tree.Reap(own...)
		rig.NoError(t, err)
		reaped += n
		rest = look(t, tree)
	}
	waits.Wait()
	rig.Equal(t, "the statuses", slices.Concat(statuses[:]...), slices.Repeat([]string{"signal: terminated"}, 8*each))
	rig.Equal(t, "how many orphans were reaped", reaped, 8*each)
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
			rig.Equal(t, "the statuses", got, want)
			return
		default:
			look(t, tree)
		}
	}
}

// A process that holds a pipe open is found by either end of the pipe, and one that only reads it is not.
func TestHolders(t *testing.T) {
	tree := adopt(t)
	read, write := rig.Pipe(t)
	cmd := exec.Command("/bin/sh", "-c", `(read line <&3) 4>&- & exec 3<&-; echo ready; read line`)
	cmd.ExtraFiles = []*os.File{read, write}
	stdin, err := cmd.StdinPipe()
	rig.NoError(t, err)
	out, err := cmd.StdoutPipe()
	rig.NoError(t, err)
	rig.NoError(t, cmd.Start())
	_, err = out.Read(make([]byte, len("ready\n")))
	rig.NoError(t, err)
	for _, end := range []*os.File{read, write} {
		var found []orphans.Process
		rig.Until(t, "the reader has closed its writing end", func() bool {
			found, err = tree.Holders(end)
			return len(found) == 1
		})
		rig.NoError(t, err)
		rig.Equal(t, "who holds the pipe", found[0].Pid, cmd.Process.Pid)
	}
	file, err := os.Open(os.DevNull)
	rig.NoError(t, err)
	defer func() { _ = file.Close() }()
	_, err = tree.Holders(file)
	rig.Equal(t, "of another file", fmt.Sprint(err), "/dev/null is not a pipe")
	_ = stdin.Close()
	rig.NoError(t, tree.End(0))
	_ = cmd.Wait()
	_, err = tree.Reap()
	rig.NoError(t, err)
}

// A process that has ended isn't signalled, nor one that has got its pid.
func TestSignalAfterEnd(t *testing.T) {
	tree := adopt(t)
	cmd := start(t, "echo ready; read line")
	found, err := tree.Look()
	rig.NoError(t, err)
	rig.Equal(t, "how many are found", len(found), 1)
	if line := tree.CommandLine(found[0]); !strings.HasPrefix(line, "/bin/sh -c echo ready") {
		t.Errorf("its command line is %q", line)
	}
	rig.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait()
	rig.NoError(t, tree.Signal(found[0], syscall.SIGKILL))
	rig.Equal(t, "what is left", len(look(t, tree)), 0)
}
