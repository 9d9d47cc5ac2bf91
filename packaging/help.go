package main

import (
	"embed"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"text/template"
)

// An option is a flag as `fini --help` shows it.
type option struct {
	Short []string // letters
	Long  string
	No    bool   // there is --no-LONG too
	Value string // what it takes, such as DUR; empty for nothing
	Maybe bool   // the value may be left out, and then is no word of its own
	Text  string
}

var (
	optionLine = regexp.MustCompile(`^ +(-\S(?:.*?))(?:  +(.*))?$`)
	optionWord = regexp.MustCompile(`^(?:-([A-Za-z])|--(\[no-\])?([a-z][a-z-]*))(\[)?(?:=([A-Za-z:|,\[\]]+))?\]?$`)
)

// options reads the flags in the text of --help. Each begins a line, two spaces before what it
// does, which may go on in the lines behind it.
func options(help string) (all []option) {
	column := 0 // in which the text of the flag before this line begins
	for line := range strings.Lines(help) {
		line = strings.TrimRight(line, "\n")
		indent := len(line) - len(strings.TrimLeft(line, " "))
		m := optionLine.FindStringSubmatch(line)
		if m == nil {
			if last := len(all) - 1; column > 0 && indent == column {
				all[last].Text = strings.TrimSpace(all[last].Text + " " + strings.TrimSpace(line))
			} else {
				column = 0
			}
			continue
		}
		o := option{Text: m[2]}
		if column = len(line) - len(m[2]); m[2] == "" {
			column = 0
		}
		for word := range strings.SplitSeq(m[1], ", ") {
			w := optionWord.FindStringSubmatch(word)
			if w == nil {
				check(fmt.Errorf("cannot read the flag %q of --help", word))
			}
			if w[1] != "" {
				o.Short = append(o.Short, w[1])
			} else {
				o.Long, o.No = w[3], w[2] != ""
			}
			if w[5] != "" {
				o.Value, o.Maybe = w[5], w[4] != ""
			}
		}
		all = append(all, o)
	}
	if len(all) == 0 {
		check(errors.New("no flag in the text of --help"))
	}
	return all
}

// takeValue names the flags whose value may be the next word.
func takeValue(all []option) (names []string) {
	for _, o := range all {
		if o.Value == "" || o.Maybe {
			continue
		}
		names = append(names, o.Short...)
		if o.Long != "" {
			names = append(names, o.Long)
		}
	}
	return names
}

//go:embed completions
var completions embed.FS

var shells = []string{"bash", "zsh", "fish"}

// completion writes the completion of fini's command line for a shell.
func completion(w io.Writer, shell, helpFile string) error {
	help := must(os.ReadFile(helpFile))
	all := options(string(help))
	name := "fini." + shell
	t, err := template.New(name).Funcs(template.FuncMap{
		"join": strings.Join,
		// kind says how a shell completes a value.
		"kind": func(value string) string {
			switch value {
			case "SIG", "POLICY", "FILE", "PATH", "PID":
				return value
			}
			return "" // anything
		},
		"letters": func(withValue bool) string {
			var letters strings.Builder
			for _, o := range all {
				if (o.Value != "" && !o.Maybe) == withValue {
					letters.WriteString(strings.Join(o.Short, ""))
				}
			}
			return letters.String()
		},
		// brief shortens the text of a flag, and quotes it for single quotes and zsh's brackets.
		"brief": func(text string) string {
			text, _, _ = strings.Cut(text, ";")
			text, _, _ = strings.Cut(text, " (")
			return strings.NewReplacer("'", `'\''`, "[", "", "]", "").Replace(text)
		},
		"title": func(value string) string { return strings.NewReplacer(":", " ", "|", " ").Replace(value) },
	}).ParseFS(completions, "completions/"+name)
	if err != nil {
		return err
	}
	return t.Execute(w, all)
}
