package main

import (
	"fmt"
	"go/parser"
	"go/token"
	"io"
	"slices"
	"strings"
	"testing"
	"time"
)

// A room with a test that has no table, one that has one, and one whose table is of no subtests.
const room = `package room

func TestPlain(t *testing.T) {}

func TestRows(t *testing.T) {
	for _, c := range []struct{ name string; n int }{{"the first one", 1}, {"second", 2}, {"third", 3}} {
		t.Run("pair/"+c.name, func(t *testing.T) {})
	}
	for name := range map[string][]int{"of a map": nil, "another of it": {2}} {
		t.Run(name, func(t *testing.T) {})
	}
}

func TestLoop(t *testing.T) {
	for _, c := range []struct{ what string }{{"no subtest"}, {"none either"}} {
		_ = c
	}
}
`

// says is the line of go test -json about a test of the room.
func says(action, name string) string {
	return fmt.Sprintf("{\"Action\":%q,\"Package\":\"room\",\"Test\":%q}\n", action, name)
}

func TestNothingIsLeftOut(t *testing.T) {
	fset := token.NewFileSet()
	tree, err := parser.ParseFile(fset, "room_test.go", room, 0)
	if err != nil {
		t.Fatal(err)
	}
	there := []source{{"room", "room_test.go", fset, tree}}
	whole := []string{
		says("pass", "TestPlain"), says("pass", "TestLoop"), says("pass", "TestRows"),
		says("pass", "TestRows/pair/the_first_one"), says("pass", "TestRows/pair/second"), says("pass", "TestRows/pair/third#01"),
		says("pass", "TestRows/of_a_map"), says("pass", "TestRows/another_of_it"),
	}
	unrun := func(lines []string) []string {
		r := newRun()
		if err := r.read(strings.NewReader(strings.Join(lines, "")), io.Discard); err != nil {
			t.Fatal(err)
		}
		return r.unrun(there)
	}
	if bad := unrun(whole); bad != nil {
		t.Errorf("of a whole run it says %q", bad)
	}
	for i, line := range whole {
		left := slices.Delete(slices.Clone(whole), i, i+1)
		if bad := unrun(left); len(bad) != 1 {
			t.Errorf("without %s it says %q, want one line", line, bad)
		}
	}
	byItself, byNeed := says("skip", "TestPlain"), `{"Action":"output","Package":"room","Test":"TestPlain","Output":"SKIPPED, for this is missing: zsh\n"}`+"\n"
	if bad := unrun(append(whole[1:], byItself)); len(bad) != 1 || !strings.Contains(bad[0], "not by package need") {
		t.Errorf("of a test that skips itself it says %q", bad)
	}
	if bad := unrun(append(whole[1:], byNeed, byItself)); bad != nil {
		t.Errorf("of a test that lacks something it says %q", bad)
	}
}

// Of a table whose rows are no subtests, what leaves out a row is named, unless it says why, fails, or is for a quick run.
func TestSilentRows(t *testing.T) {
	const before, after = "package room\n\nfunc TestRows(t *testing.T) {\n", "\n}\n"
	const table = "for n, word := range []string{\"one\", \"two\"} {\n"
	for body, want := range map[string]int{
		table + "check(t, word)\n}":                                                         0,
		table + "if n > 0 {\ncontinue\n}\ncheck(t, word)\n}":                                1,
		table + "if n > 0 {\ncontinue // two is not for this machine\n}\ncheck(t, word)\n}": 0,
		table + "if n > 0 {\nreturn\n}\ncheck(t, word)\nbreak\n}":                           2,
		table + "if rig.Quick() && n > 0 {\ncontinue\n}\ncheck(t, word)\n}":                 0,
		table + "if err := check(word); err != nil {\nt.Error(err)\ncontinue\n}\n}":         0,
		table + "for range 3 {\nbreak\n}\nswitch n {\ncase 1:\nbreak\n}\n}":                 0,
		table + "switch n {\ncase 1:\ncontinue\n}\n}":                                       1,
		table + "for range 3 {\nreturn\n}\n}":                                               1,
		table + "f := func() { return }\nf()\n}":                                            0,
		table + "t.Run(word, func(t *testing.T) {})\ncontinue\n}":                           0,
		"if !isRoot {\nreturn\n}\n" + table + "}":                                           1,
		"if !isRoot {\nt.Fatal(word)\nreturn\n}\n" + table + "}":                            0,
		table + "}\nreturn": 0,
		"rows := map[string]int{\"one\": 1, \"two\": 2}\nfor word := range rows {\ncontinue\n}": 1,
		"for word := range found {\ncontinue\n}":                                                0,
	} {
		fset := token.NewFileSet()
		tree, err := parser.ParseFile(fset, "room_test.go", before+body+after, parser.ParseComments)
		if err != nil {
			t.Fatalf("%v in %s", err, body)
		}
		if bad := (source{"room", "room_test.go", fset, tree}).silent(); len(bad) != want {
			t.Errorf("it says %q, want %d lines of\n%s", bad, want, body)
		}
	}
}

func TestWhatFailedIsShown(t *testing.T) {
	var shown strings.Builder
	r := newRun()
	lines := `{"Action":"output","Package":"room","Test":"TestA","Output":"of A\n"}` + "\n" +
		`{"Action":"output","Package":"room","Test":"TestB","Output":"of B\n"}` + "\n" +
		`{"Action":"output","Package":"room","Test":"TestC","Output":"of C, which never ends\n"}` + "\n" +
		says("pass", "TestA") + says("fail", "TestB") +
		`{"Action":"output","Package":"room","Output":"FAIL\troom\t1.5s\n"}` + "\n" +
		`{"Action":"fail","Package":"room","Elapsed":1.5}` + "\n"
	if err := r.read(strings.NewReader(lines), &shown); err != nil || !r.failed {
		t.Fatalf("%v; failed %v", err, r.failed)
	}
	if want := "of B\nFAIL\troom\t1.5s\nof C, which never ends\n"; shown.String() != want {
		t.Errorf("it shows %q, want %q", &shown, want)
	}
	if bad := r.overBudget(1); len(bad) != 1 {
		t.Errorf("of a budget of 1 s it says %q", bad)
	}
}

// A test that never ends ends its package, while those that wait for others, or for their subtests, do not.
func TestLate(t *testing.T) {
	r, shown, ended := newRun(), new(strings.Builder), []string(nil)
	r.output[test{"room", "TestHangs/row"}] = "a word\n"
	for _, line := range []string{
		says("run", "TestPaused"), says("pause", "TestPaused"), says("run", "TestEnds"), says("run", "TestHangs"),
		says("run", "TestHangs/row"), says("run", "TestHangs/quick"), says("pass", "TestEnds"),
	} {
		r.line([]byte(line), shown)
	}
	quit := func(pkg string) error { ended = append(ended, pkg); return nil }
	r.clock.Used = time.Minute
	r.line([]byte(says("pass", "TestHangs/quick")), shown)
	r.quitLate(shown, time.Minute, quit)
	if ended != nil || r.failed {
		t.Errorf("ended %q before the time is over", ended)
	}
	r.clock.Used += time.Second
	r.quitLate(shown, time.Minute, quit)
	if want := "TestHangs/row in fini has taken 1m1s, and its package is ended with SIGQUIT (<nil>). It said:\na word\n"; shown.String() != want || !r.failed {
		t.Errorf("it shows %q, want %q", shown, want)
	}
	if !slices.Equal(ended, []string{"room"}) {
		t.Errorf("ended %q", ended)
	}
}
