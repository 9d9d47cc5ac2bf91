#include "textflag.h"

// See entry_amd64.s.
TEXT ·entry(SB),NOSPLIT|NOFRAME,$0
	MOVD RSP, R1
	SUB  $32, RSP
	MOVD R1, 8(RSP)
	CALL ·note(SB)    // note(stack)
	CALL ·fork(SB)
	CALL ·watch(SB)
	CALL ·rebuild(SB) // rebuild() stack
	MOVD 8(RSP), R1
	MOVD R1, RSP
	B    _rt0_arm64_linux(SB)

TEXT ·early(SB),NOSPLIT|NOFRAME,$0
	SUB  $32, RSP
	MOVD R0, 8(RSP)
	CALL ·endEarly(SB)

DATA ·earlyPC(SB)/8, $·early(SB)
GLOBL ·earlyPC(SB), RODATA, $8
