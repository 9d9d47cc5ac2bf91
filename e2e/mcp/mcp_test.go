package mcp

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/e2e/rig/clients"
	"github.com/seed-126c5d8a/fini/e2e/rig/columns"
	"github.com/seed-126c5d8a/fini/e2e/rig/procfs"
	"github.com/seed-126c5d8a/fini/e2e/rig/pty"
)

func TestMain(m *testing.M) { rig.Main(m) }

const (
	ignoresTERM      = "--ignore-term"
	helperWithStdout = "--helper=stdout"
)

var pythonHost = []string{"python3", "../testdata/mcp-client.py", "asyncio"}

// A full session with a real server, with 1 MiB there and back.
func TestMCPSession(t *testing.T) {
	t.Parallel()
	clients.NeedHosts(t)
	for _, program := range [][]string{clients.NodeHost, pythonHost} {
		rig.Case(t, program[0] != "python3", program[0], func(t *testing.T) {
			t.Parallel()
			h := clients.OpenHost(t, program, clients.Offline(t), rig.Fini, "-i", "--", "npx", "-y", clients.McpPackage)
			h.Echo(clients.LargeText(1 << 20))
			h.Close()
			h.MustLeaveNothing("0")
			for _, line := range h.Err.Rest() {
				if strings.HasPrefix(line, "fini: ") && h.Took() < 2*time.Second { // when the SDK sends SIGTERM
					t.Errorf("fini had to do something, and close() took %v: %s", h.Took(), line)
				}
			}
		})
	}
}

// The rows of the table: how a session ends, and what is left of it.
func TestMCPLeftBehind(t *testing.T) {
	rig.Long(t)
	t.Parallel()
	clients.NeedHosts(t)
	// A host closes a session with a server of ours.
	closes := func(name string, flags, program, want []string, server ...string) clients.Trial {
		return clients.Trial{Name: name, Run: func(t *testing.T) {
			columns.Run(t, name, flags, func(t *testing.T, wrap []string) columns.Outcome {
				h := clients.OpenHost(t, program, clients.Offline(t), append(wrap, misbehaving(server...)...)...)
				h.Echo(clients.LargeText(1 << 16))
				h.Tell("close", nil)
				o := h.Outcome(wrap, h.Out)
				t.Logf("close() took %s ms", h.Fact("closed"))
				if clients.UnderFini(wrap) {
					h.MustLeaveNothing(want...)
				}
				return o
			})
		}}
	}
	// The client of a real server is killed, or what stands between them.
	fault := func(name, want string, fault func(h *clients.Host)) clients.Trial {
		return clients.Trial{Name: name, Run: func(t *testing.T) {
			columns.Run(t, name, []string{"-i"}, func(t *testing.T, wrap []string) columns.Outcome {
				h := clients.OpenHost(t, clients.NodeHost, clients.Offline(t), append(wrap, "npx", "-y", clients.McpPackage)...)
				h.InMidCall()
				fault(h)
				if want == "" { // nobody is there to be told how fini ended
					return h.Outcome(wrap, h.Err)
				}
				o := h.Outcome(wrap, h.Out)
				if clients.UnderFini(wrap) {
					h.MustLeaveNothing(want)
				}
				return o
			})
		}}
	}
	client := func(sig syscall.Signal) func(*clients.Host) { return func(h *clients.Host) { h.End(sig) } }
	send := func(sig syscall.Signal, to func(*clients.Host) int) func(*clients.Host) {
		return func(h *clients.Host) { rig.MustKill(h.T, to(h), sig) }
	}
	child := func(h *clients.Host) int { return h.Started }
	// With a short grace a slow npx may need SIGKILL. It does not ignore SIGTERM, as the server does.
	soon, stopped := []string{"-i", "--grace=500ms"}, []string{"SIGTERM", "SIGKILL"}
	calm, clean := []string{"-i"}, []string{"0"}
	trials := []clients.Trial{
		fault("`npx` server, client killed", "", client(syscall.SIGKILL)),
		fault("`npx` server, client sent SIGTERM", "", client(syscall.SIGTERM)),
		fault("`npx` server, `npx` killed", "SIGKILL", send(syscall.SIGKILL, (*clients.Host).Npx)),
		fault("`npx` server, `npx` sent SIGTERM", "SIGTERM", send(syscall.SIGTERM, (*clients.Host).Npx)),
		fault("`npx` server, the client's child killed", "SIGKILL", send(syscall.SIGKILL, child)),
		fault("`npx` server, the client's child sent SIGTERM", "SIGTERM", send(syscall.SIGTERM, child)),
		{Name: "client killed while `npx` installs", Run: clientKilledWhileInstalling},
		closes("TypeScript SDK closes, server goes on", soon, clients.NodeHost, stopped, clients.IgnoresEOF),
		closes("TypeScript SDK closes, server ignores SIGTERM", soon, clients.NodeHost, stopped, clients.IgnoresEOF, ignoresTERM),
		closes("TypeScript SDK closes, `setsid` helper holds stdout", calm, clients.NodeHost, clean, helperWithStdout),
		closes("TypeScript SDK closes, `setsid` helper holds nothing", calm, clients.NodeHost, clean, clients.HelperWithout),
		closes("Python SDK closes, server ignores SIGTERM", soon, pythonHost, stopped, clients.IgnoresEOF, ignoresTERM),
		closes("Python SDK closes, `setsid` helper holds stdout", calm, pythonHost, clean, helperWithStdout),
		closes("Python SDK closes, `setsid` helper holds nothing", calm, pythonHost, clean, clients.HelperWithout),
	}
	for _, trial := range trials { // which run at once
		columns.AddRow(trial.Name)
	}
	clients.Together(t, trials)
}

// misbehaving runs a server of ours below npx, as it runs any other: npx, sh and node.
func misbehaving(flags ...string) []string {
	return []string{"npx", "-y", "-c", strings.Join(append([]string{"node", clients.ServerFile}, flags...), " ")}
}

// A host that somebody has started at a terminal shares its process group with fini, unless it makes a session
// for its server, as the Python SDK does.
func TestMCPAtATerminal(t *testing.T) {
	rig.Long(t)
	t.Parallel()
	clients.NeedHosts(t)
	for name, program := range map[string][]string{"TypeScript": clients.NodeHost, "Python": pythonHost} {
		for how, end := range map[string]func(h *clients.Host, keys *os.File){
			"closes": func(h *clients.Host, _ *os.File) {
				h.Close()
				h.MustLeaveNothing("0", "SIGTERM")
			},
			"Ctrl-C":  func(_ *clients.Host, keys *os.File) { _, _ = keys.WriteString("\x03") },
			"hang-up": func(_ *clients.Host, keys *os.File) { _ = keys.Close() },
			"killed":  func(h *clients.Host, _ *os.File) { h.End(syscall.SIGKILL) },
		} {
			t.Run(name+"/"+how, func(t *testing.T) {
				t.Parallel()
				theirs, keys := pty.Open(t)
				h := clients.Way{Program: program, Env: clients.Offline(t), Terminal: theirs}.Open(t, rig.Fini, "-i", "--grace=2s", "--", "npx", "-y", clients.McpPackage)
				_ = theirs.Close()
				h.Echo(clients.LargeText(1 << 16))
				end(h, keys)
				_ = h.Status()
				rig.Until(t, "the cgroup is empty", func() bool { return len(h.Cgroup.Alive()) == 0 })
			})
		}
	}
}

// With the default --grace the SDKs lose their patience before fini has: they send fini SIGTERM
// and then SIGKILL, and the inner fini finishes the work.
func TestMCPCloseWithDefaultFlags(t *testing.T) {
	rig.Long(t)
	t.Parallel()
	clients.NeedHosts(t)
	var trials []clients.Trial
	for _, program := range [][]string{clients.NodeHost, pythonHost} {
		for _, tt := range []struct {
			flags []string
			want  string
		}{
			{[]string{clients.IgnoresEOF}, "SIGTERM"},
			{[]string{helperWithStdout}, "0"},
			{[]string{clients.HelperWithout}, "0"},
			{[]string{clients.IgnoresEOF, ignoresTERM, helperWithStdout}, "SIGKILL"},
		} {
			name := fmt.Sprint(program[0], tt.flags)
			trials = append(trials, clients.Trial{Name: name, Run: func(t *testing.T) {
				argv := append([]string{rig.Fini, "-i", "--"}, misbehaving(tt.flags...)...)
				h := clients.OpenHost(t, program, clients.Offline(t), argv...)
				h.Echo("a session")
				start := time.Now()
				h.Close()
				h.MustLeaveNothing(tt.want)
				t.Logf("close() took %.1f s, and all was gone after %.1f s", h.Took().Seconds(), time.Since(start).Seconds())
			}})
		}
	}
	clients.Together(t, trials)
}

// stdin comes in the forms in which clients make it, and its end is seen in each, also with a
// server that does not see it.
func TestMCPStdinForms(t *testing.T) {
	t.Parallel()
	clients.NeedHosts(t)
	large := clients.LargeText(1 << 20)
	servers := []struct {
		flags []string
		grace string
		want  string
	}{
		{nil, "--grace=5s", "0"},
		{[]string{clients.IgnoresEOF}, "--grace=1s", "SIGTERM"},
		{[]string{clients.IgnoresEOF, ignoresTERM}, "--grace=300ms", "SIGKILL"},
	}
	python := func(form string) []string { return []string{"python3", "../testdata/mcp-client.py", form} }
	hosts := []struct {
		program []string
		form    string
		quick   int // the server that make test has with it
	}{
		{clients.NodeHost, "socket:", 0},
		{pythonHost, "", 2}, // a socketpair before Python 3.12, and then a pipe
		{python("pipe"), "pipe:", 1},
		{python("socketpair"), "socket:", 0},
	}
	var trials []clients.Trial
	for i, server := range servers {
		argv := append([]string{rig.Fini, "-v", "-i", server.grace, "--", "node", clients.ServerFile}, server.flags...)
		for _, tt := range hosts {
			if rig.Quick() && tt.quick != i {
				continue
			}
			name := fmt.Sprint(strings.Join(tt.program, " "), server.flags)
			trials = append(trials, clients.Trial{Name: name, Run: func(t *testing.T) {
				h := clients.OpenHost(t, tt.program, clients.Variables{}, argv...)
				inner := procfs.ChildrenOf(t, h.Started)[0] // the outer one has let go of it
				form, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/0", inner))
				if err != nil || !strings.HasPrefix(form, tt.form) {
					t.Errorf("stdin is %q, want a %s (%v)", form, tt.form, err)
				}
				h.Echo(large)
				h.Close()
				t.Logf("stdin is %s, and close() took %.1f s", form, h.Took().Seconds())
				h.MustLeaveNothing(server.want)
				if len(server.flags) > 0 {
					// The SDKs send SIGTERM later, which looks the same from outside.
					h.Err.Want("fini: waiting for the command: standard input has closed")
				}
			}})
		}
	}
	clients.Together(t, trials)
}

// The client is killed when npx has asked for the server's package, which comes only then.
// A bare npx goes on, installs it, and starts a server for nobody.
func clientKilledWhileInstalling(t *testing.T) {
	columns.Run(t, "client killed while `npx` installs", []string{"-i"}, func(t *testing.T, wrap []string) columns.Outcome {
		r := newRegistry(t)
		h := r.AskedBy(t, append(wrap, "npx", "-y", r.Name)...)
		h.End(syscall.SIGKILL)
		if clients.UnderFini(wrap) {
			h.Err.Want("fini: stopping the command")
		}
		close(r.Deliver)
		if !clients.UnderFini(wrap) {
			rig.Until(t, "the server has started", r.ServerStarted)
		}
		o := h.Outcome(wrap, h.Err)
		if clients.UnderFini(wrap) && r.ServerStarted() { // from an empty cgroup nobody starts it any more
			t.Error("the server was started for a client that was gone")
		}
		return o
	})
}
