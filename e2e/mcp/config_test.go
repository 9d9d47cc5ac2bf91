package mcp

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/e2e/rig/clients"
	"github.com/seed-126c5d8a/fini/e2e/rig/recipes"
	"github.com/seed-126c5d8a/fini/internal/tests/need"
)

// The configurations for MCP hosts, as they stand in the pages, given to hosts of other people.

type mcpServer struct {
	Command string            `json:"command"`
	Args    []string          `json:"args"`
	Env     map[string]string `json:"env,omitempty"`
}

// mcpConfigs are the servers that a page configures, by block.
func mcpConfigs(t *testing.T, page string) (all []map[string]mcpServer) {
	t.Helper()
	for _, b := range recipes.BlocksOf(t, page) {
		if b.Kind != "json" {
			continue
		}
		var config struct {
			Servers map[string]mcpServer `json:"servers"`    // VS Code
			MCP     map[string]mcpServer `json:"mcpServers"` // all others
		}
		rig.MustParse(t, []byte(b.Text), &config)
		if len(config.Servers)+len(config.MCP) == 0 {
			t.Errorf("%s: no server:\n%s", page, b.Text)
		}
		if config.MCP == nil {
			config.MCP = config.Servers
		}
		all = append(all, config.MCP)
	}
	return all
}

// A real server is started by the Inspector from a file, and by the TypeScript SDK.
func TestMCPConfigByOthers(t *testing.T) {
	rig.Long(t)
	t.Parallel()
	clients.NeedHosts(t)
	inspector := need.Module(t, ".bin/mcp-inspector")
	seen := map[string]mcpServer{}
	for _, page := range []string{"../README.md", "../docs/recipes.md"} {
		for _, servers := range mcpConfigs(t, page) {
			if server := servers["everything"]; server.Command == "fini" {
				seen[strings.Join(server.Args, " ")] = server
			}
		}
	}
	if len(seen) == 0 {
		t.Error("no configuration found")
	}
	for _, server := range seen {
		t.Run("Inspector", func(t *testing.T) {
			t.Parallel()
			// The file is the page's but for npm's cache, which is empty: the server is installed here.
			path := filepath.Dir(rig.Fini) + ":" + os.Getenv("PATH") // by which the Inspector finds the command, too
			here := mcpServer{server.Command, server.Args, clients.Offline(t)}
			here.Env["PATH"] = path
			text, err := json.Marshal(map[string]any{"mcpServers": map[string]mcpServer{"everything": here}})
			rig.NoError(t, err)
			file := rig.Put(t, filepath.Join(t.TempDir(), "mcp.json"), string(text), 0o644)
			h := rig.NewCgroup(t)
			var l *rig.Life
			for try := range 3 {
				cmd := rig.CommandOf(h.Wrap(inspector, "--cli", "--config", file, "--server", "everything", "--method", "tools/list"))
				cmd.Dir, cmd.Env = clients.Folder, append(os.Environ(), "PATH="+path)
				status := 0
				clients.InTurn(func() {
					l = rig.StartCmd(t, cmd)
					status = l.Status()
				})
				if status == 0 || try == 2 || !strings.Contains(l.Err.Text(), "Request timed out") {
					break
				}
				t.Logf("TRIED AGAIN: the Inspector does not wait longer than a minute")
				rig.Until(t, "the cgroup is empty", func() bool { return len(h.Alive()) == 0 })
			}
			l.MustHaveStatus(0)
			var list struct{ Tools []struct{ Name string } }
			if err := json.Unmarshal([]byte(l.Out.Whole()), &list); err != nil || len(list.Tools) == 0 {
				t.Errorf("the Inspector says %.500q: %s", l.Out.Text(), l.Err.Text())
			}
			rig.Until(t, "the cgroup is empty", func() bool { return len(h.Alive()) == 0 })
		})
		t.Run("SDK", func(t *testing.T) {
			t.Parallel()
			h := clients.OpenHost(t, clients.NodeHost, clients.Offline(t), append([]string{rig.Fini}, server.Args...)...)
			h.Echo("recipe")
			h.Close()
			h.MustLeaveNothing("0")
		})
	}
}

// A host that ends a session by SIGTERM alone, and waits, has its end also with a server that ignores
// that: -k of the recipe is for it.
func TestMCPConfigEndsBySignal(t *testing.T) {
	t.Parallel()
	server := mcpConfigs(t, "../README.md")[0]["everything"]
	k := recipes.NewDir(t, map[string]string{"npx": `trap '' TERM; echo ready; while :; do sleep 1000; done`})
	args := strings.Fields(strings.Replace(strings.Join(server.Args, " "), " 5s ", " 10ms ", 1))
	l := k.Start(append([]string{server.Command}, args...)...)
	l.Out.Want("ready")
	l.Caught()
	l.Signal(15)
	k.MustLeaveNothing(l, 137)
}
