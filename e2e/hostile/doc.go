// Package hostile holds the second half of promise 9: no hanging file system, no tracer, no stuck process and
// no reader that sleeps keeps fini from its bounds.
package hostile
