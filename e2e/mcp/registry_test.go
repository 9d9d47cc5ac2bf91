package mcp

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/e2e/rig/clients"
)

// A registry has one package, a server that makes a file when it starts and then stays. Its
// archive is sent when told.
type registry struct {
	url     string        // of the package
	file    string        // the server makes it
	asked   chan struct{} // npx has asked for the archive
	Deliver chan struct{} // closed: the archive is sent
}

func newRegistry(t *testing.T) *registry {
	t.Helper()
	dir := t.TempDir()
	r := &registry{file: filepath.Join(dir, "started"), asked: make(chan struct{}, 100), Deliver: make(chan struct{})}
	rig.Put(t, filepath.Join(dir, "package/package.json"), `{"name": "late-server", "version": "1.0.0", "bin": "server.js"}`, 0o644)
	rig.Put(t, filepath.Join(dir, "package/server.js"), "#!/usr/bin/env node\nrequire('fs').writeFileSync('"+r.file+"', '');\nsetInterval(() => {}, 1000);\n", 0o755)
	archive := []byte(rig.Run(t, "tar", "-czC", dir, "package"))
	r.url = clients.Serve(t, func(string) []byte {
		r.asked <- struct{}{}
		<-r.Deliver
		return archive
	}) + "/archive.tgz"
	return r
}

// AskedBy makes a host start argv, and returns when npx has asked for the archive.
func (r *registry) AskedBy(t *testing.T, argv ...string) (h *clients.Host) {
	t.Helper()
	env := clients.Variables{
		"npm_config_noproxy": "127.0.0.1", "npm_config_cache": t.TempDir(),
		"npm_config_audit": "false", "npm_config_fund": "false", "npm_config_update_notifier": "false",
	}
	clients.InTurn(func() {
		h = clients.Way{Program: clients.NodeHost, Env: env}.Start(t, argv...)
		select {
		case <-r.asked:
		case <-time.After(rig.Patience):
			t.Fatal("npx has not asked for the package")
		}
	})
	return h
}

func (r *registry) ServerStarted() bool {
	_, err := os.Stat(r.file)
	return err == nil
}
