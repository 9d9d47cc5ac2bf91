#include "textflag.h"

// entry is where the kernel starts fini, if it was linked with -E. It notes what the Go
// runtime is about to change, blocks all signals, and goes on to the runtime's own entry:
// registers and stack are as the kernel left them, but for those that a system call may
// change. Signals are blocked since the runtime would swallow some of those that come before
// fini catches them; of some that end the process it lifts that again.
//
// type start struct { ignored, blocked uint64; closed, known uint32; action [4]uint64 }
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

	MOVL $1, ·start+20(SB)
	JMP  _rt0_amd64_linux(SB)

DATA all<>(SB)/8, $-1
GLOBL all<>(SB), RODATA|NOPTR, $8
