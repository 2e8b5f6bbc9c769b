# The two commands to know: `make demo` and `make test`.
# They run on one Linux machine as root, with Rust and Go; see tests/prerequisites.

.DEFAULT_GOAL := help
SHELL := /bin/sh
CARGO ?= cargo
# What is built. With tests, dependencies have the features that the tests ask for: CI builds all once.
TARGETS ?= --bins
# Set by `cargo` for itself too; where the binaries of the profile that everything here uses are.
TARGET := $(or $(CARGO_TARGET_DIR),target)/debug

.PHONY: help
help: ## Print this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20

.PHONY: demo
demo: build control-plane ## Run a cluster, let an owner fail, and report the effect on a client
	@$(TARGET)/leasehold-lab demo

.PHONY: lab
lab: build control-plane ## Start the same cluster and leave it running
	@$(TARGET)/leasehold-lab up

.PHONY: lab-down
lab-down: ## Stop the cluster of `make lab`
	@$(TARGET)/leasehold-lab down

# What machines run: the images, and programs of other projects.
.PHONY: cluster-build
cluster-build: build
	@tests/prerequisites cluster
	@tests/images/build >/dev/null
	@deploy/image/layout >$(TARGET)/../image-layout
CLUSTER = LEASEHOLD_IMAGES=$$(cat $(TARGET)/../image-layout)
NAME ?= leasehold

.PHONY: cluster
cluster: cluster-build ## Start a cluster of real kubelets with Leasehold and leave it running: NAME=leasehold
	@$(CLUSTER) $(TARGET)/leasehold-lab cluster --name $(NAME) up

.PHONY: cluster-down
cluster-down: ## Stop the cluster of `make cluster`: NAME=leasehold
	@$(TARGET)/leasehold-lab cluster --name $(NAME) down

.PHONY: cluster-demo
cluster-demo: cluster-build ## Run the same cluster, let nodes with pods fail, and report the effect on a client
	@$(CLUSTER) $(TARGET)/leasehold-lab cluster demo

.PHONY: test-cluster
test-cluster: cluster-build ## Run the tests that need real kubelets: FILTER="part-of-a-name another"
	@# What has to be fetched or built: machines are where no network is. The packages of the workspace have the
	@# features that `make test` asks for, so that nothing is compiled twice.
	@for images in previous kube-router; do tests/images/build $$images >/dev/null || exit; done
	@for filter in $(or $(FILTER),""); do \
		$(CLUSTER) $(CARGO) test --workspace --test cluster -- $$filter || exit; \
	done

.PHONY: test-kubernetes
test-kubernetes: cluster-build ## Run Kubernetes' own tests of load balancers and Services: FOCUS=expression
	@tests/prerequisites kubernetes
	@tests/images/build kubernetes >/dev/null
	@$(if $(FOCUS),,rm -f $(or $(OUT),target/bench)/kubernetes.json)
	@$(CLUSTER) $(TARGET)/leasehold-bench --out $(or $(OUT),target/bench) kubernetes $(if $(FOCUS),--focus '$(FOCUS)')

.PHONY: test
test: build control-plane ## Run all tests, including the lab
	@tests/prerequisites test
	@# What has to be fetched: the tests of the lab run where no network is.
	@tests/prometheus/build >/dev/null
	@tests/helm/build >/dev/null
	@tests/olm/build >/dev/null
	@tests/previous/build >/dev/null
	@tests/grafana/check deploy/monitoring/dashboard.json
	$(CARGO) test --workspace

.PHONY: chaos-edits
chaos-edits: build control-plane ## Make a hundred edits per second to twenty Services and their Leases, for a minute
	LEASEHOLD_CHAOS_EDITS=60 $(CARGO) test -p leasehold-lab --test e2e -- edits_by_the_hundred --nocapture

# What is measured is what users run: the binaries of the images. The lab around them is not.
.PHONY: bench-build
bench-build: control-plane
	@tests/prerequisites bench
	@$(CARGO) build --workspace $(TARGETS)
	@deploy/image/binaries >$(TARGET)/../image-binaries
IMAGES = $$(cat $(TARGET)/../image-binaries)
BENCH = LEASEHOLD_SPEAKER=$(IMAGES)/speaker/leasehold-speaker \
	LEASEHOLD_OPERATOR=$(IMAGES)/operator/leasehold-operator $(TARGET)/leasehold-bench

.PHONY: bench-simulator
bench-simulator:
	@$(CARGO) build --quiet --profile bench --package leasehold-sim --bins
	@$(CARGO) bench --quiet --package leasehold-micro --bench micro --no-run
SIMULATOR = $(dir $(TARGET))release/leasehold-sim

.PHONY: bench
RESULTS := tests/bench/results
# What `bench` measures; beside them are results of other targets.
MEASURED = $(addprefix $(RESULTS)/,$(addsuffix .json,failover others pieces-and-starts service cost data-path allocation scale decisions))
IN_PIECES = failover --book pieces-and-starts.json --repeat 50 --systems leasehold --faults node-in-pieces,node-in-pieces-5
OTHERS = failover --book others.json --lanes 5 --systems metallb,kube-vip
# All speakers of a cluster start at once: few clusters beside each other.
COLD = failover --book pieces-and-starts.json --repeat 50 --systems leasehold --faults cold-start --lanes 4
bench: bench-build bench-simulator ## Run all benchmarks, into tests/bench/results and the performance pages
	@rm -f $(MEASURED)
	@$(BENCH) --out $(RESULTS) failover
	@$(BENCH) --out $(RESULTS) failover --profile fast --systems leasehold --faults node-dead
	@$(BENCH) --out $(RESULTS) $(OTHERS)
	@$(BENCH) --out $(RESULTS) $(IN_PIECES)
	@$(BENCH) --out $(RESULTS) $(COLD)
	@$(BENCH) --out $(RESULTS) cost --nodes 3 --services 1,10,100,1000,10000 --seconds 20 --repeat 2
	@$(BENCH) --out $(RESULTS) cost --nodes 5 --seconds 20 --repeat 0
	@$(BENCH) --out $(RESULTS) data-path --seconds 3 --repeat 5
	@$(BENCH) --out $(RESULTS) allocation --repeat 2
	@$(BENCH) --out $(RESULTS) scale --simulator $(SIMULATOR)
	@$(MAKE) --no-print-directory bench-micro
	@$(BENCH) --out $(RESULTS) decisions
	@$(MAKE) --no-print-directory bench-service OUT=$(RESULTS)
	@$(BENCH) report

.PHONY: bench-quick
bench-quick: bench-build ## Run a small part of the benchmarks, into target/bench
	@$(BENCH) failover --repeat 3 --faults node-dead,speaker-restarted,api-restarted
	@$(BENCH) cost --nodes 3 --services 1,100 --seconds 5 --repeat 0
	@$(BENCH) data-path --seconds 1 --repeat 3

.PHONY: bench-failover
bench-failover: bench-build ## Measure the effect of faults on clients: REPEAT=20 REPEAT_SLOW=20 FAULTS=a,b PROFILE=fast LANES=10
	@$(BENCH) failover $(if $(REPEAT),--repeat $(REPEAT)) $(if $(REPEAT_SLOW),--repeat-slow $(REPEAT_SLOW)) \
		$(if $(FAULTS),--faults $(FAULTS)) $(if $(PROFILE),--profile $(PROFILE)) \
		$(if $(SYSTEMS),--systems $(SYSTEMS)) $(if $(LANES),--lanes $(LANES))

.PHONY: bench-service
bench-service: cluster-build ## Count failed connections while nodes with pods fail: REPEAT=3 SYSTEMS=a,b FAULTS=a,b
	@tests/prerequisites bench
	@$(CLUSTER) $(TARGET)/leasehold-bench --out $(or $(OUT),target/bench) service $(if $(REPEAT),--repeat $(REPEAT)) \
		$(if $(SYSTEMS),--systems $(SYSTEMS)) $(if $(FAULTS),--faults $(FAULTS))

.PHONY: matrix
matrix: cluster-build ## Try versions of Kubernetes and modes of kube-proxy, into the compatibility page: VERSIONS=1.33 MODES=ipvs
	@$(CLUSTER) $(TARGET)/leasehold-bench --out $(RESULTS) matrix $(if $(VERSIONS),--versions $(VERSIONS)) \
		$(if $(MODES),--modes $(MODES)); red=$$?; $(BENCH) report && exit $$red

.PHONY: bench-scale
bench-scale: bench-simulator ## Simulate large clusters, in memory: NODES=50,500 SERVICES=10000 RACK=20
	@$(SIMULATOR) scale $(if $(NODES),--nodes $(NODES)) $(if $(SERVICES),--services $(SERVICES)) \
		$(if $(RACK),--rack $(RACK))

.PHONY: bench-micro
bench-micro: ## Benchmark the deciding code: the core, placement, allocation, frames
	@rm -rf $(dir $(TARGET))criterion
	@$(CARGO) bench --quiet --package leasehold-micro --bench micro

.PHONY: instructions
instructions: ## Count the instructions of the deciding code, each with a limit
	@tests/prerequisites instructions
	@GUNGRAUN_RUNNER=$$(tests/cargo-tool gungraun-runner 0.20.0)/gungraun-runner \
		$(CARGO) bench --quiet --package leasehold-micro --bench instructions

.PHONY: soak
soak: bench-build ## Count false alarms without failures: MINUTES=10 KIND=isolation,arp-filter,starved,slow-api,fast-hour,readers,half-open,arp-storm
	@$(BENCH) soak $(if $(MINUTES),--minutes $(MINUTES)) $(if $(KIND),--kind $(KIND))

.PHONY: chaos-outages
chaos-outages: bench-build ## Measure unanswered addresses during repeated API outages and node failures: MINUTES=10
	@$(BENCH) outages $(if $(MINUTES),--minutes $(MINUTES))

.PHONY: bench-allocation
bench-allocation: bench-build ## Measure the operator with SERVICES=10000: memory, restarts, waiting Services
	@$(BENCH) allocation $(if $(SERVICES),--services $(SERVICES)) $(if $(REPEAT),--repeat $(REPEAT))

.PHONY: bench-memory
bench-memory: bench-build ## Measure peak memory beside 20,000 unrelated Services and 2,000 nodes: SERVICES= ENDPOINTS= NODES=
	@$(BENCH) memory $(if $(SERVICES),--services $(SERVICES)) $(if $(ENDPOINTS),--endpoints $(ENDPOINTS)) \
		$(if $(NODES),--nodes $(NODES))

.PHONY: model
model: ## Run the exhaustive model check (SPEAKERS=2 or 3; default: both), then break each rule
	@$(CARGO) build --quiet --package leasehold-model
	@$(TARGET)/leasehold-model check $(if $(SPEAKERS),--speakers $(SPEAKERS))
	@$(TARGET)/leasehold-model break

.PHONY: sim
SEEDS ?= 10000
sim: ## Run the simulator: every directed run, and SEEDS random runs (SEEDS=100000)
	@$(CARGO) build --quiet --profile sim --package leasehold-sim --bins
	@$(dir $(TARGET))sim/leasehold-sim directed
	@$(dir $(TARGET))sim/leasehold-sim run --seeds $(SEEDS)

.PHONY: sim-mutants
sim-mutants: ## Break each rule of the protocol in turn; the simulator must detect it
	@tests/sim/mutants/check

.PHONY: build
build: prerequisites
	@$(CARGO) build --workspace $(TARGETS)

.PHONY: prerequisites
prerequisites:
	@tests/prerequisites

.PHONY: control-plane
control-plane: prerequisites
	@tests/controlplane/build >/dev/null

# All that begin with `#!`.
SCRIPTS := $(shell git grep --cached -lE '^\#!/bin/(ba)?sh' -- ':!*.md' 2>/dev/null)
.PHONY: lint
lint: ## Check format, clippy, docs, scripts, and doc comments, with warnings as errors
	@tests/prerequisites lint
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps
	shellcheck $(SCRIPTS)
	tests/sim/mutants/apply
	tests/prose

.PHONY: book
book: ## Build the book into target/book, and check its links, spelling, and language
	@tests/prerequisites book
	@$(CARGO) run --quiet --package leasehold-links
	@tests/prose
	@tests/book $(TARGET)/../book

.PHONY: deny
deny: ## Check licenses, sources, and known vulnerabilities of dependencies
	@tests/deny

.PHONY: crds
crds: ## Generate the CRDs from the Rust types: crds/generated, and the chart's copy
	@$(CARGO) build --quiet --workspace $(TARGETS)
	@$(TARGET)/generate-crds

.PHONY: bundle
bundle: ## Generate deploy/olm: bundle and catalog for the Operator Lifecycle Manager
	@$(CARGO) build --quiet --workspace $(TARGETS)
	@$(TARGET)/generate-bundle

.PHONY: alerts
RULE := deploy/monitoring/prometheus-rule.yaml
alerts: ## Wrap deploy/monitoring/alerts.yaml for the Prometheus Operator, and copy it into the chart
	@cp deploy/monitoring/alerts.yaml deploy/helm/leasehold/files/alerts.yaml
	@printf '%s\n' '# Written by `make alerts` from alerts.yaml.' \
		'apiVersion: monitoring.coreos.com/v1' 'kind: PrometheusRule' 'metadata:' '  name: leasehold' \
		'  namespace: leasehold-system' '  labels:' '    app.kubernetes.io/name: leasehold' 'spec:' >$(RULE)
	@sed '/^#/d; s/^./  &/' deploy/monitoring/alerts.yaml >>$(RULE)

.PHONY: reference
reference: ## Generate docs/src/reference from the code
	@$(CARGO) build --quiet --workspace $(TARGETS)
	@$(TARGET)/generate-reference

.PHONY: diagrams
diagrams: ## Draw the sequence diagrams of the book from runs of the simulator
	@$(CARGO) build --quiet --workspace $(TARGETS)
	@$(TARGET)/leasehold-sim diagrams

.PHONY: generated
generated: crds alerts bundle reference diagrams ## Write all generated files that are committed

.PHONY: images
images: ## Build both images as an OCI layout, without Docker: ARCH=arm64
	@tests/prerequisites images
	@deploy/image/layout $(ARCH)

.PHONY: clean
clean: ## Remove the build output; the control plane stays in the user's cache
	$(CARGO) clean
