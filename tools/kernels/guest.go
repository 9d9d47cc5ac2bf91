package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// A guest is what a column runs: a file system and, unless a sandbox has its own, a kernel.
type guest struct {
	root    string // the folder
	archive string // the same, for a kernel
	kernel  string
	runsc   string
}

// folder is where all that belongs to a column is.
func folder(dir string, c *column) string {
	return filepath.Join(dir, strings.ReplaceAll(c.name, " ", "-"))
}

// makeGuest downloads, unpacks and builds.
func makeGuest(dir string, c *column) (*guest, error) {
	s, err := openSuite(filepath.Join(dir, "apt"), c.suite, c.arch)
	if err != nil {
		return nil, err
	}
	here := folder(dir, c)
	if err := os.RemoveAll(here); err != nil {
		return nil, err
	}
	g := &guest{root: filepath.Join(here, "root"), archive: filepath.Join(here, "root.cpio")}
	for _, sub := range []string{"usr/bin", "usr/sbin", "usr/lib", "usr/lib64", "proc", "sys", "dev", "etc", "root", "run", "tmp", "fini/bin"} {
		if err := os.MkdirAll(filepath.Join(g.root, sub), 0o755); err != nil {
			return nil, err
		}
	}
	for _, name := range []string{"bin", "sbin", "lib", "lib64"} {
		if err := os.Symlink("usr/"+name, filepath.Join(g.root, name)); err != nil {
			return nil, err
		}
	}
	if err := s.unpack(g.root, everything, packages...); err != nil {
		return nil, err
	}
	if err := finish(g.root, c); err != nil {
		return nil, err
	}
	if err := addTests(g.root, c); err != nil {
		return nil, err
	}
	if c.kernel == "" {
		g.runsc = filepath.Join(here, "runsc", "usr/bin/runsc")
		return g, s.unpack(filepath.Join(here, "runsc"), func(name string) bool { return name == "runsc" }, "runsc")
	}
	boot := filepath.Join(here, "kernel")
	if err := s.unpack(boot, isKernel, c.kernel); err != nil {
		return nil, err
	}
	images, _ := filepath.Glob(filepath.Join(boot, "boot/vmlinuz-*"))
	if len(images) == 0 { // since Linux 7
		images, _ = filepath.Glob(filepath.Join(boot, "usr/lib/modules/*/vmlinuz"))
	}
	if len(images) != 1 {
		return nil, fmt.Errorf("cannot find one kernel in %s's packages: %q", c.kernel, images)
	}
	g.kernel = images[0]
	_, err = output(g.root, "sh", "-c", `find . | cpio --quiet -o -H newc -R 0:0 >"$0"`, absolute(g.archive))
	return g, err
}

// finish does what the packages' scripts would.
func finish(root string, c *column) error {
	for name, text := range map[string]string{
		"etc/passwd":  "root:x:0:0:root:/root:/bin/bash\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
		"etc/group":   "root:x:0:\ntty:x:5:\nnogroup:x:65534:\n",
		"etc/hosts":   "127.0.0.1 localhost\n",
		"init":        initScript,
		"fini/prefix": c.prefix,
	} {
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o755); err != nil {
			return err
		}
	}
	for link, to := range map[string]string{"usr/bin/sh": "dash", "usr/bin/awk": "mawk"} {
		if _, err := os.Lstat(filepath.Join(root, link)); err != nil {
			if err := os.Symlink(to, filepath.Join(root, link)); err != nil {
				return err
			}
		}
	}
	return os.Chmod(filepath.Join(root, "tmp"), 0o777|os.ModeSticky)
}

// addTests builds fini and the tests for the column. A test that is not to run there is in the list of
// what does not hold.
func addTests(root string, c *column) error {
	cross := exec.Command("make", "-s", "cross", "CROSS="+c.arch, "DIST="+absolute(filepath.Join(root, "fini/bin")))
	if out, err := cross.CombinedOutput(); err != nil {
		return fmt.Errorf("cannot build fini: %w\n%s", err, out)
	}
	err := os.Rename(filepath.Join(root, "fini/bin/fini-linux-"+c.arch), filepath.Join(root, "fini/bin/fini"))
	if err != nil {
		return err
	}
	schema := exec.Command("go", "build", "-C", "tools/schema", "-o", absolute(filepath.Join(root, "fini/bin/schema")), ".")
	schema.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+c.arch)
	if out, err := schema.CombinedOutput(); err != nil {
		return fmt.Errorf("cannot build tools/schema: %w\n%s", err, out)
	}
	if _, err := output("", "cp", "-R", "docs", filepath.Join(root, "fini/docs")); err != nil {
		return err
	}
	patterns := map[string][]string{}
	for _, g := range groups {
		for pkg, pattern := range g.patterns() {
			patterns[pkg] = append(patterns[pkg], pattern)
		}
	}
	delete(patterns, "clean")
	for pkg, tests := range patterns {
		dir := filepath.Join(root, "fini", pkg)
		build := exec.Command("go", "test", "-c", "-trimpath", "-o", absolute(filepath.Join(dir, filepath.Base(pkg)+".test")), "./"+pkg)
		build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+c.arch)
		if out, err := build.CombinedOutput(); err != nil {
			return fmt.Errorf("cannot build the tests of %s: %w\n%s", pkg, err, out)
		}
		if err := os.WriteFile(filepath.Join(dir, "run"), []byte(strings.Join(tests, "|")), 0o644); err != nil {
			return err
		}
		if skip := c.leftOut(pkg); skip != "" {
			if err := os.WriteFile(filepath.Join(dir, "skip"), []byte(skip), 0o644); err != nil {
				return err
			}
		}
	}
	return nil
}

// qemu starts a machine whose console is its standard output.
func qemu(c *column, g *guest, _ ...string) *exec.Cmd {
	program, console := "qemu-system-x86_64", "ttyS0"
	// QEMU 7.2 gets the flags wrong that CMPXCHG16B leaves, by which Linux 6.12's allocator of memory crashes.
	machine := []string{"-machine", "q35", "-cpu", "max,-cx16"}
	if c.arch == "arm64" {
		program, console = "qemu-system-aarch64", "ttyAMA0"
		// The pointers' signatures by Arm's own algorithm would take most of the time.
		machine = []string{"-machine", "virt", "-cpu", "max,pauth-impdef=on"}
	}
	return exec.Command(program, append(machine, "-accel", "tcg,thread=multi", "-smp", "2", "-m", "2500",
		"-display", "none", "-monitor", "none", "-serial", "stdio", "-nic", "none", "-no-reboot",
		"-kernel", g.kernel, "-initrd", g.archive,
		"-append", "console="+console+" panic=-1")...)
}

// runsc starts a sandbox that runs a command. Sid's is built by a Go that it does not know ("running on goroutine 0"), so
// it is trixie's.
func runsc(_ *column, g *guest, command ...string) *exec.Cmd {
	return exec.Command(absolute(g.runsc), append([]string{"--network=none", "--platform=systrap", "do", "-quiet", "-root", absolute(g.root),
		"-cwd", "/"}, command...)...)
}

func absolute(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		return abs
	}
	return path
}
