#include "textflag.h"

// See entry_amd64.s.
TEXT ·entry(SB),NOSPLIT|NOFRAME,$0
	MOVD RSP, R1
	SUB  $48, RSP
	MOVD R1, 8(RSP)
	CALL ·begin(SB) // begin(stack) stack
	MOVD 16(RSP), R1
	ADD  $48, RSP, R2
	SUB  $48, R1, R3
	MOVD R3, RSP
	MOVD R2, 8(RSP)
	MOVD R1, 16(RSP)
	CALL ·rebuild(SB) // rebuild(from, to)
	ADD  $48, RSP
	B    _rt0_arm64_linux(SB)

TEXT ·early(SB),NOSPLIT|NOFRAME,$0
	SUB  $32, RSP
	MOVD R0, 8(RSP)
	CALL ·endEarly(SB)

DATA ·earlyPC(SB)/8, $·early(SB)
GLOBL ·earlyPC(SB), RODATA, $8

// func call6(number, a, b, c, d, e, f uintptr) int
TEXT ·call6(SB),NOSPLIT|NOFRAME,$0-64
	MOVD number+0(FP), R8
	MOVD a+8(FP), R0
	MOVD b+16(FP), R1
	MOVD c+24(FP), R2
	MOVD d+32(FP), R3
	MOVD e+40(FP), R4
	MOVD f+48(FP), R5
	SVC
	MOVD R0, ret+56(FP)
	RET
