#!/bin/sh
# Builds a fini that is late: of 32 system calls one first sleeps for 300 ms, if the last such sleep was some milliseconds
# ago. What overtakes fini on a busy machine, once in a thousand runs, overtakes this one in every other. The Go runtime's
# one function for system calls gets the sleep, and its own calls have none.
#
#	sh tools/late.sh FOLDER    writes there what `go build -overlay=FOLDER/overlay.json` needs
set -eu
calls=$(go env GOROOT)/src/internal/runtime/syscall/linux/asm_linux_amd64.s
mkdir -p "$1"
awk '
	/^\tSYSCALL$/ && ++n == 1 {
		print "	MOVQ AX, R15"
		print "	MOVQ DX, BX"
		print "	RDTSC"
		print "	SHLQ $32, DX"
		print "	ORQ DX, AX"
		print "	IMUL3L $0x9E3779B1, AX, CX" # the counter of cycles is the dice
		print "	SHRL $27, CX"
		print "	JNZ prompt"
		print "	SUBQ slept<>(SB), AX"
		print "	CMPQ AX, $0x800000"
		print "	JLS prompt"
		print "	MOVQ DI, R12"
		print "	MOVQ SI, R13"
		print "	MOVL $35, AX" # nanosleep(2)
		print "	LEAQ nap<>(SB), DI"
		print "	XORL SI, SI"
		print "	SYSCALL"
		print "	RDTSC"
		print "	SHLQ $32, DX"
		print "	ORQ DX, AX"
		print "	MOVQ AX, slept<>(SB)"
		print "	MOVQ R12, DI"
		print "	MOVQ R13, SI"
		print "prompt:"
		print "	MOVQ R15, AX"
		print "	MOVQ BX, DX"
	}
	{ print }
	END {
		print "DATA nap<>+8(SB)/8, $300000000"
		print "GLOBL nap<>(SB), (8+16), $16" # RODATA, NOPTR
		print "GLOBL slept<>(SB), 16, $8"    # NOPTR
		exit n != 1
	}' "$calls" >"$1/calls.s"
printf '{"Replace": {"%s": "%s"}}\n' "$calls" "$(cd "$1" && pwd)/calls.s" >"$1/overlay.json"
