// Command flags writes everything that lists fini's flags, from the struct that fini reads its command line into: the
// man page's OPTIONS, README's table, the completions, and what the npm
// package knows. It runs at the top of the repository: see `make flags`.
package main

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"text/template"

	"github.com/alecthomas/kong"

	"github.com/seed-126c5d8a/fini/internal/cli"
)

// source has the struct.
const source = "internal/cli/flags.go"

//go:embed fini.*.tmpl
var templates embed.FS

func main() {
	files, err := generate()
	for name, text := range files {
		if err == nil {
			err = os.WriteFile(name, text, 0o644)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "flags:", err)
		os.Exit(1)
	}
}

// A flag is a field of the struct.
type flag struct {
	*kong.Flag
	Letters []string // such as -p
	Long    string   // with what it takes, such as --pdeathsig=SIG; "" if it has only letters
	Preset  string   // the value by default, if there is one
	Common  bool     // README lists it
	More    string   // what the field's comment says after Help
}

// Letter returns the letters without their dash.
func (f flag) Letter() (all []string) {
	for _, letter := range f.Letters {
		all = append(all, letter[1:])
	}
	return all
}

func (f flag) Negatable() bool { return f.Tag.Negatable != "" }

// flags returns the flags of fini, in the order of the struct.
func flags() ([]flag, error) {
	comments, err := comments()
	if err != nil {
		return nil, err
	}
	var flags []flag
	of := reflect.TypeFor[cli.Options]()
	for i, known := range cli.Flags() {
		f := flag{Flag: known, Preset: known.Tag.Get("preset"), Common: known.Tag.Has("common")}
		first, more, _ := strings.Cut(comments[of.Field(i).Name]+" ", ". ")
		if first == "" {
			return nil, fmt.Errorf("%s: %s has no comment", source, of.Field(i).Name)
		}
		f.Help, f.More = strings.ToLower(first[:1])+first[1:], strings.TrimSpace(more)
		if known.HasDefault {
			f.Preset = known.Default
		}
		if known.Short != 0 {
			f.Letters = append(f.Letters, "-"+string(known.Short))
		}
		for _, alias := range known.Aliases {
			f.Letters = append(f.Letters, "-"+alias)
		}
		switch {
		case len(f.Name) == 1:
		case f.Negatable():
			f.Long = "--[no-]" + f.Name
		case f.PlaceHolder != "":
			f.Long = "--" + f.Name + "=" + f.PlaceHolder
		default:
			f.Long = "--" + f.Name
		}
		flags = append(flags, f)
	}
	return flags, nil
}

// generate returns the content of each file that lists the flags.
func generate() (map[string][]byte, error) {
	files := map[string][]byte{}
	flags, err := flags()
	if err != nil {
		return nil, err
	}
	var valued []string
	for _, f := range flags {
		if f.PlaceHolder != "" {
			valued = append(append(valued, f.Letter()...), f.Name)
		}
	}
	files["internal/cli/help.txt"] = []byte(help(flags))
	slices.SortStableFunc(flags, func(a, b flag) int { return place(a) - place(b) })
	if files["packaging/npm/flags.json"], err = json.Marshal(valued); err != nil {
		return nil, err
	}
	files["packaging/npm/flags.json"] = append(files["packaging/npm/flags.json"], '\n')
	for _, shell := range []string{"bash", "zsh", "fish"} {
		if files["packaging/completions/fini."+shell], err = completion(shell, flags); err != nil {
			return nil, err
		}
	}
	for name, lists := range map[string]struct {
		begin, end string
		rows       func([]flag) string
	}{
		"docs/fini.1": {".\\\" Flags begin here: see make flags.\n", ".\\\" Flags end here.\n", manual},
		"README.md":   {"| flag | default | meaning |\n| --- | --- | --- |\n", "\n", table},
	} {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		before, rest, found := strings.Cut(string(text), lists.begin)
		if !found {
			return nil, fmt.Errorf("%s: no place for the flags", name)
		}
		i := 0 // the end of a table is an empty line
		if lists.end != "\n" {
			i = strings.Index(rest, lists.end)
		} else {
			i = strings.Index(rest, "\n\n") + 1
		}
		files[name] = []byte(before + lists.begin + lists.rows(flags) + rest[i:])
	}
	return files, nil
}

// groups are the groups of flags, in the order of help.
var groups = []struct{ key, title string }{
	{"stop", "When fini stops the command"},
	{"leftovers", "What happens to leftovers"},
	{"signals", "Signals"},
	{"status", "Status and report"},
	{"other", "Other"},
}

// place is the place of a flag's group.
func place(f flag) int {
	return slices.IndexFunc(groups, func(g struct{ key, title string }) bool { return g.key == f.Group.Key })
}

// comments returns the comments of the struct's fields.
func comments() (map[string]string, error) {
	file, err := parser.ParseFile(token.NewFileSet(), source, nil, parser.ParseComments)
	if err != nil {
		return nil, err
	}
	all := map[string]string{}
	for n := range ast.Preorder(file) {
		if spec, ok := n.(*ast.TypeSpec); ok && spec.Name.Name == "Options" {
			for _, field := range spec.Type.(*ast.StructType).Fields.List {
				all[field.Names[0].Name] = strings.Join(strings.Fields(field.Doc.Text()+field.Comment.Text()), " ")
			}
		}
	}
	return all, nil
}

// manual writes the man page's items, in mdoc(7).
func manual(flags []flag) string {
	var b strings.Builder
	for _, group := range groups {
		fmt.Fprintf(&b, ".Ss %s\n.Bl -tag -width Ds\n", group.title)
		for _, f := range flags {
			if f.Group.Key != group.key {
				continue
			}
			var words []string
			for _, letter := range f.Letters {
				words = append(words, "Fl "+letter[1:])
			}
			switch name := "Fl -" + f.Name; {
			case f.Long == "":
			case f.Negatable():
				words = append(words, "Fl - Ns Oo Cm no- Oc Ns Cm "+f.Name)
			case f.PlaceHolder != "":
				words = append(words, name+" Ns = Ns Ar "+f.PlaceHolder)
			default:
				words = append(words, name)
			}
			fmt.Fprintf(&b, ".It %s\n", strings.Join(words, " , "))
			b.WriteString(mdoc(strings.ToUpper(f.Help[:1])+f.Help[1:]+".", f.PlaceHolder))
			if f.Preset != "" {
				fmt.Fprintf(&b, "The default is %s.\n", f.Preset)
			}
			if f.More != "" {
				b.WriteString(mdoc(f.More, f.PlaceHolder))
			}
		}
		b.WriteString(".El\n")
	}
	return b.String()
}

var (
	sentence = regexp.MustCompile(`([.]) `)
	flagWord = regexp.MustCompile(`^(\(?)-(-?[a-zA-Z][a-z-]*)(=([a-z]+))?([.,;:)]*)$`)
	pageWord = regexp.MustCompile(`^([a-z]+)\(([1-8])\)([.,;:]*)$`)
	argument = regexp.MustCompile(`[A-Z]+`)
)

// mdoc marks the flags, the pages and the flag's arguments in a text, and begins a line with each sentence.
func mdoc(text, arguments string) string {
	args := argument.FindAllString(arguments, -1)
	var lines []string
	fresh := true
	macro := func(words ...string) {
		lines, fresh = append(lines, "."+strings.Join(slices.DeleteFunc(words, func(word string) bool { return word == "" }), " ")), true
	}
	for _, part := range strings.Split(sentence.ReplaceAllString(text, "$1\n"), "\n") {
		fresh = true
		for word := range strings.FieldsSeq(part) {
			bare := strings.TrimRight(word, ".,;:)")
			closing := spaced(word[len(bare):])
			if m := flagWord.FindStringSubmatch(word); m != nil && m[4] != "" {
				macro(m[1], "Fl", m[2], "Ns = Ns Cm", m[4], spaced(m[5]))
			} else if m != nil {
				macro(m[1], "Fl", m[2], spaced(m[5]))
			} else if m := pageWord.FindStringSubmatch(word); m != nil {
				macro("Xr", m[1], m[2], spaced(m[3]))
			} else if slices.Contains(args, bare) {
				macro("Ar", bare, closing)
			} else if fresh {
				lines, fresh = append(lines, word), false
			} else {
				lines[len(lines)-1] += " " + word
			}
		}
	}
	return strings.Join(lines, "\n") + "\n"
}

// spaced separates punctuation, as a macro wants it.
func spaced(marks string) string { return strings.Join(strings.Split(marks, ""), " ") }

// table writes the rows of README's table, which has the common flags. What follows a semicolon is left to the manual.
func table(flags []flag) string {
	var b strings.Builder
	quoted := regexp.MustCompile(`(^|[ (])(--?[a-z][a-z-]*|[a-z]+:[A-Z]+(?:=[A-Z]+)?)`)
	for _, f := range flags {
		if !f.Common {
			continue
		}
		names := slices.Clone(f.Letters)
		if f.Long != "" {
			names = append(names, f.Long)
		}
		for i, name := range names {
			names[i] = "`" + name + "`"
		}
		preset := f.Preset
		switch {
		case preset == "":
		case strings.Contains(preset, " "):
			preset = " " + preset
		default:
			preset = " `" + preset + "`"
		}
		said, _, _ := strings.Cut(f.Help, ";")
		fmt.Fprintf(&b, "| %s |%s | %s |\n", strings.Join(names, ", "), preset, quoted.ReplaceAllString(said, "$1`$2`"))
	}
	return b.String()
}

// completion writes the completion of fini's command line for a shell.
func completion(shell string, flags []flag) ([]byte, error) {
	name := "fini." + shell + ".tmpl"
	t, err := template.New(name).Funcs(template.FuncMap{
		"join": strings.Join,
		// kind says how a shell completes a value.
		"kind": func(f flag) string {
			switch kind, _, _ := strings.Cut(f.PlaceHolder, "["); {
			case f.Enum != "":
				return "POLICY"
			case slices.Contains([]string{"SIG", "FILE", "PATH", "PID"}, kind):
				return kind
			}
			return "" // anything
		},
		"words": func() string {
			for _, f := range flags {
				if f.Enum != "" {
					return strings.ReplaceAll(f.Enum, ",", " ")
				}
			}
			return ""
		},
		"letters": func(withValue bool) string {
			var letters strings.Builder
			for _, f := range flags {
				if (f.PlaceHolder != "") == withValue {
					letters.WriteString(strings.Join(f.Letter(), ""))
				}
			}
			return letters.String()
		},
		// brief shortens the text of a flag, and quotes it for single quotes and zsh's brackets.
		"brief": func(text string) string {
			text, _, _ = strings.Cut(text, ";")
			return strings.NewReplacer("'", `'\''`, "[", "", "]", "", ":", `\:`).Replace(text)
		},
		"title": func(value string) string {
			return strings.NewReplacer(":", " ", "|", " ", "[", " ", "]", " ").Replace(value)
		},
	}).ParseFS(templates, name)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	err = t.Execute(&b, flags)
	return b.Bytes(), err
}
