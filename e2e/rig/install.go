package rig

import (
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/need"
)

func MustParse(t *testing.T, text []byte, value any) {
	t.Helper()
	if err := json.Unmarshal(text, value); err != nil {
		t.Fatalf("%v: %.200q", err, text)
	}
}

// A kind of Node runs fini in its place, or has it as its child.
type NodeKind struct {
	Name string
	Stay bool
	Env  []string // with which `node` is this one
}

// NodeKinds are both, whatever the Node of this machine is.
func NodeKinds(t *testing.T) []NodeKind {
	t.Helper()
	node := need.Program(t, "node")
	without := Preload(t, "delete process.execve")
	arch := map[string]string{"amd64": "x64", "arm64": "arm64"}[runtime.GOARCH]
	folder, err := filepath.Abs("testdata/node/node_modules/node-linux-" + arch + "/bin")
	if err != nil {
		t.Fatal(err)
	}
	_, err = os.Stat(filepath.Join(folder, "node"))
	need.That(t, err == nil, "a Node with process.execve (npm ci --prefix e2e/testdata/node)")
	return []NodeKind{
		{"child", true, []string{"PATH=" + filepath.Dir(node) + ":" + os.Getenv("PATH"), without}},
		{"execve", false, []string{"PATH=" + folder + ":" + os.Getenv("PATH")}},
	}
}

// Preload is a variable by which Node runs a script before its own.
func Preload(t *testing.T, script string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "preload.cjs")
	if err := os.WriteFile(name, []byte(script), 0o644); err != nil {
		t.Fatal(err)
	}
	return "NODE_OPTIONS=--require=" + name
}

// Variables is the environment for a host.
func (k NodeKind) Variables(t *testing.T) Variables {
	env := Offline(t)
	for _, line := range k.Env {
		name, value, _ := strings.Cut(line, "=")
		env[name] = value
	}
	return env
}

func Quoted(words []string) (all []string) {
	for _, word := range words {
		all = append(all, "'"+strings.ReplaceAll(word, "'", `'\''`)+"'")
	}
	return all
}

// Packaging is the program that makes the parts of a release. It has a go.mod of its own.
func Packaging(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "packaging")
	Run(t, "go", "build", "-C", "../packaging", "-o", program, ".")
	return program
}

// CompletionFor is what the packages have for a shell.
func CompletionFor(t *testing.T, shell string) string {
	t.Helper()
	return ReadFile(t, "../packaging/completions/fini."+shell)
}
