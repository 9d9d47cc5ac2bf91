#include "textflag.h"

// See entry_amd64.s.
TEXT ·entry(SB),NOSPLIT|NOFRAME,$0
	// rt_sigprocmask(SIG_SETMASK, &all, &start.blocked, 8)
	MOVD $135, R8
	MOVD $2, R0
	MOVD $all<>(SB), R1
	MOVD $·start+8(SB), R2
	MOVD $8, R3
	SVC

	MOVD $1, R19
signal:
	// rt_sigaction(R19, nil, &start.action, 8): the first word is the handler
	MOVD $134, R8
	MOVD R19, R0
	MOVD $0, R1
	MOVD $·start+24(SB), R2
	MOVD $8, R3
	SVC
	MOVD ·start+24(SB), R4
	CMP  $1, R4 // SIG_IGN
	BNE  nextSignal
	SUB  $1, R19, R5
	MOVD $1, R4
	LSL  R5, R4, R4
	MOVD ·start(SB), R5
	ORR  R4, R5, R5
	MOVD R5, ·start(SB)
nextSignal:
	ADD  $1, R19
	CMP  $64, R19
	BLE  signal

	MOVD $0, R19
descriptor:
	// fcntl(R19, F_GETFD)
	MOVD $25, R8
	MOVD R19, R0
	MOVD $1, R1
	SVC
	CMN  $9, R0 // EBADF
	BNE  nextDescriptor
	MOVD $1, R4
	LSL  R19, R4, R4
	MOVWU ·start+16(SB), R5
	ORR  R4, R5, R5
	MOVW R5, ·start+16(SB)
nextDescriptor:
	ADD  $1, R19
	CMP  $3, R19
	BLT  descriptor

	// By two words, and twice the same variable: the stack pointer is a multiple of 16.
	MOVD RSP, R0
	MOVD (R0), R1
	ADD  $2, R1
move:
	MOVD (R0), R2
	MOVD R2, -16(R0)
	ADD  $8, R0
	SUB  $1, R1
	CBNZ R1, move
	MOVD R0, ·start+56(SB)
	MOVD $oneProcessor<>(SB), R2
	MOVD R2, -16(R0)
	MOVD R2, -8(R0)
	SUB  $16, RSP

	MOVD $1, R4
	MOVW R4, ·start+20(SB)
	B    _rt0_arm64_linux(SB)

DATA all<>(SB)/8, $-1
GLOBL all<>(SB), RODATA|NOPTR, $8
DATA oneProcessor<>+0(SB)/8, $"GOMAXPRO"
DATA oneProcessor<>+8(SB)/8, $"CS=1\x00\x00\x00\x00"
GLOBL oneProcessor<>(SB), RODATA|NOPTR, $16
