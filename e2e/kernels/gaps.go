package main

var gvisor = []string{"gVisor"}

const (
	noPidfd = "this gVisor has no pidfd_open(2), which --bind says"
	noHup   = "this gVisor's poll(2) does not tell that the other end has closed"
	partly  = "they test what Linux's /proc, namespaces and signals are like, and gVisor has a part of that"
)

// gaps are what is known not to hold, or not to be testable, somewhere.
var gaps = []gap{
	{gvisor, "e2e", "TestBind", noPidfd},
	{gvisor, "e2e", "TestBindKillMatrix", noPidfd},
	{gvisor, "e2e", "TestBindToNobody", noPidfd},
	{[]string{"gVisor", "no pidfds"}, "e2e", "TestEverySignalArrivesOnce/(pair|alone)",
		"without a pidfd signal 64 from the parent process is taken for the end of one of its threads"},
	{gvisor, "e2e", "TestInnerFiniIsKilled/as_it_was", "this gVisor sends the parent death signal once for each thread of the parent"},
	{gvisor, "e2e", "TestIgnoredSignalsStayIgnored", "gVisor's /proc/PID/status has no SigIgn, by which the test sees it"},
	{gvisor, "e2e", "TestClosedStdinStopsTheCommand/pair/a_terminal_that_hangs_up", noHup},
	{gvisor, "e2e", "TestClosedStdinStopsTheCommand/pair/socketpair", noHup},
	{gvisor, "e2e", "TestClosedStdinStopsTheCommand/pair/half-closed_socketpair", noHup},
	{gvisor, "orphans", "", partly},
	{gvisor, "reaper", "", partly},
	{gvisor, "signals", "", partly},
}
