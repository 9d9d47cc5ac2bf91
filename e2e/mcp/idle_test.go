package mcp

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/e2e/rig/clients"
)

// A host that lives and keeps a server's stdin open, but has forgotten the server: each such server ends, and the one in use
// does not.
func TestForgottenServersEnd(t *testing.T) {
	t.Parallel()
	clients.NeedHosts(t)
	answer := map[string]string{"open": "opened ", "ping": "pinged ", "abort": "aborted "}
	for name, tt := range map[string]struct {
		words     []string
		forgotten []int
	}{
		"retry":                {[]string{"open", "open"}, []int{1, 2}},
		"edited configuration": {[]string{"ping", "open"}, []int{1}},
		"subagents":            {[]string{"open", "open", "open", "open"}, []int{1, 2, 3, 4}},
		"reconnect":            {[]string{"abort", "open"}, []int{1}},
	} {
		rig.Case(t, name == "retry", name, func(t *testing.T) {
			t.Parallel()
			h := clients.OpenHost(t, clients.Forgetful, clients.Offline(t), rig.Fini, "--idle=5s", "--", "node", clients.McpProgram)
			for _, word := range tt.words {
				h.Tell(word, map[string]int{"count": 1})
				h.Out.Want(answer[word])
			}
			for _, server := range tt.forgotten {
				for !strings.Contains(h.Out.Text(), fmt.Sprintf("ended %d 124\n", server)) {
					h.Tell("ping", map[string]int{"count": 10, "pause": 10})
					h.Out.Want("pinged ")
				}
			}
			forget(h)
		})
	}
}

// forget ends a forgetful host's last session.
func forget(h *clients.Host) {
	h.Tell("close", nil)
	h.Out.Want("closed ")
	h.MustVanish()
}

// The end of stdin does not come, because a process that the host has started since holds the pipe too.
func TestForgottenWithASiblingThatHoldsThePipe(t *testing.T) {
	t.Parallel()
	clients.NeedMCP(t)
	c := rig.NewCgroup(t)
	s := startSession(t, c, c.Around(rig.Pair, nil, append([]string{"-i", "--idle=3s", "--"}, everything...)...))
	sibling := exec.Command("sleep", "1000")
	sibling.ExtraFiles = []*os.File{s.Stdin.(*os.File)}
	rig.NoError(t, sibling.Start())
	t.Cleanup(func() {
		_ = sibling.Process.Kill()
		_ = sibling.Wait()
	})
	s.closeStdin()
	c.MustLeaveNothing(t, s.Life, 124)
}

// A server in use is never cut off: each call comes within the time of --idle after the one before.
func TestNoCallIsCutOff(t *testing.T) {
	t.Parallel()
	clients.NeedHosts(t)
	const idle = time.Second
	argv := append([]string{rig.Fini, fmt.Sprint("--idle=", idle), "--"}, everything...)
	for calls := rig.QuickOrFull(300, 10_000); ; {
		h := clients.OpenHost(t, clients.Forgetful, clients.Offline(t), argv...)
		h.Tell("ping", map[string]int{"count": calls, "pause": 20})
		rig.Until(t, "all calls", func() bool { return h.Fact("cut")+h.Fact("pinged") != "" })
		var cut struct {
			Ping int
			Gap  float64
		}
		if json.Unmarshal([]byte(h.Fact("cut")), &cut) != nil {
			forget(h)
			return
		}
		if gap := time.Duration(cut.Gap * float64(time.Millisecond)); gap < idle {
			t.Fatalf("call %d was cut off %v after the one before; stderr: %s", cut.Ping, gap, h.Err.Text())
		}
		t.Logf("the host itself was late, at call %d: once more", cut.Ping)
	}
}
