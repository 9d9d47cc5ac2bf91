# Eight jobs in two makes, which share the jobs of the one that runs them. SUB is put before
# each of the two, JOB before each of the eight. A job says "up", and "down" once it may end.
MAKEFLAGS += --no-print-directory
self := $(lastword $(MAKEFILE_LIST))

all: a b

a b:
	@$(SUB) $(MAKE) -f $(self) $@1 $@2 $@3 $@4

a1 a2 a3 a4 b1 b2 b3 b4:
	@$(JOB) sh -c '$(LEAK) echo up; read go <$(GO); echo down'
