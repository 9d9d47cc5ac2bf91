package entry

// The line between the two processes of a pair is a pair of connected stream sockets. If a process exited or was killed,
// the kernel closes its end, and the other process sees the hang-up, on every kernel. A process of the tree that may read
// fini's /proc/PID/fd can open a pipe by its link there, but not a socket. See unix(7).
//
//	message     from   means                                                      what the outer fini does
//	BeAlone     inner  fini is to be a single process                             starts the runtime, as that process
//	Starting    inner  the inner fini is about to start the main child            lets terminating signals wait
//	Started     inner  the main child runs: Value is its pid, with its Job; the   closes what it inherited, relays signals
//	                   report's descriptor comes along, if there is one
//	Done        inner  the work is done: Value is the wait status to end with     exits with it after the inner fini has ended
//	Signal      outer  the outer fini received signal Value from process Sender, a child of Parent
//	ParentDied  outer  the parent process has died, as a signal showed
//	HungUp      -      no message comes any more: the inner fini exits, or was    waits for its end, with a bound
//	                   killed
//
// An inner fini that sends BeAlone exits at once. An inner fini that exits before Started, and has not sent BeAlone, has
// started nothing: the outer fini exits with the inner fini's status.
type Message struct {
	Kind   Kind
	Value  uint32
	Sender int32 // 0 if unknown, or Kernel
	Job    uint32
	Parent int32 // of the Sender, 0 if unknown
}

// Kind is the kind of a Message.
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

// InJob is the Job of a main child in the process group of the outer fini.
const InJob = 1

// Kernel is the Sender of a signal that the kernel sent, such as the SIGINT of Ctrl-C.
const Kernel = -1
