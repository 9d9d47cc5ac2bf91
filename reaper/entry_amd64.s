#include "textflag.h"

// entry is where the kernel starts fini, if it was linked with -E. It notes what the Go
// runtime is about to change, blocks all signals, and goes on to the runtime's own entry, which
// finds on the stack what the kernel puts there, and takes nothing from registers. Signals are
// blocked since the runtime would swallow some of those that come before fini catches them; of
// some that end the process it lifts that again.
//
// And it puts GOMAXPROCS=1 before the environment that the runtime sees: fini has work for one
// processor, and each other would cost pages of memory and, to do away with it, a stop of the
// world.
//
// type start struct {
//	ignored, blocked uint64; closed, known uint32; action [4]uint64; environ uintptr
// }
TEXT ·entry(SB),NOSPLIT|NOFRAME,$0
	// rt_sigprocmask(SIG_SETMASK, &all, &start.blocked, 8)
	MOVL $14, AX
	MOVL $2, DI
	LEAQ all<>(SB), SI
	LEAQ ·start+8(SB), DX
	MOVL $8, R10
	SYSCALL

	MOVL $1, BX
signal:
	// rt_sigaction(BX, nil, &start.action, 8): the first word is the handler
	MOVL $13, AX
	MOVL BX, DI
	XORL SI, SI
	LEAQ ·start+24(SB), DX
	MOVL $8, R10
	SYSCALL
	CMPQ ·start+24(SB), $1 // SIG_IGN
	JNE  nextSignal
	LEAL -1(BX), CX
	MOVL $1, AX
	SHLQ CX, AX
	ORQ  AX, ·start(SB)
nextSignal:
	INCL BX
	CMPL BX, $64
	JLE  signal

	XORL BX, BX
descriptor:
	// fcntl(BX, F_GETFD)
	MOVL $72, AX
	MOVL BX, DI
	MOVL $1, SI
	SYSCALL
	CMPQ AX, $-9 // EBADF
	JNE  nextDescriptor
	MOVL BX, CX
	MOVL $1, AX
	SHLL CX, AX
	ORL  AX, ·start+16(SB)
nextDescriptor:
	INCL BX
	CMPL BX, $3
	JLT  descriptor

	// On the stack are argc, argc pointers, 0, the environment's pointers, 0. What comes before
	// the environment moves down by one word.
	MOVQ 0(SP), CX
	ADDQ $2, CX
	LEAQ 0(SP)(CX*8), AX
	MOVQ AX, ·start+56(SB)
	MOVQ SP, SI
	LEAQ -8(SP), DI
	MOVQ DI, SP
	CLD
	REP; MOVSQ
	LEAQ oneProcessor<>(SB), AX
	MOVQ AX, (DI)

	MOVL $1, ·start+20(SB)
	JMP  _rt0_amd64_linux(SB)

DATA all<>(SB)/8, $-1
GLOBL all<>(SB), RODATA|NOPTR, $8
DATA oneProcessor<>+0(SB)/8, $"GOMAXPRO"
DATA oneProcessor<>+8(SB)/8, $"CS=1\x00\x00\x00\x00"
GLOBL oneProcessor<>(SB), RODATA|NOPTR, $16
