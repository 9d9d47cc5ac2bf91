package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
)

// A schema is what docs/report.schema.json uses of JSON Schema.
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

// A language says how types are written.
type language struct {
	begin                 string
	words                 map[string]string
	array, choice, object string
	field, end            string
}

var (
	typeScript = language{"// From docs/report.schema.json.\n",
		map[string]string{"string": "string", "integer": "number", "number": "number", "boolean": "boolean", "null": "null"},
		"Array<%s>", "%s", "\n/** %[2]s */\nexport interface %[1]s {\n", "  /** %[3]s */\n  %[1]s: %[2]s;\n", "}\n"}
	python = language{"# From docs/report.schema.json.\n\"\"\"The types of what fini --report=FILE writes.\"\"\"\n\n" +
		"from __future__ import annotations\n\nfrom typing import Literal, TypedDict\n",
		map[string]string{"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"},
		"list[%s]", "Literal[%s]", "\n\nclass %s(TypedDict):\n    \"\"\"%s\"\"\"\n\n", "    %[1]s: %[2]s\n    \"\"\"%[3]s\"\"\"\n", ""}
)

// types are those of a report, from its schema. Each object is a type of its own, which is called like the property.
func (l language) types() []byte {
	var root schema
	check(json.Unmarshal(must(os.ReadFile("docs/report.schema.json")), &root))
	var out strings.Builder
	out.WriteString(l.begin)
	objects := []schema{root}
	objects[0].name = "report"
	for i := 0; i < len(objects); i++ { // which grows
		o := objects[i]
		fmt.Fprintf(&out, l.object, typeName(o.name), o.Description)
		for _, p := range o.Properties {
			fmt.Fprintf(&out, l.field, p.name, l.of(p, root.Defs, &objects), p.Description)
		}
		out.WriteString(l.end)
	}
	return []byte(out.String())
}

// of is the type of a schema. The objects in it are added to the list.
func (l language) of(s schema, defs properties, objects *[]schema) string {
	var kinds []string
	words, isList := s.Type.([]any)
	if !isList && s.Type != nil {
		words = []any{s.Type}
	}
	for _, word := range words {
		switch word {
		case "object":
			kinds = append(kinds, typeName(s.name))
			if !slices.ContainsFunc(*objects, func(o schema) bool { return o.name == s.name }) {
				*objects = append(*objects, s)
			}
		case "array":
			s.Items.name, s.Items.Description = strings.TrimSuffix(s.name, "s"), s.Description
			kinds = append(kinds, fmt.Sprintf(l.array, l.of(*s.Items, defs, objects)))
		default:
			kinds = append(kinds, l.words[word.(string)])
		}
	}
	var values []string
	for _, value := range append(s.Enum, s.Const) {
		if value != nil {
			values = append(values, strings.ReplaceAll(string(mustJSON(value)), `"`, "'"))
		}
	}
	if len(values) > 0 {
		separator := map[bool]string{true: " | ", false: ", "}[l.choice == "%s"]
		kinds = append(kinds, fmt.Sprintf(l.choice, strings.Join(values, separator)))
	}
	if slices.Contains(s.Enum, nil) {
		kinds = append(kinds, l.words["null"])
	}
	for _, one := range s.AnyOf {
		one.name, one.Description = s.name, s.Description
		kinds = append(kinds, l.of(one, defs, objects))
	}
	for _, def := range defs {
		if s.Ref == "#/$defs/"+def.name {
			kinds = append(kinds, l.of(def, defs, objects))
		}
	}
	return strings.Join(slices.Compact(kinds), " | ")
}

func typeName(name string) string {
	if name == "oom" {
		return "OutOfMemory"
	}
	return strings.ToUpper(name[:1]) + name[1:]
}
