package mcp

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/e2e/rig/clients"
	"github.com/seed-126c5d8a/fini/e2e/rig/columns"
	"github.com/seed-126c5d8a/fini/e2e/rig/pty"
	"github.com/seed-126c5d8a/fini/internal/tests/procfs"
)

func TestMain(m *testing.M) { rig.MainOfOthers(m) }

const (
	ignoresTERM      = "--ignore-term"
	helperWithStdout = "--helper=stdout"
)

var (
	pythonHost = []string{"python3", "../testdata/mcp-client.py", "asyncio"}
	hosts      = map[string][]string{"node": clients.NodeHost, "python3": pythonHost}
	everything = []string{"npx", "-y", clients.McpPackage}
)

// misbehaving runs a server of ours below npx, as it runs any other: npx, sh and node.
func misbehaving(flags ...string) []string {
	return []string{"npx", "-y", "-c", strings.Join(append([]string{"node", clients.ServerFile}, flags...), " ")}
}

// A full session with a real server, with 1 MiB there and back.
func TestMCPSession(t *testing.T) {
	t.Parallel()
	clients.NeedHosts(t)
	for name, program := range hosts {
		rig.Case(t, name == "node", name, func(t *testing.T) {
			t.Parallel()
			h := clients.OpenHost(t, program, clients.Offline(t), append([]string{rig.Fini, "-i", "--"}, everything...)...)
			h.Echo(clients.LargeText(1 << 20))
			h.Close()
			h.MustLeaveNothing("0")
			for _, line := range h.Err.Rest() {
				if strings.HasPrefix(line, "fini: ") && !h.HasSent("SIGTERM") {
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
	type end func(h *clients.Host)
	client := func(sig syscall.Signal) end { return func(h *clients.Host) { h.End(sig) } }
	npx := func(sig syscall.Signal) end { return func(h *clients.Host) { rig.MustKill(h.T, h.Npx(), sig) } }
	child := func(sig syscall.Signal) end { return func(h *clients.Host) { rig.MustKill(h.T, h.Started, sig) } }
	closes := func(h *clients.Host) { h.Tell("close", nil) }
	// With a short grace a slow npx may need SIGKILL. It does not ignore SIGTERM, as the server does.
	const calm, soon = "-i", "-i --grace=500ms"
	for _, tt := range []struct {
		name    string
		flags   string
		program []string
		server  []string
		end     end
		want    string // how the host's child ends; "" if nobody is there to be told
	}{
		{"`npx` server, client killed", calm, clients.NodeHost, everything, client(syscall.SIGKILL), ""},
		{"`npx` server, client sent SIGTERM", calm, clients.NodeHost, everything, client(syscall.SIGTERM), ""},
		{"`npx` server, `npx` killed", calm, clients.NodeHost, everything, npx(syscall.SIGKILL), "SIGKILL"},
		{"`npx` server, `npx` sent SIGTERM", calm, clients.NodeHost, everything, npx(syscall.SIGTERM), "SIGTERM"},
		{"`npx` server, the client's child killed", calm, clients.NodeHost, everything, child(syscall.SIGKILL), "SIGKILL"},
		{"`npx` server, the client's child sent SIGTERM", calm, clients.NodeHost, everything, child(syscall.SIGTERM), "SIGTERM"},
		{"TypeScript SDK closes, server goes on", soon, clients.NodeHost, misbehaving(clients.IgnoresEOF), closes, "SIGTERM SIGKILL"},
		{"TypeScript SDK closes, server ignores SIGTERM", soon, clients.NodeHost, misbehaving(clients.IgnoresEOF, ignoresTERM), closes, "SIGTERM SIGKILL"},
		{"TypeScript SDK closes, `setsid` helper holds stdout", calm, clients.NodeHost, misbehaving(helperWithStdout), closes, "0"},
		{"TypeScript SDK closes, `setsid` helper holds nothing", calm, clients.NodeHost, misbehaving(clients.HelperWithout), closes, "0"},
		{"Python SDK closes, server ignores SIGTERM", soon, pythonHost, misbehaving(clients.IgnoresEOF, ignoresTERM), closes, "SIGTERM SIGKILL"},
		{"Python SDK closes, `setsid` helper holds stdout", calm, pythonHost, misbehaving(helperWithStdout), closes, "0"},
		{"Python SDK closes, `setsid` helper holds nothing", calm, pythonHost, misbehaving(clients.HelperWithout), closes, "0"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			columns.Run(t, tt.name, strings.Fields(tt.flags), func(t *testing.T, wrap []string) columns.Outcome {
				h := clients.OpenHost(t, tt.program, clients.Offline(t), append(wrap, tt.server...)...)
				if tt.server[2] == clients.McpPackage {
					h.InMidCall()
				}
				h.Echo(clients.LargeText(1 << 16))
				tt.end(h)
				until := h.Out
				if tt.want == "" {
					until = h.Err
				}
				o := columns.Watch(wrap, until, h.Cgroup.Count)
				if columns.UnderFini(wrap) && tt.want != "" {
					h.MustLeaveNothing(strings.Fields(tt.want)...)
				}
				return o
			})
		})
	}
	t.Run("client killed while `npx` installs", clientKilledWhileInstalling)
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
				way := clients.Way{Program: program, Env: clients.Offline(t), Terminal: theirs}
				h := way.Open(t, append([]string{rig.Fini, "-i", "--grace=2s", "--"}, everything...)...)
				_ = theirs.Close()
				h.Echo(clients.LargeText(1 << 16))
				end(h, keys)
				_ = h.Status()
				h.MustVanish()
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
	for flags, want := range map[string]string{
		clients.IgnoresEOF:    "SIGTERM",
		helperWithStdout:      "0",
		clients.HelperWithout: "0",
		clients.IgnoresEOF + " " + ignoresTERM + " " + helperWithStdout: "SIGKILL",
	} {
		for name, program := range hosts {
			t.Run(fmt.Sprintf("%s[%s]", name, flags), func(t *testing.T) {
				t.Parallel()
				h := clients.OpenHost(t, program, clients.Offline(t), append([]string{rig.Fini, "-i", "--"}, misbehaving(flags)...)...)
				h.Echo("a session")
				h.Close()
				h.MustLeaveNothing(want)
			})
		}
	}
}

// stdin comes in the forms in which clients make it, and its end is seen in each, also with a
// server that does not see it.
func TestMCPStdinForms(t *testing.T) {
	t.Parallel()
	clients.NeedHosts(t)
	for i, server := range []struct{ flags, grace, want string }{
		{"", "--grace=5s", "0"},
		{clients.IgnoresEOF, "--grace=1s", "SIGTERM"},
		{clients.IgnoresEOF + " " + ignoresTERM, "--grace=300ms", "SIGKILL"},
	} {
		for _, tt := range []struct {
			program []string
			form    string
			quick   int // the server that make test has with it
		}{
			{clients.NodeHost, "socket:", 0},
			{pythonHost, "", 2}, // a socketpair before Python 3.12, and then a pipe
			{[]string{"python3", pythonHost[1], "pipe"}, "pipe:", 1},
			{[]string{"python3", pythonHost[1], "socketpair"}, "socket:", 0},
		} {
			rig.Case(t, tt.quick == i, fmt.Sprintf("%s[%s]", strings.Join(tt.program, " "), server.flags), func(t *testing.T) {
				t.Parallel()
				argv := append([]string{rig.Fini, "-v", "-i", server.grace, "--", "node", clients.ServerFile}, strings.Fields(server.flags)...)
				h := clients.OpenHost(t, tt.program, clients.Variables{}, argv...)
				inner := procfs.ChildrenOf(t, h.Started)[0] // the outer one has let go of it
				if form, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/0", inner)); err != nil || !strings.HasPrefix(form, tt.form) {
					t.Errorf("stdin is %q, want a %s (%v)", form, tt.form, err)
				}
				h.Echo(clients.LargeText(1 << 20))
				h.Close()
				h.MustLeaveNothing(server.want)
				if server.flags != "" {
					// The SDKs send SIGTERM later, which looks the same from outside.
					h.Err.Want("fini: waiting for the command: standard input has closed")
				}
			})
		}
	}
}

// The client is killed when npx has asked for the server's package, which comes only then. The server makes a file when it
// starts. A bare npx goes on, installs it, and starts a server for nobody.
func clientKilledWhileInstalling(t *testing.T) {
	t.Parallel()
	columns.Run(t, "client killed while `npx` installs", []string{"-i"}, func(t *testing.T, wrap []string) columns.Outcome {
		dir := t.TempDir()
		file := filepath.Join(dir, "started")
		started := func() bool { _, err := os.Stat(file); return err == nil }
		rig.Put(t, filepath.Join(dir, "package/package.json"), `{"name": "late-server", "version": "1.0.0", "bin": "server.js"}`, 0o644)
		rig.Put(t, filepath.Join(dir, "package/server.js"), `#!/usr/bin/env node
			require('fs').writeFileSync('`+file+`', '');
			setInterval(() => {}, 1000);`, 0o755)
		archive := []byte(rig.Run(t, "tar", "-czC", dir, "package"))
		var asked atomic.Bool
		deliver := make(chan struct{})
		url := clients.Serve(t, func(string) []byte {
			asked.Store(true)
			<-deliver
			return archive
		})
		env := clients.Variables{"npm_config_noproxy": "127.0.0.1", "npm_config_cache": t.TempDir(), "npm_config_audit": "false",
			"npm_config_fund": "false", "npm_config_update_notifier": "false"}
		h := clients.Way{Program: clients.NodeHost, Env: env}.Start(t, append(wrap, "npx", "-y", url+"/archive.tgz")...)
		rig.Until(t, "npx has asked for the package", asked.Load)
		h.End(syscall.SIGKILL)
		if columns.UnderFini(wrap) {
			h.Err.Want("fini: stopping the command")
		}
		close(deliver)
		if !columns.UnderFini(wrap) {
			rig.Until(t, "the server has started", started)
		}
		o := columns.Watch(wrap, h.Err, h.Cgroup.Count)
		if columns.UnderFini(wrap) && started() { // from an empty cgroup nobody starts it any more
			t.Error("the server was started for a client that was gone")
		}
		return o
	})
}
