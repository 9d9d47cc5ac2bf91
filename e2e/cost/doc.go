// Package cost holds what fini costs: the time of a start, threads, memory, system calls and wake-ups, and that
// an idle fini costs nothing.
package cost
