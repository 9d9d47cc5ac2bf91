package e2e

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/need"
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
	for _, b := range blocksOf(t, page) {
		if b.kind != "json" {
			continue
		}
		var config struct {
			Servers map[string]mcpServer `json:"servers"`    // VS Code
			MCP     map[string]mcpServer `json:"mcpServers"` // all others
		}
		mustParse(t, []byte(b.text), &config)
		if len(config.Servers)+len(config.MCP) == 0 {
			t.Errorf("%s: no server:\n%s", page, b.text)
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
	t.Parallel()
	needHosts(t)
	inspector, err := filepath.Abs("node_modules/.bin/mcp-inspector")
	if err != nil {
		t.Fatal(err)
	}
	_, err = os.Stat(inspector)
	need.That(t, err == nil, "e2e/node_modules/.bin/mcp-inspector")
	var seen []string
	for _, page := range []string{"../README.md", "../docs/recipes.md"} {
		for _, servers := range mcpConfigs(t, page) {
			server, ok := servers["everything"]
			if key := strings.Join(server.Args, " "); !ok || server.Command != "fini" || slices.Contains(seen, key) {
				continue
			} else {
				seen = append(seen, key)
			}
			t.Run("Inspector", func(t *testing.T) {
				t.Parallel()
				// The file is the page's but for npm's cache, which is empty: the server is installed here.
				server := server
				server.Env = offline(t)
				server.Env["PATH"] = filepath.Dir(finiPath) + ":" + os.Getenv("PATH")
				text, err := json.Marshal(map[string]any{"mcpServers": map[string]mcpServer{"everything": server}})
				file := filepath.Join(t.TempDir(), "mcp.json")
				if err == nil {
					err = os.WriteFile(file, text, 0o644)
				}
				if err != nil {
					t.Fatal(err)
				}
				h := newCgroup(t)
				argv := h.wrap(inspector, "--cli", "--config", file, "--server", "everything", "--method", "tools/list")
				cmd := exec.Command(argv[0], argv[1:]...)
				cmd.Env = append(os.Environ(), "PATH="+server.Env["PATH"]) // by which the Inspector finds the command
				var l *life
				inTurn(func() {
					l = startCmd(t, cmd)
					if got := l.status(); got != 0 {
						t.Errorf("status %d", got)
					}
				})
				out := l.Out.whole()
				var list struct{ Tools []struct{ Name string } }
				if err := json.Unmarshal([]byte(out), &list); err != nil || len(list.Tools) == 0 {
					t.Errorf("the Inspector says %.500q: %s", out, l.Err.text())
				}
				until(t, "the cgroup is empty", func() bool { return len(h.alive()) == 0 })
			})
			t.Run("SDK", func(t *testing.T) {
				t.Parallel()
				h := openHost(t, nodeHost, offline(t), append([]string{finiPath}, server.Args...)...)
				h.echo("recipe")
				h.close()
				h.mustLeaveNothing("0")
			})
		}
	}
	if len(seen) == 0 {
		t.Error("no configuration found")
	}
}

// A host that ends a session by SIGTERM alone, and waits, has its end also with a server that ignores
// that: -k of the recipe is for it.
func TestMCPConfigEndsBySignal(t *testing.T) {
	t.Parallel()
	server := mcpConfigs(t, "../README.md")[0]["everything"]
	for _, asked := range []bool{true, false} {
		k := newRecipeDir(t, map[string]string{"npx": `trap '' TERM; echo ready; while :; do sleep 1000; done`})
		var args []string
		for _, word := range server.Args {
			if word == "5s" {
				word = "10ms"
			}
			args = append(args, word)
		}
		if !asked {
			args = slices.DeleteFunc(args, func(word string) bool { return word == "-k" || word == "10ms" })
		}
		l := k.start(append([]string{server.Command}, args...)...)
		l.Out.want("ready")
		l.caught()
		l.signal(15)
		if asked {
			k.mustLeaveNothing(l, 137)
			continue
		}
		l.signal(15) // a second one changes nothing, and only -k would
		if len(k.cgroup.alive()) < 3 {
			t.Errorf("without -k it ends as well, so that this shows nothing: %q", k.cgroup.names())
		}
		_ = l.Stdin.Close()
		l.signal(9)
		k.mustBeEmpty()
	}
}
