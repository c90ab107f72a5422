# Copyright The Keelson Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Sourced by hack/ecosystem.sh: the suites of Go tests.
# shellcheck shell=bash

# gotest TIMEOUT ARGUMENT... runs "go test" in the current directory, with the programs of
# hack/envtest.sh, which are also in PATH. TIMEOUT limits the tests of each package.
gotest() {
	local timeout=$1 assets
	shift
	assets=$("$root/hack/envtest.sh")
	GOWORK=off GINKGO_NO_COLOR=1 KUBEBUILDER_ASSETS=$assets PATH=$assets:$PATH \
		go test -v -count=1 -vet=off -exec "$own/isolated.sh" -timeout "$timeout" "$@"
}

suite_controller_runtime() {
	source_of sigs.k8s.io/controller-runtime v0.25.2 h1:bEkK3PVOIVK9X8QWLGVhJgmFc++47vfT6wakSzAOLsQ= \
		controller-runtime
	cd "$out/controller-runtime"
	gotest 30m ./pkg/...
}

# suite_kueue runs the packages of test/integration that KUEUE_PACKAGES names, or all.
suite_kueue() {
	kueue_source
	cd "$out/kueue"
	GOWORK=off go build -ldflags '-s -w' -o bin/kubectl-kueue ./cmd/kueuectl
	local packages
	read -ra packages <<<"${KUEUE_PACKAGES:-...}"
	KUEUE_BIN=$PWD/bin gotest 40m "${packages[@]/#/./test/integration/}"
}

# suite_kueue_performance runs the baseline of Kueue's runner: it creates ClusterQueues and Workloads,
# marks Workloads as finished, and records how long they waited. It does not compare these times with
# the limits in Kueue's repository, because those are for other machines.
suite_kueue_performance() {
	kueue_source
	cd "$out/kueue"
	local perf=test/performance/scheduler results=$out/kueue-performance
	GOWORK=off go build -ldflags '-s -w' -o bin/ "./$perf/runner" "./$perf/minimalkueue"
	rm -rf "$results"
	mkdir -p "$results"
	KUBEBUILDER_ASSETS=$("$root/hack/envtest.sh") timeout 20m "$own/isolated.sh" bin/runner --o "$results" \
		--crds=config/components/crd/bases --generatorConfig="$perf/configs/baseline/generator.yaml" \
		--minimalKueue="$PWD/bin/minimalkueue" --withLogs=true --logToFile=true
	cat "$results/summary.yaml"
}

# kueue_source copies Kueue, and the CRDs of the other projects that its tests use, as Kueue's Makefile does.
kueue_source() {
	source_of sigs.k8s.io/kueue v0.17.0 h1:7hzb38M4eKGzYW+CFv2s1L+swzzacUCHOCXxZmAV90I= kueue
	kustomize_program
	crds github.com/kubeflow/mpi-operator manifests/base mpi-operator
	crds github.com/kubeflow/training-operator manifests/base/crds training-operator-crds
	rm "$out/kueue/dep-crds/training-operator-crds/kubeflow.org_mpijobs.yaml" # mpi-operator has a newer one
	crds github.com/kubeflow/trainer/v2 manifests/base/crds kf-trainer-crds
	crds github.com/kubeflow/trainer/v2 manifests/base/runtimes kf-trainer-runtimes '*_distributed.yaml'
	crds github.com/kubeflow/spark-operator/v2 config/crd/bases spark-operator-crds
	crds github.com/ray-project/kuberay/ray-operator config/crd/bases ray-operator-crds
	crds github.com/project-codeflare/appwrapper config/crd/bases appwrapper-crds
	crds k8s.io/autoscaler/cluster-autoscaler/apis config/crd cluster-autoscaler
	crds sigs.k8s.io/jobset config/components/crd/bases jobset-operator
	crds sigs.k8s.io/lws config/crd/bases leaderworkerset-operator
	crds sigs.k8s.io/cluster-inventory-api config/crd/bases clusterprofile
	mkdir "$out/kueue/config/components/crd/_output"
	"$out/bin/kustomize" build "$out/kueue/config/components/crd" \
		>"$out/kueue/config/components/crd/_output/crds-with-webhooks.yaml"
}

# crds MODULE DIRECTORY NAME [PATTERN] copies files of a module that Kueue requires to dep-crds/NAME.
crds() {
	local found
	found=$(cd "$out/kueue" && GOWORK=off go mod download -json "$1" | sed -n 's/.*"Dir": "\(.*\)".*/\1/p')
	mkdir -p "$out/kueue/dep-crds/$3"
	# shellcheck disable=SC2086 # a pattern
	cp -r --no-preserve=mode "$found/$2/"${4:-*} "$out/kueue/dep-crds/$3"
}

# suite_cert_manager runs the integration tests of a checkout, which are a separate module. They find
# their CRDs by the paths of source files in the test binary, which -trimpath in GOFLAGS would remove.
suite_cert_manager() {
	cd "${CERT_MANAGER:?must be a directory with the repository of cert-manager}/test/integration"
	gotest 30m -trimpath=false ./...
}
