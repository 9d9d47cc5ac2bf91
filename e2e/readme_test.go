package e2e

import (
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// readmeBlocks are the indented blocks of README.md, without their indent.
func readmeBlocks(t *testing.T) (blocks []string) {
	t.Helper()
	var block strings.Builder
	for line := range strings.Lines(readFile(t, "../README.md") + "\nend\n") {
		switch text, indented := strings.CutPrefix(line, "    "); {
		case indented:
			block.WriteString(text)
		case line == "\n" && block.Len() > 0: // it may go on
		case block.Len() > 0:
			blocks = append(blocks, block.String())
			block.Reset()
		}
	}
	return blocks
}

// blockWith is the one block that contains a text.
func blockWith(t *testing.T, text string) string {
	t.Helper()
	for _, block := range readmeBlocks(t) {
		if strings.Contains(block, text) {
			return block
		}
	}
	t.Fatalf("no block with %q in README.md", text)
	return ""
}

// What the README shows at a prompt prints what it says.
func TestReadmeExamples(t *testing.T) {
	ran := 0
	for _, block := range readmeBlocks(t) {
		first, want, _ := strings.Cut(block, "\n")
		if command, ok := strings.CutPrefix(first, "$ "); ok {
			mustPrint(t, command, want)
			ran++
		}
	}
	if ran == 0 {
		t.Error("no example found")
	}
}

// The configuration for an MCP host starts a server that answers.
func TestReadmeMCPRecipe(t *testing.T) {
	needMCP(t)
	var config struct {
		Servers map[string]struct {
			Command string
			Args    []string
		} `json:"mcpServers"`
	}
	if err := json.Unmarshal([]byte(blockWith(t, "mcpServers")), &config); err != nil {
		t.Fatal(err)
	}
	for name, server := range config.Servers {
		if server.Command != "fini" {
			t.Errorf("%s is started by %q", name, server.Command)
		}
		s := startSession(t, exec.Command(finiPath, server.Args...))
		s.echo("recipe")
		s.closeStdin()
		s.Out.rest()
		s.mustLeaveNothing(0)
	}
}

// The CI step fails on a leak, and its report names it.
func TestReadmeCIRecipe(t *testing.T) {
	needProgram(t, "make")
	line := regexp.MustCompile(`run: (fini .*)`).FindStringSubmatch(blockWith(t, "run: fini"))
	if line == nil {
		t.Fatal("no step")
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "Makefile"), []byte("e2e:\n\t@setsid sleep 1000 & echo tested\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/bin/sh", "-c", "cd "+dir+"; exec "+line[1])
	cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(finiPath)+":"+os.Getenv("PATH"))
	l := startCmd(t, cmd)
	l.Out.want("tested")
	l.mustEnd(1)
	var report struct {
		Leftovers []struct{ Command string }
	}
	if err := json.Unmarshal([]byte(readFile(t, filepath.Join(dir, "leaks.json"))), &report); err != nil {
		t.Fatal(err)
	}
	if len(report.Leftovers) != 1 || report.Leftovers[0].Command != "sleep 1000" {
		t.Errorf("the report names %+v", report.Leftovers)
	}
}

// The README's table has the flags of --help.
func TestReadmeFlags(t *testing.T) {
	t.Parallel()
	name := regexp.MustCompile(`(?:^|[ ,/` + "`" + `])(--?[a-zA-Z\[][a-z\]-]*(?:=[A-Z:]+)?)`)
	names := func(text string) map[string]bool {
		found := map[string]bool{}
		for _, m := range name.FindAllStringSubmatch(text, -1) {
			found[m[1]] = true
		}
		return found
	}
	table := map[string]bool{}
	_, section, _ := strings.Cut(readFile(t, "../README.md"), "\n## Flags\n")
	section, _, _ = strings.Cut(section, "\n## ")
	for line := range strings.Lines(section) {
		if cells := strings.Split(line, "|"); len(cells) > 3 {
			for flag := range names(cells[1]) {
				table[flag] = true
			}
		}
	}
	help := map[string]bool{}
	for _, o := range optionsOf(t, run(t, finiPath, "--help"), regexp.MustCompile(`\(([^()]+)\)$`)) {
		for flag := range names(o.names) {
			help[flag] = true
		}
	}
	if !maps.Equal(table, help) || len(help) < 30 {
		t.Errorf("the README's table has the flags %v, and --help %v", slices.Sorted(maps.Keys(table)), slices.Sorted(maps.Keys(help)))
	}
}
