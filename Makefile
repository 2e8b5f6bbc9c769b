# The two commands to know: `make demo` and `make test`.
# They run on one Linux machine as root, with Rust and Go; see tests/prerequisites.

.DEFAULT_GOAL := help
SHELL := /bin/sh
CARGO ?= cargo
# Set by `cargo` for itself too; where the binaries of the profile that everything here uses are.
TARGET := $(or $(CARGO_TARGET_DIR),target)/debug

.PHONY: help
help: ## This list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20

.PHONY: demo
demo: build control-plane ## A cluster, an address, an owner that dies: and what a client felt
	@$(TARGET)/leasehold-lab demo

.PHONY: lab
lab: build control-plane ## The same cluster, left running to play with
	@$(TARGET)/leasehold-lab up

.PHONY: lab-down
lab-down: ## Ends what `make lab` left running
	@$(TARGET)/leasehold-lab down

.PHONY: test
test: build control-plane ## Every test, the whole lab included
	$(CARGO) test --workspace

.PHONY: build
build: prerequisites
	@$(CARGO) build --workspace --bins

.PHONY: prerequisites
prerequisites:
	@tests/prerequisites

.PHONY: control-plane
control-plane: prerequisites
	@tests/controlplane/build >/dev/null

.PHONY: lint
lint: ## Format, clippy and docs, warnings as errors
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps

.PHONY: crds
crds: ## Generates crds/generated from the Rust types
	$(CARGO) run --quiet --package leasehold-crds --bin generate-crds

.PHONY: clean
clean: ## Removes what was built; the control plane stays in the user's cache
	$(CARGO) clean
