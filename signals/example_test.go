package signals_test

import (
	"fmt"
	"os/exec"

	"github.com/seed-126c5d8a/fini/signals"
)

func ExampleCatch() {
	caught, err := signals.Catch(0, nil)
	if err != nil {
		fmt.Println(err)
	}
	if err := exec.Command("sh", "-c", "kill -TERM $PPID").Run(); err != nil {
		fmt.Println(err)
	}
	caught.Wait(0, nil)
	for _, got := range caught.Take() {
		fmt.Println(signals.Name(got.Signal))
	}
	// Output: SIGTERM
}

func ExampleParse() {
	for _, name := range []string{"TERM", "sigint", "RTMIN+3", "9", "FOO"} {
		sig, err := signals.Parse(name)
		fmt.Println(int(sig), err)
	}
	// Output:
	// 15 <nil>
	// 2 <nil>
	// 37 <nil>
	// 9 <nil>
	// 0 cannot use signal "FOO": want a name such as TERM, SIGTERM or RTMIN+3, or a number from 1 to 64
}
