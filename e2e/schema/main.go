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
	if err := run(os.Args[1:], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "schema:", err)
		os.Exit(1)
	}
}

func run(args []string, in io.Reader, out io.Writer) error {
	if len(args) != 1 {
		return errors.New("want the file of a schema")
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat() // times are times
	schema, err := c.Compile(args[0])
	if err != nil {
		return err
	}
	documents := json.NewDecoder(in)
	documents.UseNumber()
	for {
		var document any
		if err := documents.Decode(&document); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		verdict := "valid"
		if err := schema.Validate(document); err != nil {
			verdict = strings.ReplaceAll(err.Error(), "\n", " ")
		}
		if _, err := fmt.Fprintln(out, verdict); err != nil {
			return err
		}
	}
}
