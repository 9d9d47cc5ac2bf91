package report

import (
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/seed-126c5d8a/fini/internal/proc"
	"github.com/seed-126c5d8a/fini/orphans"
)

func TestDescribe(t *testing.T) {
	const wide = 1000
	in := func(p orphans.Process, session int, holds orphans.Streams) orphans.Process {
		p.Session, p.Holds = session, holds
		return p
	}
	plain := process(4242, 1, "sleep")
	long := strings.Repeat("x", 500)
	aged := func(age time.Duration) orphans.Process {
		p := plain
		p.Start = max(proc.Uptime()-age, 1) // the machine may have been booted a moment ago
		return p
	}
	for what, c := range map[string]struct {
		p       orphans.Process
		command string
		chain   []orphans.Process
		limit   int
		want    string
	}{
		"plain":             {plain, "sleep 100", nil, wide, "4242 (sleep 100)"},
		"young":             {aged(worthSaying / 2), "sleep 100", nil, wide, "4242 (sleep 100)"},
		"not young":         {aged(worthSaying + time.Second/2), "sleep 100", nil, wide, "4242 (sleep 100), 10s old"},
		"started by one":    {plain, "a", []orphans.Process{process(7, 1, "sh")}, wide, "4242 (a), started by sh"},
		"started by more":   {plain, "a", []orphans.Process{process(7, 6, "sh"), process(6, 5, "npm"), process(5, 1, "node")}, wide, "4242 (a), started by sh < npm < node"},
		"odd starter":       {plain, "a", []orphans.Process{process(7, 6, "a\n\x1b[31m"), process(6, 1, "\xff)")}, wide, "4242 (a), started by a??[31m < \ufffd)"},
		"holds stdout":      {in(plain, 1, orphans.Stdout), "a", nil, wide, "4242 (a), which holds stdout"},
		"holds stderr":      {in(plain, 1, orphans.Stderr), "a", nil, wide, "4242 (a), which holds stderr"},
		"holds both":        {in(plain, 1, orphans.Stdout|orphans.Stderr), "a", nil, wide, "4242 (a), which holds stdout and stderr"},
		"may not be asked":  {in(plain, 1, orphans.Unknown), "a", nil, wide, "4242 (a)"},
		"escapee":           {in(plain, 4242, 0), "a", nil, wide, "4242 (a), detached"},
		"escapee holds":     {in(plain, 4000, orphans.Stdout), "a", []orphans.Process{process(7, 1, "sh")}, wide, "4242 (a), detached, started by sh, which holds stdout"},
		"session not known": {in(plain, 0, 0), "a", nil, wide, "4242 (a)"},
		"odd command":       {plain, "a\nb\x1b[31m\xff\r", nil, wide, "4242 (a?b?[31m\ufffd?)"},
		"GitHub's command":  {plain, "a ##[stop-commands]b ###", nil, wide, "4242 (a #?[stop-commands]b #?#)"},
		"Azure's command":   {plain, "a ##vso[task.complete]", nil, wide, "4242 (a #?vso[task.complete])"},
		"fits":              {plain, strings.Repeat("x", 33), nil, 40, "4242 (" + strings.Repeat("x", 33) + ")"},
		"is cut":            {plain, strings.Repeat("x", 34), nil, 40, "4242 (" + strings.Repeat("x", 30) + "...)"},
		"is cut for more":   {in(plain, 1, orphans.Stdout), long, nil, 60, "4242 (" + strings.Repeat("x", 60-7-20-3) + "...), which holds stdout"},
		"never below 20":    {in(plain, 1, orphans.Stdout), long, nil, 10, "4242 (" + strings.Repeat("x", 17) + "...), which holds stdout"},
		"is cut at a rune":  {plain, strings.Repeat("é", 40), nil, 40, "4242 (" + strings.Repeat("é", 15) + "...)"},
		"odd name at a cut": {plain, strings.Repeat("\x01", 40), nil, 40, "4242 (" + strings.Repeat("?", 30) + "...)"},
	} {
		t.Run(what, func(t *testing.T) {
			var from Lineage
			for _, p := range c.chain {
				from.Chain = append(from.Chain, Ancestor{Pid: p.Pid, Name: p.Name})
			}
			got := strings.Replace(Describe(c.p, c.command, 1, from, c.limit), ", 11s old", ", 10s old", 1) // on a busy machine
			if got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
			if !utf8.ValidString(got) || strings.ContainsAny(got, "\n\r\x1b") {
				t.Errorf("is not printed as itself: %q", got)
			}
		})
	}
}

func TestStartedBy(t *testing.T) {
	type ancestor = Ancestor
	for want, o := range map[string]Lineage{
		"":                     {},
		", started in step x":  {During: "step x"},
		", started by sh < sh": {Chain: []ancestor{{Pid: 7, Name: "sh"}, {Pid: 6, Name: "sh"}}},
		", started by sh < 6 (npm run dev) < node in test a?b": {
			Chain: []ancestor{{Pid: 7, Name: "sh"}, {Pid: 6, Name: "npm"}, {Pid: 5, Name: "node"}},
			Owner: &Owner{Ancestor: ancestor{Pid: 6, Name: "npm"}, Command: "npm run dev"}, During: "test a\nb",
		},
	} {
		if got := startedBy(o); got != want {
			t.Errorf("%+v: %q, want %q", o, got, want)
		}
	}
	if got := startedBy(Lineage{During: strings.Repeat("x", 999)}); len(got) > 250 {
		t.Errorf("%d bytes of a line", len(got))
	}
}

func TestWhereIs(t *testing.T) {
	for want, at := range map[string]orphans.Details{
		"":                                      {Listens: []string{}, Dir: "/srv/app"},
		", listens on 127.0.0.1:3000":           {Listens: []string{"127.0.0.1:3000"}},
		", listens on a and b and c":            {Listens: []string{"a", "b", "c"}},
		", listens on a and b and c and 2 more": {Listens: []string{"a", "b", "c", "d", "e"}},
		", in /srv/app":                         {Dir: "/srv/app", OtherDir: true},
		", listens on @?[31m, in /a?b": {
			Listens: []string{"@\x1b[31m"}, Dir: "/a\nb", OtherDir: true,
		},
	} {
		if got := whereIs(at); got != want {
			t.Errorf("%+v: %q, want %q", at, got, want)
		}
	}
	long := orphans.Details{Listens: slices.Repeat([]string{strings.Repeat("x", 108)}, 16), Dir: strings.Repeat("x", 1000), OtherDir: true}
	if got := whereIs(long); len(got) > 500 {
		t.Errorf("%d bytes of a line", len(got))
	}
}
