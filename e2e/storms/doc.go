// Package storms holds that no signal is lost, however many come at a time, and that fini's time and threads stay bounded,
// however many leftovers it stops. That its memory does is in room hostile.
package storms
