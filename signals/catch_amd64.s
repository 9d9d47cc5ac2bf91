//go:build !portable

#include "go_asm.h"
#include "textflag.h"

// The kernel calls handler, on any thread: DI is the signal, SI its siginfo, DX the context. handler records the signal
// and makes eventFD readable. It hands a signal of the Go runtime's own on to the runtime's handler, with the same
// arguments. See sigaction(2), signal-safety(7).
TEXT ·handler(SB),NOSPLIT|NOFRAME,$0
	MOVL 8(SI), AX             // si_code
	MOVL 16(SI), CX            // si_pid
	LEAQ ·caught(SB), R8
	CMPL AX, $-6               // SI_TKILL: a thread was meant,
	JNE  others
	CMPQ CX, catching_pid(R8)  // by this process
	JEQ  own
	JMP  note
others:
	CMPL DI, $23               // SIGURG without a sender: the runtime's, if the kernel had no memory
	JNE  fault                 // for a siginfo; as PID 1, from a process outside of the PID namespace
	TESTL CX, CX
	JNE  fault
	CMPQ catching_pid(R8), $1
	JNE  own
fault:
	CMPL AX, $0                // a signal from a process has at most 0
	JLE  note
	CMPL DI, $32
	JCC  note
	MOVL $0x800009b0, R9       // ILL TRAP BUS FPE SEGV SYS: a fault
	MOVL DI, BX
	BTL  BX, R9
	JCS  own
note:
	SHLQ $32, CX
	ORQ  AX, CX
	MOVQ CX, catching_senders(R8)(DI*8)
	LOCK
	INCL catching_counts(R8)(DI*4)
	MOVQ catching_keeps(R8)(DI*8), AX
	LEAL -1(DI), CX
	LOCK
	ANDQ AX, catching_pending(R8)
	LOCK
	BTSQ CX, catching_pending(R8)
	// write(eventFD, &one, 8)
	MOVL $1, AX
	MOVQ catching_eventFD(R8), DI
	LEAQ catching_one(R8), SI
	MOVL $8, DX
	SYSCALL
	RET
own:
	MOVQ catching_runtime(R8), AX
	JMP  AX

DATA ·handlerPC(SB)/8, $·handler(SB)
GLOBL ·handlerPC(SB), RODATA, $8
