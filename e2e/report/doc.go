// Package report holds docs/report.schema.json: the JSON record of a life. It also holds the words of a leftover's line, and the
// test or process that a leak belongs to. An unprivileged tree cannot make fini write elsewhere.
//
// The file system of --report can't be unmounted before fini exits.
package report
