//go:build !portable && !race

#include "go_asm.h"
#include "textflag.h"

// The kernel calls handler, on any thread: DI is the signal, SI its siginfo, DX the context. handler hands a signal of the
// Go runtime's own on to the runtime's handler, with the same arguments. See sigaction(2).
TEXT ·handler(SB),NOSPLIT|NOFRAME,$0
	SUBQ $56, SP
	MOVQ DI, 24(SP)
	MOVQ SI, 32(SP)
	MOVQ DX, 40(SP)
	MOVQ DI, 0(SP)
	MOVQ SI, 8(SP)
	CALL ·handle(SB) // handle(sig, info) ofRuntime
	MOVBLZX 16(SP), AX
	MOVQ 24(SP), DI
	MOVQ 32(SP), SI
	MOVQ 40(SP), DX
	ADDQ $56, SP
	TESTL AX, AX
	JNE  own
	RET
own:
	MOVQ ·caught+catching_runtime(SB), AX
	JMP  AX

DATA ·handlerPC(SB)/8, $·handler(SB)
GLOBL ·handlerPC(SB), RODATA, $8
