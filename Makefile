# Copyright The Keelson Authors.
# SPDX-License-Identifier: Apache-2.0

# The commands for users and contributors. Every target can be run again; existing results are reused.

CLUSTER    ?= keelson
NODES      ?= 2
KUBECONFIG ?= $(CURDIR)/.build/kubeconfig
FOCUS      ?=
TESTFLAGS  ?=
FUZZTIME   ?= 30s
SEEDS      ?= 1000
DURATION   ?= 1h
TURN       ?=
SHARE      ?= 1/1

# Programs and tests are compiled with the same flags, so that packages of both are compiled only once.
# The linker drops DWARF debugging data anyway; without it, the compiler needs a tenth less CPU time.
# With grpcnotrace, gRPC does not import golang.org/x/net/trace, whose templates call methods by name.
# Because of such calls, the linker would keep all methods: programs would be 1.5 times as large.
export CGO_ENABLED = 0
export GOFLAGS = -trimpath -gcflags=all=-dwarf=false -tags=grpcnotrace

.PHONY: help up down cis monitoring deps build tools images envtest check test unit lint race fuzz perturb e2e soak \
	upgrade machines alerts metrics conformance integration stores ecosystem turn release release-test clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

up: deps tools build images ## a cluster of two nodes on this machine
	@bin/ctl cluster up --name $(CLUSTER) --nodes $(NODES) --kubeconfig $(KUBECONFIG)

down: ## stop the cluster and remove everything that belongs to it
	@if [ -x bin/ctl ]; then bin/ctl cluster down --name $(CLUSTER); fi
	@rm -f $(KUBECONFIG)

monitoring: ## Prometheus with alerts for the running cluster, at http://127.0.0.1:9090
	@hack/monitoring/run.sh $(CLUSTER)

cis: ## the checks of the CIS Kubernetes Benchmark on the running cluster
	@hack/cis.sh $(CLUSTER)

deps: ## the Debian packages that are missing
	@hack/deps.sh

build: ## the six programs and the CNI plugin, into bin/
	@hack/build.sh

tools: ## containerd, crun, CNI plugins and CoreDNS, into bin/tools/
	@hack/tools.sh

images: tools ## the images that every node starts with, into .build/images/
	@hack/images.sh

envtest: ## kube-apiserver, etcd and kubectl for envtest; prints the directory for KUBEBUILDER_ASSETS
	@hack/envtest.sh

check: lint ## lint, and the tests that need neither root nor built tools: run it after each change
	@hack/test.sh -short $(TESTFLAGS)

test: lint unit e2e ## lint, and the unit, integration and e2e tests

unit: tools ## unit and integration tests, and the tests of the source code's rules (test/arch)
	@hack/test.sh

race: tools ## the race detector over every package that starts goroutines; SHARE=1/2 for half of them
	@hack/race.sh --share $(SHARE)

fuzz: ## every fuzz target for FUZZTIME
	@hack/fuzz.sh $(FUZZTIME)

perturb: ## every controller with SEEDS random sequences of faults
	@go test -count=1 -timeout 0 ./pkg/controllers/perturb -seeds $(SEEDS)

e2e: deps tools build images ## a real cluster with real containers
	@hack/tools.sh etcd helm sidecars
	@hack/images.sh e2e
	@hack/images.sh sidecars
	@KEELSON_E2E=1 go test -count=1 -timeout 25m ./test/e2e
	@KEELSON_SOAK=45s go test -count=1 -timeout 10m ./test/soak
	@hack/deps.sh machines
	@hack/machines.sh >/dev/null
	@KEELSON_MACHINES=1 go test -count=1 -timeout 10m -run 'TestBackup$$' -v ./test/machines

soak: deps tools build images ## a cluster under load for DURATION while everything is killed at random
	@hack/tools.sh etcd
	@hack/images.sh e2e
	@KEELSON_SOAK=$(DURATION) go test -count=1 -timeout 0 -v ./test/soak

upgrade: deps tools build images ## from the previous release of Kubernetes to this one under load, and back
	@hack/tools.sh etcd
	@hack/previous.sh
	@KEELSON_UPGRADE=1 go test -count=1 -timeout 25m -v ./test/upgrade

machines: deps tools build images ## ctl on machines with systemd; TESTFLAGS='-run REGEX' for a part
	@hack/tools.sh etcd
	@hack/deps.sh machines
	@hack/machines.sh >/dev/null
	@KEELSON_MACHINES=1 go test -count=1 -timeout 31m -p 1 -v $(TESTFLAGS) ./test/machines/...

alerts: deps tools build images ## the alerts for a real cluster, first healthy and then with faults: 25 minutes
	@KEELSON_MONITORING=10m hack/monitoring/test.sh -v -timeout 30m

metrics: deps build ## compare the metrics that Kubernetes and Keelson set during the same work
	@KEELSON_BESIDE=1 go test -count=1 -timeout 30m -run Beside -v ./test/metrics

lint: ## gofmt, go vet, staticcheck and golangci-lint over the modules of go.work
	@hack/lint.sh

conformance: deps tools build images ## the upstream Conformance suite; FOCUS=REGEX for a part of it
	@test/conformance/run.sh '$(FOCUS)'

integration: ## Kubernetes' own integration tests against our API server; SHARE=1/4 for a part of them
	@SHARE=$(SHARE) test/conformance/integration.sh

stores: ## Keelson with the etcd data of Kubernetes 1.36 and 1.37, and the other way round
	@test/conformance/stores.sh

ecosystem: ## the suites of other projects, unmodified, against Keelson
	@hack/ecosystem.sh

turn: ## the long check that CI runs for this commit (see hack/turn.sh), or TURN=NAME
	@hack/turn.sh $(TURN)

release: deps ## archives and Debian packages of this commit for amd64 and arm64, into dist/
	@hack/release.sh

release-test: deps ## build a release twice, in two directories, and compare the bytes
	@hack/release-test.sh

clean: down ## remove what was built
	@rm -rf bin .build dist
