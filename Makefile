# Thin: each line is a command that a person could type. `make demo` and `make test` build the same set of crates with the
# same features, so that nothing is compiled twice.

CARGO ?= cargo
ARGS ?=
KIT ?= ../shared/field/kit.py

QUICK ?=
PEERS ?=

.PHONY: help demo build wasm test dist bench bench-peers bench-instructions stalled field soak

help:
	@echo "make demo              build everything, start a gateway with three backends, show a tour, stay up"
	@echo "make demo ARGS=--exit  the same, and stop after the tour"
	@echo "make test              format, clippy, unit and end-to-end tests, the conformance suite, real clients and servers"
	@echo "make bench             what a hop costs, side by side with other gateways: tables and charts (25 minutes; QUICK=1: three)"
	@echo "make bench-peers       install the other gateways that can be (nginx, Envoy; PEERS=all: the crate mcp-proxy, too)"
	@echo "make bench-instructions  count the instructions of a call, against what is recorded"
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

# As it is released: optimised across crates, which takes minutes at each link.
dist: wasm
	$(CARGO) build --profile dist --workspace --bin lockgate --bin rmcp-gateway --bin lockgate-bench

bench: dist
	target/dist/lockgate-bench run --docs docs $(if $(QUICK),--quick) $(ARGS)

bench-peers:
	tests/bench/peers $(PEERS)

bench-instructions: dist
	target/dist/lockgate-bench instructions $(ARGS)

stalled: build
	$(CARGO) bench --profile dev --workspace --bench stalled

soak: build
	SOAK_SESSIONS=20000 RETRY_SECONDS=60 $(CARGO) test --workspace --test e2e -- memory:: a_client_that_honours_retry_after --nocapture --test-threads 1

field: build
	LOCKGATE=$(CURDIR)/target/debug/lockgate python3 $(KIT) --gateway lockgate $(ARGS)
