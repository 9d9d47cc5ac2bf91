package docs

import (
	"encoding/csv"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/e2e/rig/recipes"
	"github.com/seed-126c5d8a/fini/e2e/rig/refusals"
	"github.com/seed-126c5d8a/fini/internal/tests/need"
)

// The pages that a reader sees: what they link to is there, what they show can be run, and what
// they say of the flags is what --help says.

// pages are README.md and all others.
func pages(t *testing.T) (names []string) {
	t.Helper()
	for _, pattern := range []string{"../*.md", "../docs/*.md", "../packaging/README.md", "../packaging/untested.md"} {
		found, err := filepath.Glob(pattern)
		rig.NoError(t, err)
		names = append(names, found...)
	}
	if len(names) < 9 {
		t.Fatalf("only these pages: %q", names)
	}
	return names
}

var (
	link   = regexp.MustCompile(`\]\(([^)]+)\)`)
	inline = regexp.MustCompile("`([^`\n]+)`")
)

// anchor is what a heading is linked to by, as GitHub makes it.
func anchor(heading string) string {
	return strings.ReplaceAll(regexp.MustCompile(`[^\pL\pN_ -]`).ReplaceAllString(strings.ToLower(heading), ""), " ", "-")
}

// No link is dead. A link out of the repository is the source of a claim about another tool, on GitHub, or the documentation of
// a package. It isn't looked at.
func TestPagesLinks(t *testing.T) {
	t.Parallel()
	links := 0
	for _, page := range pages(t) {
		for _, m := range link.FindAllStringSubmatch(rig.ReadFile(t, page), -1) {
			links++
			target, fragment, _ := strings.Cut(m[1], "#")
			if strings.HasPrefix(target, "https://github.com/") || strings.HasPrefix(target, "https://pkg.go.dev/github.com/") {
				continue
			}
			file := filepath.Join(filepath.Dir(page), target)
			if target == "" {
				file = page
			}
			if _, err := os.Stat(file); err != nil {
				t.Errorf("%s: a dead link: %v", page, err)
				continue
			}
			headings := regexp.MustCompile(`(?m)^#+(.*)$`).FindAllStringSubmatch(rig.ReadFile(t, file), -1)
			if fragment != "" && !slices.ContainsFunc(headings,
				func(m []string) bool { return anchor(strings.TrimSpace(m[1])) == fragment }) {
				t.Errorf("%s: %s has no heading for #%s", page, file, fragment)
			}
		}
	}
	if links < 35 {
		t.Errorf("only %d links found", links)
	}
	// Each page can be come by.
	starts := rig.ReadFile(t, "../README.md") + strings.ReplaceAll(rig.ReadFile(t, "../docs/README.md"), "](", "](docs/") +
		rig.ReadFile(t, "../CONTRIBUTING.md")
	for _, page := range pages(t) {
		if name := strings.TrimPrefix(page, "../"); name != "README.md" && !strings.Contains(starts, "("+name) {
			t.Errorf("no start page leads to %s", name)
		}
	}
}

// What the pages call a target of make, a test, a file of the repository or a command line of
// fini is one.
func TestPagesCommandLines(t *testing.T) {
	t.Parallel()
	makefile, tests := "\n"+rig.ReadFile(t, "../Makefile"), rig.Run(t, "sh", "-c", "grep -h '^func Test' */*_test.go long/*/*_test.go")
	check := func(page, line string) {
		line, _, _ = strings.Cut(line, " #")
		if m := regexp.MustCompile(`^(?:sudo |FINI_\w+=\S+ )*make((?: [a-z0-9-]+| [A-Z]+=\S+)+)$`).FindStringSubmatch(strings.TrimSpace(line)); m != nil {
			for word := range strings.FieldsSeq(m[1]) {
				if !strings.Contains(word, "=") && word != "e2e" && !strings.Contains(makefile, "\n"+word+":") {
					t.Errorf("%s: the Makefile has no target %s: %s", page, word, line)
				}
			}
		}
		if m := regexp.MustCompile(`go test \./e2e\S* -run '?([\w|]+)`).FindStringSubmatch(line); m != nil {
			for pattern := range strings.SplitSeq(m[1], "|") {
				if !strings.Contains(tests, pattern) {
					t.Errorf("%s: no test is called %s: %s", page, pattern, line)
				}
			}
		}
		if m := regexp.MustCompile(`^(?:sh )?((?:e2e|packaging|docs|reaper|signals|orphans|pdeath)/[\w./-]*\w)$`).FindStringSubmatch(line); m != nil {
			if _, err := os.Stat("../" + m[1]); err != nil {
				t.Errorf("%s: %v", page, err)
			}
		}
		// With --version in front flags are read, and no command is started.
		if words, ok := strings.CutPrefix(line, "fini "); ok && !strings.ContainsAny(words, "[…") && !strings.Contains(words, "...") {
			args := append([]string{"--version"}, strings.Fields(words)...)
			if out, err := exec.Command(rig.Fini, args...).CombinedOutput(); err != nil {
				t.Errorf("%s: fini %s: %s", page, words, out)
			}
		}
	}
	for _, page := range pages(t) {
		text := rig.ReadFile(t, page)
		for _, m := range inline.FindAllStringSubmatch(regexp.MustCompile("(?s)\n```.*?\n```").ReplaceAllString(text, ""), -1) {
			check(page, m[1])
		}
		for line := range strings.Lines(text) {
			if code, indented := strings.CutPrefix(line, "    "); indented {
				check(page, strings.TrimSpace(code))
			}
		}
		for _, b := range recipes.BlocksOf(t, page) {
			if b.Kind == "sh" || b.Kind == "make" {
				for line := range strings.Lines(b.Text) {
					check(page, strings.TrimSpace(line))
				}
			}
		}
	}
}

// The version that the pages install is this one.
func TestPagesVersion(t *testing.T) {
	t.Parallel()
	version := strings.Fields(rig.Run(t, rig.Fini, "--version"))[2]
	found := 0
	for _, page := range pages(t) {
		if strings.HasSuffix(page, "CHANGELOG.md") {
			continue
		}
		for _, m := range regexp.MustCompile(`(?:fini:|@v|version: )(\d+\.\d+\.\d+)`).FindAllStringSubmatch(rig.ReadFile(t, page), -1) {
			if found++; m[1] != version {
				t.Errorf("%s: %s, but this is version %s", page, m[0], version)
			}
		}
	}
	if found < 5 {
		t.Errorf("found it only %d times", found)
	}
}

// What a page shows at a prompt prints what it says.
func TestPagesExamples(t *testing.T) {
	t.Parallel()
	ran := 0
	for _, page := range append(pages(t), "../docs/fini.1") {
		for _, b := range recipes.BlocksOf(t, page) {
			command, want, _ := strings.Cut(b.Text, "\n")
			if b.Kind == "dockerfile" && strings.HasPrefix(command, "COPY ") || b.Kind != "console" &&
				strings.HasSuffix(page, ".md") { // see releaseImage, TestRecipes
				continue
			}
			if command, ok := strings.CutPrefix(command, "$ "); ok {
				mustPrint(t, command, want)
				ran++
			} else {
				t.Errorf("%s: no prompt: %s", page, command)
			}
		}
	}
	if ran < 8 {
		t.Errorf("only %d examples found", ran)
	}
}

// mustPrint runs a command of a page and asserts that it prints what the page says, pids
// aside, and leaves nothing.
func mustPrint(t *testing.T, command, want string) {
	t.Helper()
	k := recipes.NewDir(t, nil)
	// A leftover is named by what it becomes, for which it may need longer than the default.
	k.Env = append(k.Env, "FINI_LINGER=5s")
	// At a terminal it is not a pipe either that both streams go to. The command's status is no matter.
	k.MustLeaveNothing(k.Start("/bin/sh", "-c", "exec >>out 2>&1\n"+command+"\n:"), 0)
	out := []byte(rig.ReadFile(t, filepath.Join(k.Dir, "out")))
	got := regexp.MustCompile(`(leftover|running) \d+`).ReplaceAllString(string(rig.Ageless(out)), "$1 4242")
	got = regexp.MustCompile(`, for \d+s,`).ReplaceAllString(got, ", for 3s,")
	// Two processes write, each when it is given the processor.
	if recipes.SortedLines(got) != recipes.SortedLines(want) {
		t.Errorf("%s\nprints %q\nthe page says %q", command, got, want)
	}
}

// What is refused in the tests is in the table, with what is lost then, or among the calls without which nothing is lost.
func TestPagesRefused(t *testing.T) {
	t.Parallel()
	page := strings.Join(strings.Fields(rig.ReadFile(t, "../docs/platforms.md")), " ")
	_, needless, _ := strings.Cut(page, "You lose nothing if these are refused: ")
	needless, _, _ = strings.Cut(needless, ". ")
	for _, r := range refusals.Rows {
		if r.Lost == "nothing" && !strings.Contains(needless, r.Refused) {
			t.Errorf("docs/platforms.md does not say that nothing is lost without %s", r.Refused)
		}
		if row := "| " + r.Refused + " | " + r.Lost + " |"; r.Lost != "nothing" && !strings.Contains(page, row) {
			t.Errorf("not in docs/platforms.md: %s", row)
		}
	}
}

// The picture of the rooms shows the packages, and what they import.
func TestPagesRooms(t *testing.T) {
	t.Parallel()
	if got := rig.Run(t, "sh", "-c", "cd .. && go run ./tools/rooms"); got != rig.ReadFile(t, "../docs/rooms.svg") {
		t.Error("docs/rooms.svg is an old picture: run make rooms")
	}
}

// The pages for developers name only functions, types and fields that exist.
func TestPagesNames(t *testing.T) {
	t.Parallel()
	code := rig.Run(t, "sh", "-c", `cd .. && cat main.go $(find internal orphans pdeath reaper signals e2e/rig tools -name '*.go')`)
	for _, page := range []string{"CONTRIBUTING.md", "docs/architecture.md", "internal/life/README.md"} {
		names := regexp.MustCompile("`(?:\\w+\\.)*(\\w*[a-z][A-Z]\\w*)`").FindAllStringSubmatch(rig.ReadFile(t, "../"+page), -1)
		for _, name := range names {
			if !regexp.MustCompile(`\b` + name[1] + `\b`).MatchString(code) {
				t.Errorf("%s names %s, which does not exist", page, name[1])
			}
		}
	}
}

// make demo shows that a reader waits for the server without fini, and what fini says of it.
func TestDemo(t *testing.T) {
	t.Parallel()
	text := rig.Run(t, "sh", "../tools/demo.sh", rig.Fini)
	waits := regexp.MustCompile(`read after (\d+) ms: end of file`).FindAllStringSubmatch(text, -1)
	if len(waits) != 2 || strings.Count(text, "stderr: fini: stopping leftover ") != 1 || len(waits[0][1]) < 4 {
		t.Error(text)
	}
}

// The README's times of a start are those that `make bench` has measured.
func TestReadmeStartTimes(t *testing.T) {
	t.Parallel()
	readme, measured := rig.ReadFile(t, "../README.md"), rig.ReadFile(t, "../tools/bench/bench.csv")
	var cells []string
	for _, program := range []string{"fini", "tini-static -s -g", "dumb-init", "", "bwrap --die-with-parent --unshare-pid"} {
		if program == "" {
			cells = append(cells, "")
			continue // timeout isn't measured
		}
		m := regexp.MustCompile("(?m)^wall time of `true`,ms," + regexp.QuoteMeta(program) + `,([\d.]+),`).FindStringSubmatch(measured)
		if m == nil {
			t.Fatalf("bench.csv has no %s", program)
		}
		ms, _ := strconv.ParseFloat(m[1], 64)
		cells = append(cells, fmt.Sprintf(" %.1f ms", ms))
	}
	if row := "(docs/performance.md) |" + strings.Join(cells, " |") + " |\n"; !strings.Contains(readme, row) {
		t.Errorf("no row %q", row)
	}
}

// The table of docs/performance.md is what `make bench` has measured.
func TestPagesMeasured(t *testing.T) {
	t.Parallel()
	page := rig.ReadFile(t, "../docs/performance.md")
	file, err := os.Open("../tools/bench/bench.csv")
	rig.NoError(t, err)
	defer file.Close()
	records, err := csv.NewReader(file).ReadAll()
	rig.NoError(t, err)
	_, head, _ := strings.Cut(page, "\n| what | `")
	head, _, _ = strings.Cut(head, "` |\n")
	for _, row := range []struct{ what, measure, format string }{
		{"run `true`", "wall time of `true`", "%.1f ms"},
		{"CPU time for that", "CPU time of `true`", "%.1f ms"},
		{"exit after the command's exit", "main child's end to the init's end", "%.1f ms"},
		{"forward a signal", "forwarded signal", "%.0f µs"},
		{"private memory", "private dirty memory", "%.0f kB"},
		{"wake-ups in ten idle seconds", "context switches while idle", "%.0f"},
	} {
		line := "| " + row.what + " |"
		for program := range strings.SplitSeq(head, "` | `") {
			i := slices.IndexFunc(records, func(r []string) bool { return r[0] == row.measure && r[2] == program })
			if i < 0 { // such as a signal that bwrap doesn't forward
				line += " |"
				continue
			}
			median, err := strconv.ParseFloat(records[i][3], 64)
			rig.NoError(t, err)
			line += fmt.Sprintf(" "+row.format+" |", median)
		}
		if !strings.Contains(page, line+"\n") {
			t.Errorf("docs/performance.md has no line %s", line)
		}
	}
}

// The README's size of the binary is its size.
func TestReadmeSize(t *testing.T) {
	t.Parallel()
	need.That(t, runtime.GOARCH == "amd64", "the architecture that README speaks of")
	info, err := os.Stat(rig.Fini)
	m := regexp.MustCompile(`static binary of ([\d.]+) MB `).FindStringSubmatch(rig.ReadFile(t, "../README.md"))
	if err != nil || m == nil {
		t.Fatal(err, m)
	}
	if size, _ := strconv.ParseFloat(m[1], 64); math.Abs(size*1e6-float64(info.Size())) > 1e5 {
		t.Errorf("README says %s MB, and it has %d bytes", m[1], info.Size())
	}
}

// internal/NOTICES, which is in the binary, has the licenses of what is linked in.
func TestNotices(t *testing.T) {
	rig.Long(t)
	t.Parallel()
	cmd := exec.Command(recipes.Packaging(t), "notices")
	cmd.Dir = ".."
	want, err := cmd.Output()
	rig.NoError(t, err)
	if got := rig.ReadFile(t, "../internal/NOTICES"); got != string(want) {
		t.Error("internal/NOTICES is not what `packaging notices` prints")
	}
}
