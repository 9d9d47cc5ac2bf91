package main

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// go test has a timeout for a package, which is as long as all that its tests may take together. readUnlessLate has one for
// each test, of the time that it would have taken on an idle machine: not of the time in which it waits for other tests
// (t.Parallel), or for its subtests, each of which has a timeout of its own.
func (r *run) readUnlessLate(from io.Reader, to io.Writer, each time.Duration, quit func(pkg string) error) error {
	lines, ended := make(chan []byte), make(chan error, 1)
	go func() {
		in := bufio.NewReader(from)
		for {
			line, err := in.ReadBytes('\n')
			if len(line) > 0 {
				lines <- line
			}
			if err != nil {
				ended <- err
				close(lines)
				return
			}
		}
	}()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case line, ok := <-lines:
			if !ok {
				if err := <-ended; err != io.EOF {
					return err
				}
				return nil
			}
			r.line(line, to)
		case <-tick.C:
			if each > 0 {
				r.clock.Over(each)
				r.quitLate(to, each, quit)
			}
		}
	}
}

// runs notes that a test goes on, and that the one whose subtest it is waits for it.
func (r *run) runs(of test) {
	r.since[of] = r.clock.Used
	delete(r.since, of.parent())
}

// ended notes that a test has ended, and the one whose subtest it was may go on.
func (r *run) ended(of test) {
	if of.name == "" {
		maps.DeleteFunc(r.since, func(t test, _ time.Duration) bool { return t.pkg == of.pkg })
		return
	}
	delete(r.since, of)
	if parent := of.parent(); parent.name != "" && r.verdict[parent] == "" {
		r.since[parent] = r.clock.Used
	}
}

func (t test) parent() test {
	t.name = t.name[:max(0, strings.LastIndex(t.name, "/"))]
	return t
}

// quitLate ends the package of each test that is late: the Go runtime then writes what each goroutine does.
func (r *run) quitLate(to io.Writer, each time.Duration, quit func(pkg string) error) {
	for _, of := range slices.SortedFunc(maps.Keys(r.since), func(a, b test) int { return strings.Compare(a.name, b.name) }) {
		if took := r.clock.Used - r.since[of]; took > each {
			r.failed = true
			fmt.Fprintf(to, "%s in %s has taken %v, and its package is ended with SIGQUIT (%v). It said:\n%s",
				of.name, short(of.pkg), took.Round(time.Second), quit(of.pkg), r.output[of])
			maps.DeleteFunc(r.since, func(t test, _ time.Duration) bool { return t.pkg == of.pkg })
			return
		}
	}
}

// quit sends SIGQUIT to the program of a package's tests, which is in the process group of this program: a shell without job
// control has started both. Programs of the same name differ in where they are; all rooms are in e2e.
func quit(pkg string) error {
	at := "/" + short(pkg)
	if strings.Contains(pkg, "/e2e/") {
		at = "/e2e"
	}
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		pid, _ := strconv.Atoi(filepath.Base(dir))
		line, _ := os.ReadFile(dir + "/cmdline")
		words := strings.Split(string(line), "\x00")
		cwd, _ := os.Readlink(dir + "/cwd")
		group, _ := syscall.Getpgid(pid)
		if group == syscall.Getpgrp() && len(words) > 1 && filepath.Base(words[0]) == filepath.Base(pkg)+".test" &&
			strings.HasPrefix(words[1], "-test.") && (strings.HasSuffix(cwd, at) || short(pkg) == "fini") {
			return syscall.Kill(pid, syscall.SIGQUIT)
		}
	}
	return os.ErrProcessDone
}
