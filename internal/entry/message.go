package entry

// Message is what the outer and the inner fini send each other over a pair of connected stream sockets. If one process
// dies, the other sees the socket hang up. A process of the tree could open a pipe through /proc/PID/fd, but not a
// socket. See unix(7).
//
//	message     from   means                                                      what the outer fini does
//	BeAlone     inner  fini has to be a single process                            starts the runtime, as that process
//	Starting    inner  the inner fini is about to start the main child            delays terminating signals
//	Started     inner  main child Value runs, in our job if InJob;                closes its copies, relays signals
//	                   and the message carries the reports' descriptors
//	Done        inner  the life is over: Value is the wait status to end with     ends that way after the inner fini
//	Signal      outer  the outer fini received signal Value from process Sender
//	ParentDied  outer  a signal showed that the parent process has died
//	HungUp      -      there are no more messages: the inner fini exits or was    waits up to a second for its end
//	                   killed
//
// An inner fini that sends BeAlone exits immediately. If it exits without BeAlone or Started, it has not started
// anything, and the outer fini exits with the same status.
type Message struct {
	Kind   Kind
	Value  uint32
	Sender int32 // 0 if unknown, or FromKernel
	InJob  bool  // the main child runs in the process group of the outer fini
	Parent int32 // the parent of Sender, or 0 if unknown
}

// Kind says what a Message means.
type Kind uint32

const (
	BeAlone Kind = iota + 1
	Starting
	Started
	Done
	Signal
	ParentDied
	HungUp
)

// FromKernel is the value of Sender for a signal that the kernel sent, such as SIGINT for Ctrl-C.
const FromKernel = -1
