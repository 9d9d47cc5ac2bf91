package life

import (
	"fmt"
	"slices"
	"time"
)

// This file has the end of the sweep: the status that the rules make of the command's, and what fini says last.

// finish ends the life with the status that follows from the command's status and the flags.
func (s *sweep) finish(do ...action) ([]action, Machine) {
	end := End{Result: s.result, Leaks: Leaks{Count: s.count - s.unsure, Left: s.stage == counting}}
	do = append(do, s.spared...)
	did, leaks := "stopped", fmt.Sprintf("%d leftovers", end.Count)
	if end.Left {
		did = "left"
	}
	if end.Count == 1 {
		leaks = "1 leftover"
	}
	if s.count > MaxNamed {
		do = append(do, say{level: Normal, text: fmt.Sprintf("%s %d leftovers in all", did, s.count)})
	}
	if s.ignored > 1 {
		text := fmt.Sprintf("ignored at least %d signals from inside this PID namespace in all", s.ignored)
		do = append(do, say{level: Normal, text: text})
	}
	if slices.Contains(s.Remap, end.Status()) {
		end.Result = Result{}
	}
	if end.Status() == 0 && end.Count > 0 && s.OrphansExit > 0 {
		end.Code, end.Decided = s.OrphansExit, true
		text := fmt.Sprintf("exit %d instead of 0: --orphans-exit, %s", s.OrphansExit, leaks)
		do = append(do, say{level: Always, text: text})
	}
	return append(do, exit{end}), nil
}

// gaveUp says which leftovers are left, after SIGKILL and the time for that.
func (s *sweep) gaveUp(now time.Duration, pids []int) action {
	text := fmt.Sprintf("gave up on leftovers that do not exit: %v", pids)
	if s.stopBy != 0 && now > s.stopBy {
		text += fmt.Sprintf(", so --stop-within=%v was not kept", s.StopWithin)
	}
	return say{level: Always, text: text}
}
