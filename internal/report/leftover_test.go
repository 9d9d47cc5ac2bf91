package report

import (
	"fmt"
	"os"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seed-126c5d8a/fini/internal/calls"
	"github.com/seed-126c5d8a/fini/internal/orphans"
	"github.com/seed-126c5d8a/fini/internal/tests/check"
)

func TestDescribe(t *testing.T) {
	const wide = 1000
	in := func(session int, held orphans.Streams) orphans.Process {
		return orphans.Process{Pid: 4242, Session: session, Holds: orphans.Holds(held), State: 'S', User: os.Geteuid()}
	}
	opaque := in(1, 0)
	opaque.Holds = orphans.Holding{}
	hidden := opaque
	hidden.State = '?'
	plain, long := in(1, 0), strings.Repeat("x", 500)
	aged := func(age time.Duration) orphans.Process {
		p := plain
		p.Start = max(calls.Uptime()-age, 1) // the machine may have been booted a moment ago
		return p
	}
	for what, c := range map[string]struct {
		p       orphans.Process
		command string
		limit   int
		want    string
	}{
		"plain":             {plain, "sleep 100", wide, "4242 (sleep 100)"},
		"young":             {aged(worthSaying / 2), "sleep 100", wide, "4242 (sleep 100)"},
		"not young":         {aged(worthSaying + time.Second/2), "sleep 100", wide, "4242 (sleep 100), 10s old"},
		"holds stdout":      {in(1, orphans.Stdout), "a", wide, "4242 (a), which holds stdout"},
		"holds stderr":      {in(1, orphans.Stderr), "a", wide, "4242 (a), which holds stderr"},
		"holds both":        {in(1, orphans.Stdout|orphans.Stderr), "a", wide, "4242 (a), which holds stdout and stderr"},
		"may hold both":     {opaque, "a", wide, "4242 (a), which may hold stdout and stderr: fini can't see its descriptors"},
		"is not to be seen": {hidden, "a", wide, "4242 (a)"},
		"escapee":           {in(4242, 0), "a", wide, "4242 (a), detached"},
		"session not known": {in(0, 0), "a", wide, "4242 (a)"},
		"odd command":       {plain, "a\nb\x1b[31m\xff\r", wide, "4242 (a?b?[31m\ufffd?)"},
		"GitHub's command":  {plain, "a ##[stop-commands]b ###", wide, "4242 (a #?[stop-commands]b #?#)"},
		"Azure's command":   {plain, "a ##vso[task.complete]", wide, "4242 (a #?vso[task.complete])"},
		"fits":              {plain, long[:33], 40, "4242 (" + long[:33] + ")"},
		"is cut":            {plain, long[:34], 40, "4242 (" + long[:30] + "...)"},
		"is cut for more":   {in(1, orphans.Stdout), long, 60, "4242 (" + long[:60-7-20-3] + "...), which holds stdout"},
		"never below 20":    {in(1, orphans.Stdout), long, 10, "4242 (" + long[:17] + "...), which holds stdout"},
		"is cut at a rune":  {plain, strings.Repeat("é", 40), 40, "4242 (" + strings.Repeat("é", 15) + "...)"},
		"odd name at a cut": {plain, strings.Repeat("\x01", 40), 40, "4242 (" + strings.Repeat("?", 30) + "...)"},
	} {
		t.Run(what, func(t *testing.T) {
			got := regexp.MustCompile(`, 1\ds old`).ReplaceAllString(Describe(c.p, c.command, 1, Lineage{}, c.limit), ", 10s old") // on a busy machine
			check.Equal(t, "the line", got, c.want)
		})
	}
	from := Lineage{Chain: []Ancestor{{7, "sh"}}, At: orphans.Details{Listens: []string{"a"}}}
	const want = "4242 (a), detached, started by sh, listens on a, which holds stdout"
	check.Equal(t, "all of it", Describe(in(4000, orphans.Stdout), "a", 1, from, wide), want)

	// For another user than root, root is one to name. This thread changes its user, and ends with the test.
	runtime.LockOSThread()
	if root := os.Geteuid() == 0; root {
		_, _, errno := syscall.RawSyscall(syscall.SYS_SETRESUID, ^uintptr(0), 65534, ^uintptr(0))
		check.Equal(t, "it can be another user", errno == 0, true)
	}
	roots := in(1, 0)
	roots.User = 0
	check.Equal(t, "root's", Describe(roots, "a", 1, Lineage{}, wide), "4242 (a), as user 0")
}

func TestStartedBy(t *testing.T) {
	npm, x := Ancestor{6, "npm"}, strings.Repeat("x", 999)
	for want, o := range map[string]Lineage{
		"":                               {},
		", started in step x":            {During: "step x"},
		", started by sh < sh":           {Chain: []Ancestor{{7, "sh"}, {6, "sh"}}},
		", started by a??[31m < \ufffd)": {Chain: []Ancestor{{7, "a\n\x1b[31m"}, {6, "\xff)"}}},
		", started by sh < 6 (npm run dev) < node in test a?b": {
			Chain: []Ancestor{{7, "sh"}, npm, {5, "node"}}, Owner: &Owner{npm, "npm run dev"}, During: "test a\nb",
		},
		", started by 6 (" + x[:57] + "...) < " + x[:13] + "... in " + x[:197] + "...": {
			Chain: []Ancestor{npm, {5, x}}, Owner: &Owner{npm, x}, During: x,
		},
	} {
		check.Equal(t, fmt.Sprintf("%+v", o), startedBy(o), want)
	}
}

func TestWhereIs(t *testing.T) {
	x := strings.Repeat("x", 999)
	for want, at := range map[string]orphans.Details{
		"":                                      {Listens: []string{}, Dir: "/srv/app"},
		", listens on tcp 127.0.0.1:3000":       {Listens: []string{"127.0.0.1:3000"}},
		", listens on a and b and c":            {Listens: []string{"a", "b", "c"}},
		", listens on a and b and c and 2 more": {Listens: []string{"a", "b", "c", "d", "e"}},
		", in /srv/app":                         {Dir: "/srv/app", OtherDir: true},
		", listens on @?[31m, in /a?b":          {Listens: []string{"@\x1b[31m"}, Dir: "/a\nb", OtherDir: true},
		", listens on " + x[:107] + "..., in " + x[:97] + "...": {Listens: []string{x}, Dir: x, OtherDir: true},
	} {
		check.Equal(t, fmt.Sprintf("%+v", at), whereIs(at), want)
	}
}
