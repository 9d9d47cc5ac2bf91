package report

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/need"
	"github.com/seed-126c5d8a/fini/e2e/rig"
)

// A schema is what docs/report.schema.json makes use of.
type schema struct {
	name        string
	Description string
	Type        any // a word, or a list of words
	Const       any
	Enum        []any
	Ref         string     `json:"$ref"`
	Defs        properties `json:"$defs"`
	Properties  properties
	Items       *schema
	AnyOf       []schema
}

// properties are schemas by name, in the order of the text.
type properties []schema

func (ps *properties) UnmarshalJSON(text []byte) error {
	in := json.NewDecoder(bytes.NewReader(text))
	_, err := in.Token()
	for err == nil && in.More() {
		name, _ := in.Token()
		p := schema{name: name.(string)}
		err = in.Decode(&p)
		*ps = append(*ps, p)
	}
	return err
}

// A typeWriter writes a schema as TypeScript. Definitions that are objects have a name of their own.
type typeWriter struct {
	t     *testing.T
	defs  properties
	named map[string]string
}

// of is the type that a schema describes, on lines that are indented like this.
func (w *typeWriter) of(s *schema, indent string) string {
	var kinds []string
	words, isList := s.Type.([]any)
	if !isList && s.Type != nil {
		words = []any{s.Type}
	}
	for _, word := range words {
		kind := word.(string)
		switch kind {
		case "object":
			kind = cmp.Or(w.named[s.name], w.object(s, indent))
		case "array":
			kind = w.of(s.Items, indent)
			if strings.Contains(kind, "' | '") {
				kind = "(" + kind + ")"
			}
			kind += "[]"
		case "integer":
			kind = "number"
		}
		kinds = append(kinds, kind)
	}
	values := s.Enum
	if s.Const != nil {
		values = []any{s.Const}
	}
	for _, value := range values {
		kinds = append(kinds, strings.ReplaceAll(string(must(json.Marshal(value))), `"`, "'"))
	}
	for _, one := range append(s.AnyOf, w.defs...) {
		if one.name == "" || "#/$defs/"+one.name == s.Ref {
			kinds = append(kinds, strings.Split(w.of(&one, indent), " | ")...)
		}
	}
	isNull := func(kind string) bool { return kind == "null" }
	if slices.ContainsFunc(kinds, isNull) {
		kinds = append(slices.Compact(slices.DeleteFunc(kinds, isNull)), "null")
	}
	return strings.Join(kinds, " | ")
}

func (w *typeWriter) object(s *schema, indent string) string {
	text := "{\n"
	for _, p := range s.Properties {
		if p.Description == "" {
			w.t.Errorf("the schema does not say what %s is", p.name)
		}
		text += fmt.Sprintf("%[1]s  /** %[2]s */\n%[1]s  %[3]s: %[4]s;\n", indent, p.Description, p.name, w.of(&p, indent+"  "))
	}
	return text + indent + "}"
}

// The types of a report in TypeScript are those of the schema.
func TestReportTypes(t *testing.T) {
	t.Parallel()
	var root schema
	if err := json.Unmarshal([]byte(rig.ReadFile(t, "../docs/report.schema.json")), &root); err != nil {
		t.Fatal(err)
	}
	w := typeWriter{t, root.Defs, map[string]string{"leftover": "Leftover", "oom": "OutOfMemory"}}
	want := "// From docs/report.schema.json.\n"
	for _, p := range append(properties{root}, root.Defs...) {
		name := w.named[p.name]
		if p.name == "" {
			name = "Report"
		}
		if name != "" {
			want += fmt.Sprintf("\n/** %s */\nexport interface %s %s\n", p.Description, name, w.object(&p, ""))
		}
	}
	if got := rig.ReadFile(t, "../packaging/npm/report.d.ts"); got != want {
		t.Errorf("packaging/npm/report.d.ts is not what the schema says, which is:\n%s", want)
	}
	if !strings.Contains(rig.ReadFile(t, "../packaging/npm/index.d.ts"), "export * from './report';\n") {
		t.Error("index.d.ts does not export them")
	}
}

// TypeScript takes a real report for one, and knows each field.
func TestReportTypesInTypeScript(t *testing.T) {
	rig.Long(t)
	t.Parallel()
	node := need.Program(t, "node")
	compiler, err := filepath.Abs("node_modules/typescript/bin/tsc")
	if err == nil {
		_, err = os.Stat(compiler)
	}
	need.That(t, err == nil, "e2e/node_modules/typescript")
	k := rig.NewRecipeDir(t, nil)
	path := rig.ReportPath(t)
	l := rig.Start(t, rig.Alone, "--linger=0", "--report="+path, "--", "/bin/sh", "-c", `setsid sleep 1000 & kill -TERM $$`)
	l.MustEnd(143)
	for _, name := range []string{"index.d.ts", "report.d.ts"} {
		k.File("fini-init/"+name, rig.ReadFile(t, "../packaging/npm/"+name), 0o644)
	}
	const host = `import { wrap, type Report, type Leftover } from './fini-init/index';
const report: Report = %s;
const names: string[] = report.leftovers.map((left: Leftover) => left.command);
const reason: 'launcher' | 'fini' | 'bind' | 'stdin' | 'timeout' | 'killAfter' | null = report.stopped;
export const all = [names, reason, report.exit?.signal?.startsWith('SIG'), wrap('a').command];
`
	for name, tt := range map[string]struct{ text, fails string }{
		"right.ts":   {fmt.Sprintf(host, rig.ReadFile(t, path)), ""},
		"unknown.ts": {fmt.Sprintf(host, rig.ReadFile(t, path)) + "export const x = report.exitCode;\n", "'exitCode' does not exist"},
		"null.ts":    {fmt.Sprintf(host, rig.ReadFile(t, path)) + "export const x = report.ended.length;\n", "possibly 'null'"},
	} {
		k.File(name, tt.text, 0o644)
		out, err := exec.Command(node, compiler, "--strict", "--noEmit", "--skipLibCheck", "false", "--target", "es2022",
			"--module", "node16", "--moduleResolution", "node16", "--types", "", filepath.Join(k.Dir, name)).CombinedOutput()
		if (err == nil) != (tt.fails == "") || !strings.Contains(string(out), tt.fails) {
			t.Errorf("%s: %v: %s", name, err, out)
		}
	}
}
