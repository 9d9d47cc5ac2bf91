#include "textflag.h"

// entry is where the kernel starts fini, if fini was linked with -E. begin does all the work that comes before the Go
// runtime. Then the runtime starts at its own entry point, on a stack that rebuild has made. The runtime finds its
// arguments on the stack, and doesn't use registers for them.
TEXT ·entry(SB),NOSPLIT|NOFRAME,$0
	// Go code finds the record of its thread through FS. These functions use no such record, so any memory will do.
	// arch_prctl(ARCH_SET_FS, &noThread + 8)
	MOVL $158, AX
	MOVL $0x1002, DI
	LEAQ ·noThread+8(SB), SI
	SYSCALL

	MOVQ SP, BX
	SUBQ $32, SP
	MOVQ BX, 0(SP)
	CALL ·begin(SB) // begin(stack) stack
	MOVQ 8(SP), AX
	LEAQ 32(SP), BX
	// Move the stack pointer below the new words before rebuild writes them: older kernels grow a stack only near it.
	LEAQ -32(AX), SP
	MOVQ BX, 0(SP)
	MOVQ AX, 8(SP)
	CALL ·rebuild(SB) // rebuild(from, to)
	ADDQ $32, SP
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

// func call6(number, a, b, c, d, e, f uintptr) int
TEXT ·call6(SB),NOSPLIT|NOFRAME,$0-64
	MOVQ number+0(FP), AX
	MOVQ a+8(FP), DI
	MOVQ b+16(FP), SI
	MOVQ c+24(FP), DX
	MOVQ d+32(FP), R10
	MOVQ e+40(FP), R8
	MOVQ f+48(FP), R9
	SYSCALL
	MOVQ AX, ret+56(FP)
	RET
