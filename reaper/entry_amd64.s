#include "textflag.h"

// entry is where the kernel starts fini, if it was linked with -E. It notes what the Go
// runtime is about to change, blocks all signals, and goes on to the runtime's own entry, which
// finds on the stack what the kernel puts there, and takes nothing from registers. Signals are
// blocked since the runtime would swallow some of those that come before fini catches them; of
// some that end the process it lifts that again.
//
// The runtime gets a stack of its own, below the kernel's: the same arguments and auxiliary
// vector, but an environment that is nothing but GOMAXPROCS=1. Variables such as GODEBUG and
// GOMEMLIMIT are meant for the command, and fini has work for one processor.
//
// var atEntry struct {
//	ignored, blocked uint64; closed, known uint32; action [4]uint64; environ uintptr
// }
TEXT ·entry(SB),NOSPLIT|NOFRAME,$0
	// rt_sigprocmask(SIG_SETMASK, &all, &atEntry.blocked, 8)
	MOVL $14, AX
	MOVL $2, DI
	LEAQ all<>(SB), SI
	LEAQ ·atEntry+8(SB), DX
	MOVL $8, R10
	SYSCALL

	MOVL $1, BX
signal:
	// rt_sigaction(BX, nil, &atEntry.action, 8): the first word is the handler
	MOVL $13, AX
	MOVL BX, DI
	XORL SI, SI
	LEAQ ·atEntry+24(SB), DX
	MOVL $8, R10
	SYSCALL
	CMPQ ·atEntry+24(SB), $1 // SIG_IGN
	JNE  nextSignal
	LEAL -1(BX), CX
	MOVL $1, AX
	SHLQ CX, AX
	ORQ  AX, ·atEntry(SB)
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
	ORL  AX, ·atEntry+16(SB)
nextDescriptor:
	INCL BX
	CMPL BX, $3
	JLT  descriptor

	// Functions of Go find their thread's record by FS, and want none: any memory will do.
	// arch_prctl(ARCH_SET_FS, &noThread + 8)
	MOVL $158, AX
	MOVL $0x1002, DI
	LEAQ ·noThread+8(SB), SI
	SYSCALL
	MOVL $1, ·atEntry+20(SB)
	// fork(argv)
	LEAQ 8(SP), AX
	SUBQ $16, SP
	MOVQ AX, 0(SP)
	CALL ·fork(SB)
	CALL ·sleep(SB)
	ADDQ $16, SP

	// On the stack are argc, argc pointers, 0, the environment's pointers, 0, and the auxiliary
	// vector, pairs of words up to one whose first word is 0. See getauxval(3).
	MOVQ 0(SP), CX
	ADDQ $2, CX
	LEAQ 0(SP)(CX*8), R9 // the environment, behind CX words
	MOVQ R9, ·atEntry+56(SB)
variable:
	ADDQ $8, R9
	CMPQ -8(R9), $0
	JNE  variable
	MOVQ R9, R10 // the auxiliary vector
pair:
	ADDQ $16, R10
	CMPQ -16(R10), $0
	JNE  pair

	// The same words but for the environment's, in whose place are two.
	SUBQ R9, R10
	SHRQ $3, R10
	LEAQ 2(CX)(R10*1), AX
	SHLQ $3, AX
	MOVQ SP, SI
	MOVQ SP, DI
	SUBQ AX, DI
	ANDQ $~15, DI
	MOVQ DI, SP // before it is written to, for older kernels grow a stack only near this
	CLD
	REP; MOVSQ
	LEAQ oneProcessor<>(SB), AX
	STOSQ
	XORL AX, AX
	STOSQ
	MOVQ R9, SI
	MOVQ R10, CX
	REP; MOVSQ

	JMP  _rt0_amd64_linux(SB)

DATA all<>(SB)/8, $-1
GLOBL all<>(SB), RODATA|NOPTR, $8
DATA oneProcessor<>+0(SB)/8, $"GOMAXPRO"
DATA oneProcessor<>+8(SB)/8, $"CS=1\x00\x00\x00\x00"
GLOBL oneProcessor<>(SB), RODATA|NOPTR, $16
