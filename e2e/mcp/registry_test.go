package mcp

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"maps"
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
	t       testing.TB
	url     string
	Name    string
	file    string        // the server makes it
	asked   chan struct{} // npx has asked for the archive
	Deliver chan struct{} // closed: the archive is sent
}

func newRegistry(t testing.TB) *registry {
	t.Helper()
	r := &registry{
		t: t, Name: "fini-e2e-late-server", file: filepath.Join(t.TempDir(), "started"),
		asked: make(chan struct{}, 100), Deliver: make(chan struct{}),
	}
	manifest := map[string]any{"name": r.Name, "version": "1.0.0", "bin": "server.js"}
	archive := r.archive(manifest)
	r.url = clients.Serve(t, func(path string, gone <-chan struct{}) (kind string, body []byte) {
		switch path {
		case "/" + r.Name:
			version := maps.Clone(manifest)
			version["dist"] = map[string]any{"tarball": r.url + "/archive.tgz"}
			text, _ := json.Marshal(map[string]any{
				"name": r.Name, "dist-tags": map[string]any{"latest": "1.0.0"}, "versions": map[string]any{"1.0.0": version},
			})
			return "application/json", text
		case "/archive.tgz":
			r.asked <- struct{}{}
			select {
			case <-r.Deliver:
				return "application/octet-stream", archive
			case <-gone:
			}
		}
		return "", nil
	})
	return r
}

func (r *registry) archive(manifest map[string]any) []byte {
	r.t.Helper()
	text, err := json.Marshal(manifest)
	rig.NoError(r.t, err)
	program := fmt.Sprintf("#!/usr/bin/env node\nrequire('fs').writeFileSync(%q, '');\nsetInterval(() => {}, 1000);\n",
		r.file)
	var b bytes.Buffer
	zip := gzip.NewWriter(&b)
	out := tar.NewWriter(zip)
	for _, file := range []struct{ name, text string }{
		{"package/package.json", string(text)}, {"package/server.js", program},
	} {
		err = out.WriteHeader(&tar.Header{Name: file.name, Mode: 0o755, Size: int64(len(file.text))})
		if err == nil {
			_, err = out.Write([]byte(file.text))
		}
		rig.NoError(r.t, err)
	}
	rig.NoError(r.t, out.Close())
	rig.NoError(r.t, zip.Close())
	return b.Bytes()
}

// AskedBy makes a host start argv, and returns when npx has asked for the archive. This registry
// is the only one that it knows.
func (r *registry) AskedBy(t *testing.T, argv ...string) (h *clients.Host) {
	t.Helper()
	env := clients.Variables{
		"npm_config_registry": r.url, "npm_config_noproxy": "127.0.0.1", "npm_config_cache": t.TempDir(),
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
