// Package isolation holds docs/isolation.md: --isolate gives the tree a PID namespace, and nothing of that is
// seen outside.
package isolation
