// Command schema holds JSON documents against a JSON schema, for the tests:
//
//	schema FILE <documents
//
// For each document of its standard input it prints one line: "valid", or what is wrong with it.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

func main() {
	if len(os.Args) != 2 {
		must(errors.New("want the file of a schema"))
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat() // times are times
	schema, err := c.Compile(os.Args[1])
	must(err)
	documents := json.NewDecoder(os.Stdin)
	documents.UseNumber()
	for {
		var document any
		if err := documents.Decode(&document); err == io.EOF {
			return
		} else {
			must(err)
		}
		verdict := "valid"
		if err := schema.Validate(document); err != nil {
			verdict = strings.ReplaceAll(err.Error(), "\n", " ")
		}
		_, err := fmt.Println(verdict)
		must(err)
	}
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "schema:", err)
		os.Exit(1)
	}
}
