module github.com/seed-126c5d8a/fini

go 1.26.0

require (
	github.com/alecthomas/kong v1.17.0
	golang.org/x/sys v0.49.0
)
