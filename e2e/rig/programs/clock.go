package programs

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// runClock prints the monotonic clock and ends.
func runClock([]string) int {
	fmt.Println("now", Monotonic())
	return 0
}

func Monotonic() int64 {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
	return ts.Nano()
}
