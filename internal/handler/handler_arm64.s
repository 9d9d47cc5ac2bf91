//go:build !portable && !race

#include "go_asm.h"
#include "textflag.h"

// See catch_amd64.s. R0 is the signal, R1 its siginfo, R2 the context, and LR where the
// kernel wants to be called back.
TEXT ·handler(SB),NOSPLIT|NOFRAME,$0
	SUB  $64, RSP
	MOVD R0, 32(RSP)
	MOVD R1, 40(RSP)
	MOVD R2, 48(RSP)
	MOVD LR, 56(RSP)
	MOVD R0, 8(RSP)
	MOVD R1, 16(RSP)
	CALL ·handle(SB) // handle(sig, info) ofRuntime
	MOVBU 24(RSP), R3
	MOVD 32(RSP), R0
	MOVD 40(RSP), R1
	MOVD 48(RSP), R2
	MOVD 56(RSP), LR
	ADD  $64, RSP
	CBNZ R3, own
	RET
own:
	MOVD ·caught+catching_runtime(SB), R6
	JMP  (R6)

DATA ·handlerPC(SB)/8, $·handler(SB)
GLOBL ·handlerPC(SB), RODATA, $8
