//go:build !portable

#include "go_asm.h"
#include "textflag.h"

// See catch_amd64.s. R0 is the signal, R1 its siginfo, R2 the context, and LR where the
// kernel wants to be called back.
TEXT ·handler(SB),NOSPLIT|NOFRAME,$0
	MOVW  8(R1), R3             // si_code
	MOVWU 16(R1), R4            // si_pid
	MOVD  $·caught(SB), R5
	CMNW  $6, R3                // SI_TKILL
	BNE   others
	MOVD  catching_pid(R5), R6
	CMP   R6, R4
	BEQ   own
	JMP   note
others:
	CMPW  $23, R0               // SIGURG
	BNE   fault
	CBNZ  R4, fault
	MOVD  catching_pid(R5), R6
	CMP   $1, R6
	BNE   own
fault:
	CMPW  $0, R3
	BLE   note
	CMPW  $32, R0
	BHS   note
	MOVD  $0x800009b0, R6
	LSR   R0, R6, R6
	TBNZ  $0, R6, own
note:
	MOVWU R3, R3
	ORR   R4<<32, R3, R3
	ADD   $catching_senders, R5, R6
	ADD   R0<<3, R6, R6
	MOVD  R3, (R6)
	ADD   $catching_counts, R5, R6
	ADD   R0<<2, R6, R6
count:
	LDAXRW (R6), R7
	ADDW  $1, R7
	STLXRW R7, (R6), R9
	CBNZW R9, count
	SUB   $1, R0, R6
	MOVD  $1, R7
	LSL   R6, R7, R7
	ADD   $catching_keeps, R5, R6
	ADD   R0<<3, R6, R6
	MOVD  (R6), R10
again:
	LDAXR (R5), R6              // catching.pending
	AND   R10, R6, R6
	ORR   R7, R6, R6
	STLXR R6, (R5), R9
	CBNZW R9, again
	// write(eventFD, &one, 8)
	MOVD  catching_eventFD(R5), R0
	ADD   $catching_one, R5, R1
	MOVD  $8, R2
	MOVD  $64, R8
	SVC
	RET
own:
	MOVD  catching_runtime(R5), R6
	JMP   (R6)

DATA ·handlerPC(SB)/8, $·handler(SB)
GLOBL ·handlerPC(SB), RODATA, $8
