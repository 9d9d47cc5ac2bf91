// Package report holds docs/report.md: the JSON record of a life, and the test or process that a leak belongs
// to. An unprivileged tree cannot make fini write elsewhere.
package report
