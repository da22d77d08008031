# What people do here; CONTRIBUTING.md has the words. Needs Rust, a C compiler and, for the Python
# package, Python 3.10; never root.

CARGO ?= $(firstword $(shell command -v cargo 2>/dev/null) $(wildcard $(HOME)/.cargo/bin/cargo))
TARGET = $(or $(CARGO_TARGET_DIR),target)
FORERUN = $(TARGET)/release/forerun
SEEDS ?= 10000
PREFIX ?= /usr/local
SHARE = $(DESTDIR)$(PREFIX)/share
FUZZ_SECONDS ?= 600
# Of each target but the readers of traces.
FUZZ_SECONDS_OTHERS ?= 60
HOSTILE_SECONDS ?= 600
# One of `forerun sim --list-formats`, or auto; all in turn where it is empty.
FUZZ_FORMAT ?=
# CI=true, as build servers set it: what a machine lacks is a failure there.
SKIPS = $(if $(filter true,$(CI)),--no-skips)

.PHONY: help demo test seeds fuzz mutants sanitize soak bench bench-engine fmt tools release install symbols \
    test-python test-python-full wheel hostile

help:
	@echo 'make demo     what programs gain on a slow volume that it makes: a table and a page'
	@echo 'make test     everything that a change must pass'
	@echo 'make test-python        the Python package alone, of that'
	@echo 'make test-python-full   the Python package beside pandas, zarr, xarray, ...'
	@echo 'make wheel    the Python package as a wheel, in target/wheels'
	@echo 'make install  the command, its shim, manual pages and completions, under PREFIX ($(PREFIX))'
	@echo 'make symbols  the command with all that a debugger or a profiler wants, in target/symbols'
	@echo 'make seeds    the core against faults, $(SEEDS) seeds'
	@echo 'make fuzz     readers of traces against any bytes, $(FUZZ_SECONDS) s (needs cargo-fuzz), then'
	@echo '              convert, vectors, journals, the ring, accesses, NBD and learned lists,'
	@echo '              $(FUZZ_SECONDS_OTHERS) s each;'
	@echo '              FUZZ_FORMAT=spc for one of them'
	@echo 'make hostile  the NBD server against clients that do what none should, $(HOSTILE_SECONDS) s'
	@echo 'make mutants  do the tests of core notice small faults?'
	@echo 'make soak     the live engine for ten minutes and 100M reads, everything checked'
	@echo 'make sanitize memory errors: AddressSanitizer and valgrind, where they are installed'
	@echo 'make bench    interleaved streams from an emulated disk, in real time'
	@echo 'make bench-engine   the engine beside fio and pread on this machine (needs fio)'
	@echo 'make fmt      format the sources'

demo: release
	@'$(FORERUN)' demo

test: tools
	@$(CARGO) xtask ci $(SKIPS)

test-python: tools
	@$(CARGO) xtask python $(SKIPS)

test-python-full: tools
	@$(CARGO) xtask python --full $(SKIPS)

wheel: tools
	@$(CARGO) xtask wheel

seeds: release
	@'$(FORERUN)' sim check --seeds $(SEEDS)

fuzz: tools
	@$(CARGO) fuzz --version >/dev/null 2>&1 || { \
	    echo 'make: no cargo-fuzz: cargo install cargo-fuzz, and a nightly Rust' >&2; exit 1; }
	@FUZZ_FORMAT=$(FUZZ_FORMAT) $(CARGO) +nightly fuzz run trace -- -max_total_time=$(FUZZ_SECONDS)
	@for target in convert vectors journal ring accesses nbd learned; do \
	    $(CARGO) +nightly fuzz run $$target -- -max_total_time=$(FUZZ_SECONDS_OTHERS) || exit 1; done

hostile:
	@FORERUN_HOSTILE_SECONDS=$(HOSTILE_SECONDS) $(CARGO) test --release -p forerun-nbd --test server \
	    hostile -- --nocapture

mutants: tools
	@$(CARGO) xtask mutants

soak: tools
	@$(CARGO) xtask soak $(SOAK)

sanitize: tools
	@$(CARGO) xtask sanitize

bench: release
	@'$(FORERUN)' bench streams --device t7k250

bench-engine: tools
	@$(CARGO) xtask bench engine

fmt: tools
	@$(CARGO) fmt --all

release: tools
	@$(CARGO) build --release --package forerun-cli --package forerun-preload

# The shim is a file of its own: the loader takes nothing else.
install: release
	@install -D '$(FORERUN)' '$(DESTDIR)$(PREFIX)/bin/forerun'
	@install -D -m 644 '$(TARGET)/release/libforerun_preload.so' '$(DESTDIR)$(PREFIX)/lib/libforerun_preload.so'
	@'$(FORERUN)' man '$(SHARE)/man/man1'
	@mkdir -p '$(SHARE)/bash-completion/completions' '$(SHARE)/zsh/site-functions' \
	    '$(SHARE)/fish/vendor_completions.d'
	@'$(FORERUN)' completions bash > '$(SHARE)/bash-completion/completions/forerun'
	@'$(FORERUN)' completions zsh > '$(SHARE)/zsh/site-functions/_forerun'
	@'$(FORERUN)' completions fish > '$(SHARE)/fish/vendor_completions.d/forerun.fish'

# With lines and variables, for a debugger or a profiler: target/symbols.
symbols: tools
	@$(CARGO) build --profile symbols --package forerun-cli --package forerun-preload

tools:
	@test -n '$(CARGO)' && $(CARGO) --version >/dev/null || { \
	    echo 'make: no cargo. Install Rust 1.88 or later: https://rustup.rs' >&2; exit 1; }
	@command -v cc >/dev/null || { \
	    echo 'make: no C compiler. On Debian: apt-get install build-essential' >&2; exit 1; }
