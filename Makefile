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
	@tests/prerequisites test
	@tests/prometheus/build >/dev/null
	$(CARGO) test --workspace

# What is measured is what users run; the lab around it is not.
RELEASE := $(dir $(TARGET))release
.PHONY: bench
bench: prerequisites control-plane
	@$(CARGO) build --release --package leasehold --package leasehold-operator --bins
	@$(CARGO) build --package leasehold-lab --bin leasehold-bench
BENCH = LEASEHOLD_SPEAKER=$(abspath $(RELEASE)/leasehold-speaker) \
	LEASEHOLD_OPERATOR=$(abspath $(RELEASE)/leasehold-operator) $(TARGET)/leasehold-bench

.PHONY: bench-failover
bench-failover: bench ## What clients feel of each fault: REPEAT=20 REPEAT_SLOW=20 FAULTS=a,b PROFILE=fast
	@$(BENCH) failover $(if $(REPEAT),--repeat $(REPEAT)) $(if $(REPEAT_SLOW),--repeat-slow $(REPEAT_SLOW)) \
		$(if $(FAULTS),--faults $(FAULTS)) $(if $(PROFILE),--profile $(PROFILE)) $(if $(SYSTEMS),--systems $(SYSTEMS))

.PHONY: soak
soak: bench ## False alarms while nothing dies: MINUTES=10 KIND=isolation,arp-filter,starved,slow-api,fast-hour
	@$(BENCH) soak $(if $(MINUTES),--minutes $(MINUTES)) $(if $(KIND),--kind $(KIND))

.PHONY: bench-allocation
bench-allocation: bench ## The operator with SERVICES=10000: memory, restarts, waiting Services
	@$(BENCH) allocation $(if $(SERVICES),--services $(SERVICES)) $(if $(REPEAT),--repeat $(REPEAT))

.PHONY: model
model: ## The exhaustive model check: SPEAKERS=2 or 3 or, by default, both; then each rule broken
	@$(CARGO) build --quiet --package leasehold-model
	@$(TARGET)/leasehold-model check $(if $(SPEAKERS),--speakers $(SPEAKERS))
	@$(TARGET)/leasehold-model break

.PHONY: sim
SEEDS ?= 10000
sim: ## The simulator: every directed run, and SEEDS random ones (SEEDS=100000)
	@$(CARGO) build --quiet --profile sim --package leasehold-sim --bins
	@$(dir $(TARGET))sim/leasehold-sim directed
	@$(dir $(TARGET))sim/leasehold-sim run --seeds $(SEEDS)

.PHONY: sim-mutants
sim-mutants: ## Breaks each rule of the protocol in turn: the simulator must find it
	@tests/sim/mutants/check

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

.PHONY: alerts
RULE := deploy/monitoring/prometheus-rule.yaml
alerts: ## Wraps deploy/monitoring/alerts.yaml for the Prometheus Operator
	@printf '%s\n' '# Written by `make alerts` from alerts.yaml.' \
		'apiVersion: monitoring.coreos.com/v1' 'kind: PrometheusRule' 'metadata:' '  name: leasehold' \
		'  namespace: leasehold-system' '  labels:' '    app.kubernetes.io/name: leasehold' 'spec:' >$(RULE)
	@sed '/^#/d; s/^./  &/' deploy/monitoring/alerts.yaml >>$(RULE)

.PHONY: clean
clean: ## Removes what was built; the control plane stays in the user's cache
	$(CARGO) clean
