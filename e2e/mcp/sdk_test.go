package mcp

import (
	"strings"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/e2e/rig/clients"
)

// Both SDKs start what wrap names, and leave nothing.
func TestEmbeddingBySDKs(t *testing.T) {
	rig.Long(t)
	t.Parallel()
	clients.NeedHosts(t)
	k := rig.WithModules(t, nil)
	wrapped := map[string][]string{
		"node": {"node", "-e", "const { wrap } = require('fini-init'); const w = wrap('npx', ['-y', '" + clients.McpPackage +
			"'], ['-i', '-k', '5s']); console.log([w.command, ...w.args].join('\\n'))"},
		"python3": {"python3", "-c", "import fini_init; w = fini_init.wrap('npx', ['-y', '" + clients.McpPackage +
			"'], ['-i', '-k', '5s'])._asdict(); print('\\n'.join([w['command'], *w['args']]))"},
	}
	for _, program := range [][]string{clients.NodeHost, pythonHost} {
		t.Run(program[0], func(t *testing.T) {
			out := k.MustLeaveNothing(k.Start(wrapped[program[0]]...), 0)
			argv := strings.Split(strings.TrimSpace(out), "\n")
			h := clients.OpenHost(t, program, rig.Offline(t), argv...)
			h.Echo("embedded")
			h.Close()
			h.MustLeaveNothing("0")
		})
	}
}
