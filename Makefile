# What people do here; CONTRIBUTING.md has the words. Needs Rust, a C compiler and, for later
# parts, Python 3; never root.

CARGO ?= $(firstword $(shell command -v cargo 2>/dev/null) $(wildcard $(HOME)/.cargo/bin/cargo))
FORERUN = target/release/forerun
SEEDS ?= 10000
# CI=true, as build servers set it: what a machine lacks is a failure there.
SKIPS = $(if $(filter true,$(CI)),--no-skips)

.PHONY: help demo test seeds mutants sanitize bench fmt tools release

help:
	@echo 'make demo     what readahead gains, on a built-in slow device: a table and a page'
	@echo 'make test     everything that a change must pass'
	@echo 'make seeds    the core against faults, $(SEEDS) seeds'
	@echo 'make mutants  do the tests of core notice small faults?'
	@echo 'make sanitize memory errors: AddressSanitizer and valgrind, where they are installed'
	@echo 'make bench    interleaved streams from an emulated disk, in real time'
	@echo 'make fmt      format the sources'

demo: release
	@$(FORERUN) demo

test: tools
	@$(CARGO) xtask ci $(SKIPS)

seeds: release
	@$(FORERUN) sim check --seeds $(SEEDS)

mutants: tools
	@$(CARGO) xtask mutants

sanitize: tools
	@$(CARGO) xtask sanitize

bench: release
	@$(FORERUN) bench streams --device t7k250

fmt: tools
	@$(CARGO) fmt --all

release: tools
	@commit=$$(git rev-parse --short HEAD 2>/dev/null) && export FORERUN_COMMIT=$$commit; \
	    $(CARGO) build --release --package forerun-cli

tools:
	@test -n '$(CARGO)' && $(CARGO) --version >/dev/null || { \
	    echo 'make: no cargo. Install Rust 1.88 or later: https://rustup.rs' >&2; exit 1; }
	@command -v cc >/dev/null || { \
	    echo 'make: no C compiler. On Debian: apt-get install build-essential' >&2; exit 1; }
