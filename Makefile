# What a developer does here. `make help` prints it; CI runs only these.

GO         ?= go
PREFIX     ?= /usr/local
# The commit goes into --version where git can tell it.
VCS        := $(shell test -e .git && git rev-parse HEAD >/dev/null 2>&1 && echo auto || echo false)
# Where an entry is written for the architecture, fini starts there: see internal/entry/entry_*.s.
entry       = $(if $(wildcard internal/entry/entry_$(1).s),-E github.com/seed-126c5d8a/fini/internal/entry.entry,\
	$(if $(filter amd64 arm64,$(1)),$(error internal/entry/entry_$(1).s is not there, and fini would be built without its entry)))
build       = CGO_ENABLED=0 GOARCH=$(1) GOARM=6 GOAMD64=v1 GO386=sse2 $(GO) build -trimpath -buildvcs=$(VCS) \
	$(REBUILD) -ldflags '-s -w $(call entry,$(1))'
# The version is in internal/host/version.go; where git has a tag, go build puts that in its place.
# Packages of TRIAL=1 are no release's, and say of which commit they are.
VERSION    ?= $(shell bin/fini --version | sed -E 's/.* version (.*) - git/\1/; $(if $(filter 1,$(TRIAL)),s/^([0-9]+[.][0-9]+[.][0-9]+)\./\1-dev.g/;) s/\.[0-9a-f]{7}$$//')
DIST       ?= dist
# The time that everything in a release carries: the commit's, or in a tarball the changelog's.
export SOURCE_DATE_EPOCH ?= $(shell test -e .git && git log -1 --format=%ct 2>/dev/null || \
	date -u -d "$$(sed -n 's/^\#\# \[[0-9.]*\] - //p' CHANGELOG.md | head -n 1)" +%s)
# Tools that tools/pinned/go.mod pins.
TOOL        = $(GO) tool -modfile=$(CURDIR)/tools/pinned/go.mod
STATICCHECK = $(TOOL) staticcheck
CROSS      ?= amd64 arm64 arm 386 ppc64le s390x riscv64
FUZZTIME   ?= 30s
# How deep make explore goes, and the seed of its random walks.
DEPTH      ?= 2
SEED       ?= 1

# The rooms of e2e that nothing may run beside.
QUIET       = cost|stuck

# The go command wants a place for what it keeps.
ifeq ($(HOME),)
export GOCACHE ?= $(CURDIR)/.go/cache
export GOPATH  ?= $(CURDIR)/.go
export GOFLAGS += -modcacherw
endif

.PHONY: help demo build test test-all e2e explore mutants late nightly race portable kernels soak fuzz lint vuln flags rooms pictures man deps cross release reproducible bench install clean

help: ## print this
	@sed -n 's/^\([a-z0-9-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 14

demo: build ## build fini and show it ending a command that leaves a process behind
	@sh tools/demo.sh bin/fini

build: ## build bin/fini, static
	$(call build,$(shell $(GO) env GOARCH)) -o bin/fini .

# Each test says itself whether it is quick. FINI_FULL=1 is for every round and the whole volume, and under FINI_MUST_RUN=1 a
# skip is an error. Nothing is taken from go's cache of results, which does not know that e2e runs bin/fini. tools/ran
# shows what go test shows, and what was skipped. It ends the package of a test that would have taken longer than -each on an
# idle machine. A package that takes longer than BUDGET, in seconds, is an error; and in test-all so is each test, and each
# row of a table, that there is and that did not run. Vet is lint's. Built as fini is, the tests share the standard
# library with it, and nothing of that is compiled twice; nor by the go test of a recipe.
# FINI_BUILT says that bin/fini is of these sources. Rooms run beside each other, more of them than there are processors,
# because they wait more than they compute. Unit tests come first, then a test of each promise, and then what takes longest,
# beside which the others run; and at last the rooms that measure.
test test-all: export GOFLAGS += -trimpath -vet=off
test test-all: export CGO_ENABLED = 0
test test-all: export FINI_BUILT = 1
LONGEST     = long/browsers long/release docs mcp exhaustion long/engines terminal long/peers install docker hostile report
tests       = $(shell $(GO) list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}' ./... | grep -vE '/e2e/($(QUIET)$(1))$$' | \
	awk -v longest='promises $(LONGEST)' 'BEGIN { split(longest, p, " "); for (n in p) at[p[n]] = n } \
		{ room = $$0; if (!sub(".*/e2e/", "", room)) n = 0; else n = room in at ? at[room] : 99; print n, $$0 }' | sort -sn | cut -d' ' -f2)
test: packages = -short $(call tests,|long/.*)
test: quiet    = -short
test: each     = 2m
test-all: packages = $(call tests,)
test-all: each     = 10m
test-all: whole    = -whole
test: build ## run the quick tests, in three to six minutes; those that lack something are skipped, and it says what that is
test-all: build ## run all tests, in all places: engines, browsers, peers, a release and a soak too
test test-all:
	@$(GO) build -o bin/ran ./tools/ran
	@for run in '-p=$(shell expr $$(nproc) \* 3 / 2) $(packages)' '-p=1 $(quiet) $(patsubst %,./e2e/%,$(subst |, ,$(QUIET)))'; do \
		$(GO) test -json -count=1 -timeout 0 -ldflags=-w $$run || echo '{"Action":"fail","Package":"go test"}'; \
	done | bin/ran -each $(each) $(whole) $(if $(BUDGET),-budget $(BUDGET))

e2e: build ## run the tests of the built binary alone, one line each
	$(GO) test -count=1 -timeout 2h -v -p 1 $(shell $(GO) list ./e2e/... | grep -v /e2e/long/)

explore: ## try every order of events in the model of the kernel, deeper than make test does
	@echo "the random walks begin with SEED=$(SEED)"
	$(GO) test -run '^TestExplore$$' -v -timeout 12h ./internal/life -explore.whole -explore.depth $(DEPTH) -explore.seed $(SEED) \
		-explore.states 2000000 -explore.walks 300

mutants: ## make one fault after another in the machines, and see that the tests notice it
	$(GO) run ./tools/mutants -jobs $(shell nproc)

# The rooms that measure are not for it, nor those whose work is thousands of calls, or that need a fini which is quick: a
# fork by the command when the limit is reached, and a report that is written while its path changes.
late: ## run the tests of the built binary with a fini whose system calls are late at random (amd64)
	sh tools/late.sh bin/late && $(MAKE) build REBUILD=-overlay=bin/late/overlay.json && mv bin/fini bin/late/fini && $(MAKE) build
	@FINI_BUILT=1 $(GO) test -count=1 -timeout 1h -p $(shell expr $$(nproc) \* 3 / 2) -skip '^Test(CommandCanFork|HeirWithoutDescriptors|ReportRacesAgainstLinks)$$' \
		$(shell $(GO) list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}' ./e2e/... | grep -vE '/e2e/($(QUIET)|long/.*)$$') -fini $(CURDIR)/bin/late/fini

# Another seed each time tries other walks; explore says which seed it was, to try the same again. If a part fails, the
# others run even so.
nightly: SEED := $(shell date +%s)
nightly: ## run what takes a night: explore with a new seed, fuzz, a late fini, and all mutants, of which none may survive
	@failed=; for part in "explore SEED=$(SEED)" fuzz late mutants; do $(MAKE) $$part || failed="$$failed; make $$part"; done; \
		test -z "$$failed" || { echo "failed: $${failed#; }"; exit 1; }

race: ## run the quick tests of the packages under the race detector, without the explorer of the pure package life
	$(GO) test -race -short -skip '^TestExplore$$' . ./internal/... ./orphans ./pdeath ./reaper ./signals

portable: ## run the tests of what differs on other architectures
	$(GO) test ./internal/entry -run '^TestCode$$'
	$(GO) test -tags portable ./signals ./reaper ./internal/handler
	GOARCH=386 $(GO) vet ./signals ./reaper ./internal/handler

# KERNELS=sid,gVisor runs those columns alone, JOBS says how many at a time, and CHECK=1 leaves the page as it is.
kernels: build ## run the core of the tests on other kernels, arm64 and gVisor, and put what comes of it into tools/kernels/results.md
	$(GO) run ./tools/kernels $(if $(CHECK),,-write) -only '$(KERNELS)' $(if $(JOBS),-jobs $(JOBS))

soak: build ## start and stop for an hour and watch what grows
	FINI_FULL=1h $(GO) test ./e2e/long/soak -run TestSoak -v -timeout 2h

bench: build ## measure fini beside tini and others, into tools/bench/
	$(GO) run ./tools/bench -csv tools/bench/bench.csv && gnuplot -e "dir='tools/bench'" tools/bench/bench.gp

fuzz: ## fuzz each parser and the step function for FUZZTIME
	@for pkg in $(sort $(dir $(shell grep -rl --include='*_test.go' '^func Fuzz' .))); do \
		all=$$($(GO) test -list '^Fuzz' $$pkg) || { echo "$$all"; exit 1; }; \
		for f in $$(echo "$$all" | grep '^Fuzz'); do \
			$(GO) test -run '^$$' -fuzz "^$$f\$$" -fuzztime $(FUZZTIME) $$pkg || exit 1; \
		done; \
	done

lint: ## gofmt, go vet, staticcheck, the walls between packages, the mutants' text, actionlint, shellcheck, mandoc
	@out=$$(gofmt -l .); test -z "$$out" || { echo "gofmt would change: $$out"; exit 1; }
	$(GO) vet ./... && $(GO) vet -C tools/schema . && $(GO) vet -C packaging .
	$(STATICCHECK) ./... && for module in tools/schema packaging; do (cd $$module && $(STATICCHECK) .) || exit 1; done
	CGO_ENABLED=0 $(GO) run ./tools/walls
	CGO_ENABLED=0 $(GO) run ./tools/mutants -check
	$(TOOL) actionlint
	shellcheck .ci/run tools/*.sh tools/kernels/*.sh packaging/*.sh packaging/*/*.sh
	mandoc -T lint -W warning docs/fini.1

vuln: ## ask the Go vulnerability database about fini; VEX=FILE writes the answer as OpenVEX; this needs the network
	@$(TOOL) govulncheck $(if $(VEX),-format openvex) ./... $(if $(VEX),>$(VEX)) || \
		{ echo "govulncheck found something, or could not reach its database, for which it needs the network"; exit 1; }

flags: ## write what lists the flags, after a change of the struct in internal/cli/flags.go
	$(GO) run ./tools/flags
	mandoc -T markdown docs/fini.1 >docs/man.md

rooms: ## draw docs/rooms.svg, after a change of what a package imports
	$(GO) run ./tools/rooms >docs/rooms.svg.new && mv docs/rooms.svg.new docs/rooms.svg

pictures: ## draw the pictures of docs/
	$(GO) run ./tools/pictures

man: ## show the man page as it is here
	man -l docs/fini.1

deps: ## install what the full run needs (Debian, as root)
	sh tools/deps.sh

cross: ## build for every architecture, into dist/
	$(foreach arch,$(CROSS),GOOS=linux $(call build,$(arch)) -o $(DIST)/fini-linux-$(arch) . &&) true

release: build ## build and package for every architecture, into dist/
	@said=$$(bin/fini --version | cut -d' ' -f3); version='$(VERSION)'; test "$$said" = "$${version%-dev.g*}" || \
		{ echo "bin/fini says that it is $$said, and not $(VERSION)"; exit 1; }
	@first=$$(sed -n 's/^## \[\([^]]*\)\].*/\1/p' CHANGELOG.md | head -n 1); test "$$first" = '$(VERSION)' || test -n '$(TRIAL)' || \
		{ echo "CHANGELOG.md begins with $$first, and not with $(VERSION); TRIAL=1 makes a release that is none, to look at"; exit 1; }
	rm -rf $(DIST)
	@$(MAKE) cross
	sh packaging/release.sh $(DIST) $(VERSION) $(CROSS)

# The second time with an empty cache, as good as on another machine.
reproducible: ## make the release twice, in different folders, and compare
	@sh packaging/reproducible.sh

install: build ## install fini, its man page and its completions below DESTDIR/PREFIX
	install -D -m 0755 bin/fini $(DESTDIR)$(PREFIX)/bin/fini
	install -D -m 0755 packaging/fini-sh $(DESTDIR)$(PREFIX)/bin/fini-sh
	install -D -m 0644 docs/fini.1 $(DESTDIR)$(PREFIX)/share/man/man1/fini.1
	install -D -m 0644 packaging/completions/fini.bash $(DESTDIR)$(PREFIX)/share/bash-completion/completions/fini
	install -D -m 0644 packaging/completions/fini.zsh $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_fini
	install -D -m 0644 packaging/completions/fini.fish $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/fini.fish

clean: ## remove what was built
	rm -rf bin dist .go
