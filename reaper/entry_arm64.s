#include "textflag.h"

// See entry_amd64.s.
TEXT ·entry(SB),NOSPLIT|NOFRAME,$0
	// rt_sigprocmask(SIG_SETMASK, &all, &atEntry.blocked, 8)
	MOVD $135, R8
	MOVD $2, R0
	MOVD $all<>(SB), R1
	MOVD $·atEntry+8(SB), R2
	MOVD $8, R3
	SVC

	MOVD $1, R19
signal:
	// rt_sigaction(R19, nil, &atEntry.action, 8): the first word is the handler
	MOVD $134, R8
	MOVD R19, R0
	MOVD $0, R1
	MOVD $·atEntry+24(SB), R2
	MOVD $8, R3
	SVC
	MOVD ·atEntry+24(SB), R4
	CMP  $1, R4 // SIG_IGN
	BNE  nextSignal
	SUB  $1, R19, R5
	MOVD $1, R4
	LSL  R5, R4, R4
	MOVD ·atEntry(SB), R5
	ORR  R4, R5, R5
	MOVD R5, ·atEntry(SB)
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
	MOVWU ·atEntry+16(SB), R5
	ORR  R4, R5, R5
	MOVW R5, ·atEntry+16(SB)
nextDescriptor:
	ADD  $1, R19
	CMP  $3, R19
	BLT  descriptor

	MOVD $1, R4
	MOVW R4, ·atEntry+20(SB)
	// fork(argv)
	ADD  $8, RSP, R4
	SUB  $32, RSP
	MOVD R4, 8(RSP)
	CALL ·fork(SB)
	CALL ·sleep(SB)
	ADD  $32, RSP

	// R10 words, the environment up to R11, and the auxiliary vector up to R12.
	MOVD RSP, R0
	MOVD (R0), R10
	ADD  $2, R10
	ADD  R10<<3, R0, R11
	MOVD $·atEntry+56(SB), R1
	MOVD R11, (R1)
variable:
	MOVD.P 8(R11), R2
	CBNZ R2, variable
	MOVD R11, R12
pair:
	MOVD.P 16(R12), R2
	CBNZ R2, pair

	SUB  R11, R12, R3
	ADD  R10<<3, R3, R3
	ADD  $16, R3
	MOVD R0, R1
	SUB  R3, R1, R1
	AND  $~15, R1
	MOVD R1, RSP
arguments:
	MOVD.P 8(R0), R2
	MOVD.P R2, 8(R1)
	SUB  $1, R10
	CBNZ R10, arguments
	MOVD $oneProcessor<>(SB), R2
	MOVD.P R2, 8(R1)
	MOVD.P ZR, 8(R1)
auxiliary:
	MOVD.P 8(R11), R2
	MOVD.P R2, 8(R1)
	CMP  R11, R12
	BNE  auxiliary

	B    _rt0_arm64_linux(SB)

DATA all<>(SB)/8, $-1
GLOBL all<>(SB), RODATA|NOPTR, $8
DATA oneProcessor<>+0(SB)/8, $"GOMAXPRO"
DATA oneProcessor<>+8(SB)/8, $"CS=1\x00\x00\x00\x00"
GLOBL oneProcessor<>(SB), RODATA|NOPTR, $16
