module github.com/seed-126c5d8a/fini

go 1.26.0

require (
	github.com/alecthomas/kong v1.17.0
	github.com/santhosh-tekuri/jsonschema/v6 v6.0.3
	golang.org/x/sys v0.49.0
)

require golang.org/x/text v0.14.0 // indirect
