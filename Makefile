# Thin: each line is a command that a person could type. `make demo` and `make test` build the same set of crates with the
# same features, so that nothing is compiled twice.

CARGO ?= cargo
ARGS ?=
KIT ?= ../shared/field/kit.py

.PHONY: help demo build wasm test bench stalled field soak

help:
	@echo "make demo              build everything, start a gateway with three backends, show a tour, stay up"
	@echo "make demo ARGS=--exit  the same, and stop after the tour"
	@echo "make test              format, clippy, unit and end-to-end tests, the conformance suite, real clients and servers"
	@echo "make bench             what policies cost, side by side"
	@echo "make stalled           400 sessions, 40 of which stop reading, for a minute; with a chart, and beside another gateway"
	@echo "make soak              make and delete 20,000 sessions: memory has to return; a minute of refusals: each call runs once"
	@echo "make field KIT=path    run a field kit against the gateway"

wasm:
	@rustup target list --installed 2>/dev/null | grep -qx wasm32-unknown-unknown || rustup target add wasm32-unknown-unknown

build: wasm
	$(CARGO) build --workspace --bins

demo: build
	target/debug/lockgate demo $(ARGS)

test: wasm
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	$(CARGO) build --workspace --bins
	target/debug/lockgate demo --exit
	for p in alias filter namespace route; do target/debug/lockgate policy test $$p --fixtures plugins/$$p/fixtures || exit 1; done
	tests/real/setup
	tests/run

bench: build
	$(CARGO) bench --profile dev --workspace --bench policies

stalled: build
	$(CARGO) bench --profile dev --workspace --bench stalled

soak: build
	SOAK_SESSIONS=20000 RETRY_SECONDS=60 $(CARGO) test --workspace --test e2e -- memory:: a_client_that_honours_retry_after --nocapture --test-threads 1

field: build
	LOCKGATE=$(CURDIR)/target/debug/lockgate python3 $(KIT) --gateway lockgate $(ARGS)
