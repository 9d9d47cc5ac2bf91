package entry

// The line between the two processes of a pair is a pair of connected stream sockets. The kernel closes the end of a
// process that exited or was killed, and the other process sees the hang-up, on every kernel. A process of the tree that
// may look at fini can't open a socket by its link in /proc/PID/fd, as it could a pipe. See unix(7).
//
//	message     from   means                                                      what the outer fini does
//	BeAlone     inner  there is to be no pair                                     starts the runtime, and is alone
//	Bind        inner  Value is the pid of a process; BeIsolated follows          opens a pidfd for the next inner fini
//	BeIsolated  inner  there is to be an isolated pair                            forks again, with namespaces
//	BePlain     inner  the isolation was refused: Value is the call, Flags errno  forks again, without namespaces
//	Starting    inner  the command is about to be started: Started follows        lets terminating signals wait
//	Started     inner  the command runs: Value is its pid, Flags are its job;     closes what it inherited, relays signals
//	                   the report's descriptor comes along, if there is one
//	Done        inner  the work is done: Value is the wait status to end by       exits by it once the inner fini is gone
//	Signal      outer  the outer fini received signal Value from process Sender
//	ParentDied  outer  the parent process has died, which a signal told
//
// An inner fini that sends one of the first four exits at once. An inner fini that exits before it says anything has
// started nothing; the outer fini exits with its status.
type Message struct {
	Kind   Kind
	Value  uint32
	Sender int32
	Flags  uint32
}

// Kind is what a Message says.
type Kind uint32

const (
	BeAlone Kind = iota + 1
	Bind
	BeIsolated
	BePlain
	Starting
	Started
	Done
	Signal
	ParentDied
)

// Flags of Started.
const (
	InJob    = 1 << iota // the command is in the process group of the outer fini
	Orphaned             // that group would be orphaned without the inner fini: see setpgid(2)
)

// Flags of Signal.
const (
	FromKernel = 1 << iota // as for a key of the terminal
	FromTree               // the sender is in the PID namespace of an isolated inner fini
)

// The calls of an isolation, by which the inner fini says which one was refused.
const (
	CallClonePID = iota
	CallCloneUser
	CallMap
	CallOpen
	CallSlave
	CallCopy
	CallMount
	CallKeep
	CallCapset
)
