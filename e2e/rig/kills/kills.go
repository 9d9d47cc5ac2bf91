// Package kills has the matrix of what is killed: trees of processes, victims, and moments.
package kills

import (
	"slices"

	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/internal/tests/procfs"
)

// Each tree says "ready" when all of it runs, and its main child then waits for a line.
// At the end of stdin it goes on: only a signal ends it.
var Trees = []struct{ Name, Script string }{
	// npx: the client, npm exec, sh -c and the server.
	{"npx", `sh -c 'sh -c "(echo ready; exec sleep 1000); :"; :' & read go || sleep 1000`},
	{"holder", `setsid sh -c '(echo ready; exec sleep 1000); :' & read go || sleep 1000`},
	{"quiet", `mkfifo $DIR/f; setsid sh -c 'echo >$DIR/f; exec sleep 1000 </dev/null >/dev/null 2>&1' &
		read x <$DIR/f; echo ready; read go || sleep 1000`},
	{"stubborn", `trap "" TERM INT HUP; setsid sh -c 'sh -c "(echo ready; exec sleep 1000); :"; :' &
		read go || { sleep 1000; sleep 1000; }`},
}

// A stubborn leftover keeps fini at stopping it.
const stubbornLeftover = `setsid sh -c 'trap "" TERM; (echo stubborn; exec sleep 1000); :' & `

var Victims = []struct {
	Name  string
	Pids  func(l *rig.BoundLife) []int // negative for a process group
	Quick string                       // the group of the command in which make test kills it
}{
	{"launcher", func(l *rig.BoundLife) []int { return []int{l.Launcher} }, "own"},
	{"outer fini", func(l *rig.BoundLife) []int { return []int{l.Outer} }, "job"},
	{"inner fini", func(l *rig.BoundLife) []int { return []int{l.Inner()} }, "own"},
	{"main child", func(l *rig.BoundLife) []int { return []int{l.Main()} }, "job"},
	{"launcher's group", func(l *rig.BoundLife) []int {
		// Until the inner fini has left that group, SIGKILL would end both of the pair.
		rig.Until(l.T, "the inner fini has a group of its own", func() bool {
			return rig.HungUp(l.Witness) || slices.ContainsFunc(procfs.ChildrenOf(l.T, l.Outer), func(pid int) bool { return procfs.GroupOf(pid) == pid })
		})
		return []int{-l.Launcher}
	}, "own"},
	{"launcher and outer fini", func(l *rig.BoundLife) []int { return []int{l.Launcher, l.Outer} }, "job"},
}

// The moments at which a victim is killed. Each returns when it has come, to a tree that the shell makes after First.
var Moments = []struct {
	Name, First string
	Come        func(l *rig.BoundLife)
	Quick       string // the tree with which make test has it
}{
	{"at the start", "", func(*rig.BoundLife) {}, "npx"},
	{"running", "", func(l *rig.BoundLife) { l.Out.Want("ready") }, "holder"},
	{"in the ladder", "", func(l *rig.BoundLife) {
		l.Out.Want("ready")
		_ = l.Stdin.Close()
		l.Err.Want("fini: waiting for the command: standard input has closed")
	}, "quiet"},
	{"stopping leftovers", stubbornLeftover, func(l *rig.BoundLife) {
		for range 2 { // "stubborn" and "ready", in any order
			l.Out.Next()
		}
		rig.Write(l.T, l.Life, "go\n")
		l.Err.Want("fini: stopping leftover")
	}, "stubborn"},
}
