package containers

import (
	"github.com/seed-126c5d8a/fini/e2e/rig"
)

func (c *Container) MustBeFini() {
	c.T.Helper()
	rig.Until(c.T, "PID 1 is fini", func() bool { return c.Exec("cat", "/proc/1/comm") == "fini" })
}
