package cost

import (
	"slices"
	"testing"
	"time"

	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/e2e/rig/clients"
)

// fini adds nothing to the close of a session that goes well. Where the machine was busy
// elsewhere, more pairs are measured.
func TestMCPCloseTakesAsLong(t *testing.T) {
	rig.Long(t)
	rig.Serial(t, "it compares times")
	clients.NeedHosts(t)
	const limit = 100 * time.Millisecond
	npx := []string{"npx", "-y", clients.McpPackage}
	env := rig.Offline(t)
	measure := func(argv []string) time.Duration {
		h := clients.OpenHost(t, clients.NodeHost, env, argv...)
		h.Close()
		h.MustLeaveNothing("0")
		return h.Took()
	}
	var plain, under []time.Duration
	for range 12 {
		plain = append(plain, measure(npx))
		under = append(under, measure(append([]string{rig.Fini, "-i", "--"}, npx...)))
		without, with := median(plain), median(under)
		t.Logf("the median of %d: close() takes %v under fini, %v without", len(plain), with, without)
		if with-without <= limit {
			return
		}
	}
	t.Errorf("close() takes more than %v longer under fini: %v against %v", limit, under, plain)
}

func median(all []time.Duration) time.Duration {
	return slices.Sorted(slices.Values(all))[len(all)/2]
}
