package rig

import (
	"archive/tar"
	"bytes"
	"context"
	"debug/elf"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
)

func DockerWorks() bool {
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	return exec.CommandContext(ctx, "docker", "info").Run() == nil
}

func IsStatic(path string) bool {
	f, err := elf.Open(path)
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }()
	return !slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP })
}

// DockerCommand is the client with these arguments, ended where it hangs.
func DockerCommand(t testing.TB, args ...string) *exec.Cmd {
	t.Helper()
	// Not the test's own context: that one has ended when cleanups run.
	ctx, cancel := context.WithTimeout(context.Background(), 2*Patience)
	t.Cleanup(cancel)
	return exec.CommandContext(ctx, "docker", args...)
}

var dockerNames atomic.Int64

// DockerName is a name that nobody else uses.
func DockerName(what string) string {
	return fmt.Sprintf("fini-e2e-%s-%d-%d", what, os.Getpid(), dockerNames.Add(1))
}

// BusyboxTar is a root file system with busybox under each of its names.
func BusyboxTar(t *testing.T, busybox string) io.Reader {
	t.Helper()
	binary, err := os.ReadFile(busybox)
	if err != nil {
		t.Fatal(err)
	}
	names, err := exec.Command(busybox, "--list").Output()
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	add := func(h tar.Header, content []byte) {
		h.Size = int64(len(content))
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(content); err != nil {
			t.Fatal(err)
		}
	}
	add(tar.Header{Name: "tmp/", Typeflag: tar.TypeDir, Mode: 0o1777}, nil)
	add(tar.Header{Name: "bin/busybox", Mode: 0o755}, binary)
	add(tar.Header{Name: "bin/plain-text", Mode: 0o644}, []byte("not executable\n"))
	for _, name := range strings.Fields(string(names)) {
		if name != "busybox" {
			add(tar.Header{Name: "bin/" + name, Typeflag: tar.TypeSymlink, Linkname: "busybox", Mode: 0o777}, nil)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &b
}

// WantOnce asserts that exactly one line of text is this one.
func WantOnce(t testing.TB, text, line string) {
	t.Helper()
	n := 0
	for got := range strings.SplitSeq(text, "\n") {
		if got == line {
			n++
		}
	}
	if n != 1 {
		t.Errorf("%d times %q, want it once, in:\n%s", n, line, text)
	}
}

const (
	// Each of these is left by a subshell that ends at once.
	Make200Orphans = `i=0; while [ $i -lt 200 ]; do (true &); i=$((i+1)); done; `

	// Says "escapee ready". A second after TERM it ends by itself and says "escapee
	// done". What it started meanwhile ignores the TERM that each leftover gets.
	slowEscapee = `setsid sh -c '
		trap "trap \"\" TERM; sleep 1; echo escapee done; exit" TERM
		echo escapee ready
		while :; do sleep 1000 & wait; done' & `

	// A main child with an escapee: on TERM it says so and exits with 7.
	Stoppable = `trap "echo main got TERM; exit 7" TERM
		` + slowEscapee + `
		while :; do sleep 1000 & wait; done`
)
