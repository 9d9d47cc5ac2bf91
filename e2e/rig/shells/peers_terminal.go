package shells

import (
	"strings"
)

// Answers reports whether a case's question is answered with yes: what is typed has the effect that
// is waited for; or the screen is the same as without an init; or nothing is left alive.
func (c typedCase) Answers(bare, with Sitting) bool {
	switch c.Part {
	case "screen":
		return bare.Unlike(with, c) == ""
	case "survivors":
		return with.Broken == "" && with.left == "" && with.after == ""
	}
	return with.Broken == "" && strings.Contains(with.Screen, c.shows) && (c.never == "" || !strings.Contains(with.Screen, c.never))
}
