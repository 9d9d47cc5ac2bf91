# What a developer does here. `make help` prints it; CI runs only these.

GO         ?= go
PREFIX     ?= /usr/local
# The commit goes into --version where git can tell it.
VCS        := $(shell git rev-parse HEAD >/dev/null 2>&1 && echo auto || echo false)
# Where an entry is written for the architecture, fini starts there: see reaper/entry_*.s.
entry       = $(if $(wildcard reaper/entry_$(1).s),-E github.com/seed-126c5d8a/fini/reaper.entry)
build       = CGO_ENABLED=0 GOARCH=$(1) $(GO) build -trimpath -buildvcs=$(VCS) -ldflags '-s -w $(call entry,$(1))'
STATICCHECK = $(GO) run honnef.co/go/tools/cmd/staticcheck@v0.8.1
CROSS      := amd64 arm64 arm 386 ppc64le s390x riscv64
FUZZTIME   ?= 30s

.PHONY: help demo build test e2e race fuzz lint deps cross install clean

help: ## print this
	@sed -n 's/^\([a-z0-9]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 10

demo: build ## build fini and show it ending a command that leaves an escapee behind
	@sh e2e/demo.sh bin/fini

build: ## build bin/fini, static
	$(call build,$(shell $(GO) env GOARCH)) -o bin/fini .

test: build ## run all tests; those that lack something are skipped and say so
	$(GO) test -timeout 20m ./...

e2e: build ## run the tests of the built binary alone, one line each
	$(GO) test -timeout 20m -v ./e2e

race: ## run the tests of the packages under the race detector
	$(GO) test -race . ./orphans ./pdeath ./reaper ./signals

fuzz: ## fuzz each parser and the step function for FUZZTIME
	@for pkg in . ./orphans ./signals; do \
		for f in $$($(GO) test -list '^Fuzz' $$pkg | grep '^Fuzz'); do \
			$(GO) test -run '^$$' -fuzz "^$$f\$$" -fuzztime $(FUZZTIME) $$pkg || exit 1; \
		done; \
	done

lint: ## gofmt, go vet, staticcheck, shellcheck
	@out=$$(gofmt -l .); test -z "$$out" || { echo "gofmt would change: $$out"; exit 1; }
	$(GO) vet ./...
	$(STATICCHECK) ./...
	shellcheck .ci/run e2e/*.sh

deps: ## install what the full run needs (Debian, as root)
	sh e2e/deps.sh

cross: ## build for every architecture, into dist/
	$(foreach arch,$(CROSS),GOOS=linux GOARM=7 $(call build,$(arch)) -o dist/fini-linux-$(arch) . &&) true

install: build ## install bin/fini into DESTDIR/PREFIX/bin
	install -D -m 0755 bin/fini $(DESTDIR)$(PREFIX)/bin/fini

clean: ## remove what was built
	rm -rf bin dist
