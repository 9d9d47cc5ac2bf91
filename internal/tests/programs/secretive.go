package programs

import (
	"fmt"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// runSecretive changes its effective user, becomes dumpable (1) or not (0), and writes its pid to descriptor 4. It runs
// until it receives a signal. See PR_SET_DUMPABLE in prctl(2).
func runSecretive(args []string) int {
	user, err := strconv.Atoi(args[0])
	must(err)
	dumpable, err := strconv.Atoi(args[1])
	must(err)
	must(syscall.Setresuid(-1, user, user))
	must(unix.Prctl(unix.PR_SET_DUMPABLE, uintptr(dumpable), 0, 0, 0))
	to := os.NewFile(4, "ready")
	_, _ = fmt.Fprintln(to, os.Getpid())
	_ = to.Close()
	return forever()
}
