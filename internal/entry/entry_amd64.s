#include "textflag.h"

// entry is where the kernel starts fini, if fini was linked with -E. Then the runtime starts at its own entry point, on the
// stack that rebuild has made. It finds its arguments there, and doesn't use registers for them.
TEXT ·entry(SB),NOSPLIT|NOFRAME,$0
	// Go code finds the record of its thread through FS. These functions use no such record, so any memory will do.
	// arch_prctl(ARCH_SET_FS, &noThread + 8)
	MOVL $158, AX
	MOVL $0x1002, DI
	LEAQ ·noThread+8(SB), SI
	SYSCALL

	MOVQ SP, BX
	SUBQ $16, SP
	MOVQ BX, 0(SP)
	CALL ·note(SB)    // note(stack)
	CALL ·fork(SB)
	CALL ·watch(SB)
	CALL ·rebuild(SB) // rebuild() stack
	MOVQ 0(SP), SP
	JMP  _rt0_amd64_linux(SB)

// The kernel calls early for a signal: DI is its number. See catchEarly.
TEXT ·early(SB),NOSPLIT|NOFRAME,$0
	SUBQ $24, SP
	MOVQ DI, 0(SP)
	CALL ·endEarly(SB)

DATA ·earlyPC(SB)/8, $·early(SB)
GLOBL ·earlyPC(SB), RODATA, $8

// The memory that FS points into.
GLOBL ·noThread(SB), NOPTR, $16
