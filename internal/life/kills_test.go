package life

import (
	"slices"
	"syscall"
	"testing"

	"github.com/seed-126c5d8a/fini/reaper"
)

func TestKillsOfOthers(t *testing.T) {
	killed := func(pids ...int) (exits []reaper.Exit) {
		for _, pid := range pids {
			exits = append(exits, reaper.Exit{Pid: pid, Status: signaled(syscall.SIGKILL)})
		}
		return exits
	}
	for what, c := range map[string]struct {
		before func(*Kills)
		exits  []reaper.Exit
		want   []int
	}{
		"the command":                 {nil, killed(mainPid), []int{mainPid}},
		"the command, by fini":        {func(k *Kills) { k.Sent(syscall.SIGKILL, false, mainPid) }, killed(mainPid), nil},
		"after another signal":        {func(k *Kills) { k.Sent(syscall.SIGTERM, true, mainPid) }, killed(mainPid), []int{mainPid}},
		"an orphan while it runs":     {nil, killed(300), nil},
		"leftovers":                   {func(k *Kills) { k.Over = true }, killed(300, 301), []int{300, 301}},
		"leftovers, one by fini":      {func(k *Kills) { k.Over = true; k.Sent(syscall.SIGKILL, false, 300) }, killed(300, 301), []int{301}},
		"leftovers of a killed group": {func(k *Kills) { k.Over = true; k.Sent(syscall.SIGKILL, true, mainPid) }, killed(300), nil},
		"a pid that fini killed once": {func(k *Kills) {
			k.Over = true
			k.Sent(syscall.SIGKILL, false, 300)
			k.Others(killed(300), mainPid)
		}, killed(300), []int{300}},
		"other ends": {func(k *Kills) { k.Over = true }, []reaper.Exit{
			{Pid: mainPid, Status: exited(9)}, {Pid: 300, Status: signaled(syscall.SIGTERM)}, {Pid: 301, Status: exited(137)},
			{Pid: mainPid, Status: syscall.WaitStatus(int(syscall.SIGKILL)<<8 | 0x7f)},
		}, nil},
		"137": {nil, []reaper.Exit{{Pid: mainPid, Status: exited(137)}}, []int{mainPid}},
	} {
		var k Kills
		if c.before != nil {
			c.before(&k)
		}
		var got []int
		for _, x := range k.Others(c.exits, mainPid) {
			got = append(got, x.Pid)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", what, got, c.want)
		}
		if len(k.own) > 1 {
			t.Errorf("%s: keeps %v", what, k.own)
		}
	}
}
