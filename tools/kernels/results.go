package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// slow is when a guest has hung. The slowest takes a tenth of it on a machine that does nothing else.
const slow = 12 * time.Minute

// A result is what a column has said.
type result struct {
	column  *column
	guest   *guest
	err     error
	took    time.Duration
	used    time.Duration
	release string
	cost    int     // of starting true, in ns
	sandbox float64 // what a sandbox takes for fini around true, as a multiple of what it takes for true
	tests   []test
}

// A test is one, or a part of one, that has no parts itself.
type test struct {
	pkg, name string
	action    string // pass, fail or skip
	text      string // what it has said
}

// watch runs the column to its end.
func (r *result) watch() error {
	if r.column.kernel == "" {
		if err := r.measure(); err != nil {
			return err
		}
	}
	cmd := r.column.run(r.column, r.guest, "/bin/sh", "/init")
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	cmd.Stderr = cmd.Stdout
	log, err := os.Create(filepath.Join(filepath.Dir(r.guest.root), "console"))
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := time.AfterFunc(slow, func() { _ = cmd.Process.Kill() })
	defer ended.Stop()
	console, over, err := r.read(io.TeeReader(out, log))
	_ = cmd.Process.Kill() // a machine has no reason to end
	_ = cmd.Wait()
	r.took, r.used = time.Since(began), cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime()
	if err == nil && !over {
		err = fmt.Errorf("it ended, or was ended after %v, before its tests were over:\n%s", r.took.Round(time.Second), tail(console, 60))
	}
	return err
}

// look reads the console of a run that was before.
func (r *result) look(path string) error {
	console, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = console.Close() }()
	_, over, err := r.read(console)
	if err == nil && !over {
		err = errors.New("cannot find the end of the tests in " + path)
	}
	return err
}

// read takes in the console up to the end of the tests.
func (r *result) read(console io.Reader) (said []string, over bool, err error) {
	var pkg string
	var events []string
	in := bufio.NewReader(console)
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return said, false, nil
		}
		line = strings.TrimRight(line, "\r\n")
		said = append(said, line)
		word, rest, _ := strings.Cut(strings.TrimPrefix(line, "kernels: "), " ")
		switch {
		case !strings.HasPrefix(line, "kernels: "):
			events = append(events, line)
		case word == "kernel":
			r.release, events = rest, nil
		case word == "cost":
			r.tests = append(r.tests, r.clean(rest, events)...)
		case word == "begin":
			pkg, events = rest, nil
		case word == "end":
			tests, err := parse(pkg, events)
			if err != nil {
				return said, false, err
			}
			if rest != "0" && !slices.ContainsFunc(tests, func(t test) bool { return t.action == "fail" }) {
				return said, false, fmt.Errorf("the tests of %s end with status %s, and none has failed:\n%s", pkg, rest, tail(events, 40))
			}
			r.tests = append(r.tests, tests...)
		case word == "over":
			return said, true, nil
		}
	}
}

func tail(lines []string, most int) string {
	return strings.Join(lines[max(0, len(lines)-most):], "\n")
}

// parse has go tool test2json tell what each test has said.
func parse(pkg string, lines []string) ([]test, error) {
	cmd := exec.Command("go", "tool", "test2json")
	cmd.Stdin = strings.NewReader(strings.Join(lines, "\n") + "\n")
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("cannot run go tool test2json: %w", err)
	}
	text := map[string]*strings.Builder{}
	var tests []test
	for line := range strings.Lines(string(out)) {
		var event struct{ Action, Test, Output string }
		if err := json.Unmarshal([]byte(line), &event); err != nil {
			return nil, fmt.Errorf("go tool test2json says %q: %w", line, err)
		}
		switch {
		case event.Test == "":
		case event.Action == "output":
			if text[event.Test] == nil {
				text[event.Test] = &strings.Builder{}
			}
			text[event.Test].WriteString(event.Output)
		case event.Action == "pass" || event.Action == "fail" || event.Action == "skip":
			t := test{pkg: pkg, name: event.Test, action: event.Action}
			if b := text[event.Test]; b != nil {
				t.text = b.String()
			}
			tests = append(tests, t)
		}
	}
	// A test that has parts is told by them, unless it has failed by itself.
	var leaves []test
	for _, t := range tests {
		if !slices.ContainsFunc(tests, func(part test) bool {
			return strings.HasPrefix(part.name, t.name+"/") && (t.action != "fail" || part.action == "fail")
		}) {
			leaves = append(leaves, t)
		}
	}
	return leaves, nil
}

// report prints what has not passed.
func (r *result) report() {
	counts := map[string]int{}
	var b strings.Builder
	for _, t := range r.tests {
		counts[t.action]++
		if t.action == "fail" {
			fmt.Fprintf(&b, "%s: %s %s failed:\n%s", r.column.name, t.pkg, t.name, t.text)
		}
	}
	if r.err != nil {
		fmt.Fprintf(&b, "%s: %v\n", r.column.name, r.err)
	}
	fmt.Printf("%s%s (%s): %d tests passed, %d failed, %d were skipped, in %v; it had %v of the processors\n", b.String(), r.column.name, r.release,
		counts["pass"], counts["fail"], counts["skip"], r.took.Round(time.Second), r.used.Round(time.Second))
}

// most is how much a start may cost in a sandbox, whose own starts are slow, as a multiple of true's.
const most = 3

// clean is the test of a command that leaves nothing: fini says nothing, and where a start is slow it
// adds little. The line is "NS COMMAND", first of true and then of fini around it.
func (r *result) clean(line string, said []string) []test {
	text, command, _ := strings.Cut(line, " ")
	cost, _ := strconv.Atoi(text)
	if command == "/bin/true" {
		r.cost = cost
		return nil
	}
	t := test{pkg: "clean", name: "TestCleanCommand", action: "pass"}
	ratio := float64(cost) / float64(r.cost)
	if r.sandbox > 0 {
		ratio = r.sandbox
	}
	if len(said) > 0 || r.sandbox > most {
		t.action = "fail"
	}
	t.text = fmt.Sprintf("a start costs %.1f times what it costs without fini, and this was said: %q\n", ratio, said)
	return []test{t}
}

// measure compares the median of a few starts of a sandbox, with fini and without, in turn.
func (r *result) measure() error {
	took := [2][]time.Duration{}
	for range 7 {
		for i, command := range [][]string{{"/bin/true"}, {"/fini/bin/fini", "--", "/bin/true"}} {
			cmd := r.column.run(r.column, r.guest, command...)
			began := time.Now()
			if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
				return fmt.Errorf("%q in the sandbox: %v; it says %q", command, err, out)
			}
			took[i] = append(took[i], time.Since(began))
		}
	}
	for _, t := range took {
		slices.Sort(t)
	}
	r.sandbox = float64(took[1][3]) / float64(took[0][3])
	fmt.Printf("%s: a sandbox takes %v for true and %v for fini true\n", r.column.name, took[0][3].Round(time.Millisecond), took[1][3].Round(time.Millisecond))
	return nil
}
