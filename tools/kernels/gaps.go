package main

var (
	gvisor        = []string{"gVisor"}
	withoutPidfds = []string{"gVisor", "no pidfds"}
)

const (
	orphaned  = "this gVisor does not count a subreaper as a parent: it takes the process group of a reparented process for orphaned, and sends SIGHUP to stopped members"
	noPidfd   = "there is no pidfd_open(2), which --bind says"
	noIgnored = "gVisor's /proc/PID/status has no SigIgn: fini takes each SIGHUP that was ignored at its start for nohup's"
	noHup     = "this gVisor's poll(2) does not tell that the other end has closed"
	parents64 = "without a pidfd signal 64 is taken for the end of a thread of the parent process"
	partly    = "they test what Linux's /proc, namespaces and signals are like, and gVisor has a part of that"
)

// gaps are what is known not to hold, or not to be testable, somewhere.
var gaps = []gap{
	{withoutPidfds, "e2e/bond", "TestBind", noPidfd},
	{withoutPidfds, "e2e/bond", "TestBindKillMatrix", noPidfd},
	{withoutPidfds, "e2e/bond", "TestBindToNobody", noPidfd},
	{withoutPidfds[1:], "e2e/cost", "TestOuterSleeps/bind", noPidfd},
	{withoutPidfds[1:], "e2e/cost", "TestOuterSleeps/FINI_BIND", noPidfd},
	{withoutPidfds[1:], "e2e/cost", "TestOuterSleeps/and_bind", noPidfd},
	{withoutPidfds[1:], "e2e/cost", "TestOuterSleeps/both", noPidfd},
	{withoutPidfds[1:], "e2e/cost", "TestOuterSleeps/every_signal", parents64},
	{gvisor, "e2e/cost", "TestOuterSleeps", "gVisor's /proc has no smaps_rollup, by which the test sees it"},
	{gvisor, "e2e/bond", "TestUnboundOutlivesItsLauncher/.*/both", noIgnored},
	{gvisor, "e2e/bond", "TestUnboundOutlivesItsLauncher/.*/further_up", noIgnored},
	{withoutPidfds, "e2e/signals", "TestEverySignalArrivesOnce/pair", parents64},
	{withoutPidfds, "e2e/signals", "TestEverySignalArrivesOnce/alone", parents64},
	{gvisor, "e2e/leftovers", "TestNothingIsLeft/.*/all_at_once", orphaned},
	{gvisor, "e2e/leftovers", "TestNothingIsLeft/.*/stopped", orphaned},
	{gvisor, "e2e/kill9", "TestInnerFiniIsKilled/as_it_was", "this gVisor sends the parent death signal once for each thread of the parent"},
	{gvisor, "e2e/signals", "TestIgnoredSignalsStayIgnored", "gVisor's /proc/PID/status has no SigIgn, by which the test sees it"},
	{gvisor, "e2e/bond", "TestClosedStdinStopsTheCommand/pair/a_terminal_that_hangs_up", noHup},
	{gvisor, "e2e/bond", "TestClosedStdinStopsTheCommand/pair/socketpair", noHup},
	{gvisor, "e2e/bond", "TestClosedStdinStopsTheCommand/pair/half-closed_socketpair", noHup},
	{withoutPidfds[1:], "internal/orphans", "TestAutoreap", "its processes are made by clone3(2)"},
	{withoutPidfds[1:], "internal/orphans", "TestNotAllowed", "it tests that pidfds stay in use"},
	{gvisor, "internal/orphans", "", partly},
	{gvisor, "reaper", "", partly},
	{gvisor, "signals", "", partly},
}
