#!/usr/bin/env bash
# Copyright The Keelson Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Runs Kubernetes' Conformance suite, or a part of it, against a new cluster, and writes the results to
# a file. It ends with an error unless all specs passed.
set -euo pipefail

case ${1:-} in
-h | --help)
	cat <<-'USAGE'
		usage: test/conformance/run.sh [FOCUS]

		FOCUS is a regular expression of the specs to run (default: all). Environment variables, with
		their defaults in parentheses:

		LABELS    ginkgo's label filter for the specs (Conformance)
		PROCS     number of parallel processes (6)
		TIMEOUT   time limit for the whole run (60m)
		SKIP      regular expression of specs to leave out (none)
		FAMILY    IP families of the cluster: ipv4, ipv6 or dual (ipv4)
		NODES     number of nodes (2)
		MACHINES  1: make the cluster with "ctl init" and "ctl join" on machines with systemd (test/machines/lab):
		          three control planes and two workers. By default, SKIP is then the spec that fails there (none)
		ZONES     number of zones among which the nodes are divided; 0 means no zones (0)
		SHARE     I/N: divide the specs into N parts and run part I (1/1)
		ATTEMPTS  maximum number of attempts for each spec (1)
		STORAGE   1: install the CSI driver of test/csi with support for snapshots, and also run the suite's
		          specs for drivers (External Storage). They have no label, so set LABELS='!Disruptive'.
		          now: the same, with volumes that are created before a pod uses them (none)
		PODGROUPS 1: make a cluster that serves and schedules PodGroups, and run the specs about them:
		          LABELS is then 'FeatureGate: consistsOf GenericWorkload', and PROCS is 1 (none)
		RESUME    1: continue an earlier run, and leave out the specs that passed in it (none)
		OUT       file to which the results are written (docs/explanation/conformance.md)
		NAME      name of the cluster (conformance)
		TITLE     title of the section in OUT (made from the other variables)
	USAGE
	exit
	;;
esac
focus=${1:-}
labels=${LABELS:-Conformance}
procs=${PROCS:-6}
if [[ -n ${PODGROUPS:-} ]]; then
	labels=${LABELS:-FeatureGate: consistsOf GenericWorkload}
	procs=${PROCS:-1}
fi
timeout=${TIMEOUT:-60m}
skip=${SKIP:-}
family=${FAMILY:-ipv4}
nodes=${NODES:-2}
zones=${ZONES:-0}
host=10.50.0.1 # where nodes find the registry, and the suite the API, in the form for URLs
[[ $family != ipv6 ]] || host='[fd50::1]'
if [[ -n ${MACHINES:-} ]]; then
	if [[ -n ${FAMILY:-}${NODES:-}${ZONES:-}${STORAGE:-}${PODGROUPS:-}${NAME:-} ]]; then
		echo "conformance: FAMILY, NODES, ZONES, STORAGE, PODGROUPS and NAME cannot be set together with MACHINES" >&2
		exit 2
	fi
	host=10.60.0.1
	# /proc/sys/kernel is read-only on these machines, because most settings are those of the machine below.
	skip=${SKIP:-Sysctls .* should support sysctls}
	TITLE=${TITLE:-Three control planes on machines}
fi
out=${OUT:-docs/explanation/conformance.md}

storage=()
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$root"
bin=bin/conformance
images=.build/conformance-images
name=${NAME:-conformance}
mkdir -p "$bin/images" "$images"
if [[ -n ${MACHINES:-} ]]; then
	hack/tools.sh etcd
	hack/deps.sh machines
fi
drivers=() # image archives of the CSI driver, of the CSI sidecars, and for the suite's own mock drivers
if [[ -n ${STORAGE:-} ]]; then
	class=csi
	[[ $STORAGE != now ]] || class=csi-now
	sed "/^StorageClass:/,/^[V]/s/: csi$/: $class/" test/csi/testdriver.yaml >"$bin/testdriver.yaml"
	storage=(--storage.testdriver="$root/$bin/testdriver.yaml")
	hack/tools.sh sidecars
	for kind in e2e sidecars mock; do
		hack/images.sh "$kind"
	done
	drivers=(.build/e2e-images/csi.tar .build/e2e-images/{sidecars,mock}/*.tar)
fi

# Compiling the suite takes minutes. Do it only if the suite is missing or its sources have changed.
digest=$(cat go.mod test/conformance/run.sh hack/registry/*.go test/conformance/{go.mod,go.sum,*.go,report/*.go} \
	| sha256sum | cut -d' ' -f1)
if [[ ! -f $bin/.stamp || $(<"$bin/.stamp") != "$digest" ]]; then
	echo "conformance: compiling the suite"
	(
		cd test/conformance
		export GOWORK=off CGO_ENABLED=0
		# Set the Kubernetes version of the test binary, on which some specs depend. It would be 0.0.
		release=$(go list -m -f '{{.Version}}' k8s.io/kubernetes)
		minor=${release#v1.}
		v=k8s.io/component-base/version
		go test -c -vet=off -ldflags "-X $v.gitVersion=$release -X $v.gitMajor=1 -X $v.gitMinor=${minor%%.*}" \
			-o "$root/$bin/e2e.test" .
		for program in agnhost nonewprivs regression-issue-74839 resource-consumer resource-consumer/consume-cpu \
			sample-device-plugin; do
			go build -trimpath -ldflags '-s -w' -o "$root/$bin/images/$(basename "$program")" \
				"k8s.io/kubernetes/test/images/$program"
		done
		go build -trimpath -ldflags '-s -w' -o "$root/$bin/images/sample-apiserver" k8s.io/sample-apiserver
		go build -o "$root/$bin/ginkgo" github.com/onsi/ginkgo/v2/ginkgo
		go build -o "$root/$bin/report" ./report
	)
	CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o "$bin/images/etcd" go.etcd.io/etcd/server/v3
	go build -o "$bin/registry" ./hack/registry
	echo "$digest" >"$bin/.stamp"
fi
hack/debian.sh .build/image-parts/debian bash curl wget hostname conntrack bind9-dnsutils iproute2 \
	netcat-openbsd iperf util-linux coreutils dash grep sed procps net-tools libc-bin
go run ./hack/images -out "$images" -debian .build/image-parts/debian -busybox .build/image-parts/busybox \
	-coredns bin/tools/coredns -web .build/image-parts/web -pause .build/image-parts/pause \
	-index test/images/web/index.html -programs "$bin/images" \
	-sources "$(cd test/conformance && GOWORK=off go list -m -f '{{.Dir}}' k8s.io/kubernetes)/test/images"

work=$(mktemp -d)
registry=
logs=.build/conformance-logs
# take_down ends a cluster in namespaces, and keeps the logs of its processes.
take_down() {
	[[ -z $registry ]] || kill "$registry"
	cp -r "$work"/data/logs/. "$logs" || true
	for node in "$work"/data/nodes/*/; do
		mkdir "$logs/$(basename "$node")" && cp "$node"/var/log/*.log "$logs/$(basename "$node")" || true
	done
	bin/ctl cluster down --name "$name"
	# Detach the loop devices of volumes that still exist, because the kernel would keep them.
	for disk in "/srv/keelson-$name-csi"/volumes/*/disk; do
		[[ ! -e $disk ]] || losetup --associated "$disk" --noheadings --output NAME | xargs -r losetup --detach || true
	done
	rm -rf "/srv/keelson-$name-csi"
}
end() {
	rm -rf "$logs"
	mkdir -p "$logs"
	if [[ -n ${MACHINES:-} ]]; then
		cp -r "$work"/logs/. "$logs" || true
	else
		take_down
	fi
	rm -rf "$work"
}
trap end EXIT
# Ginkgo can neither divide specs into shares nor continue an earlier run. So get the names of all specs
# from a dry run, and choose the specs to run by name.
reports=.build/conformance-reports
env KUBECONFIG="$work/none" "$bin/e2e.test" --ginkgo.dry-run --ginkgo.label-filter="$labels" --ginkgo.skip="$skip" \
	--ginkgo.json-report="$work/dry.json" --provider=skeleton --kubeconfig="$work/none" --report-dir= \
		"${storage[@]}" >/dev/null
[[ -n ${RESUME:-} ]] || rm -rf "$reports"
mkdir -p "$reports"
runs=("$reports"/*.json)
[[ -f ${runs[0]} ]] || runs=()
joined() { local IFS=,; echo "$*"; }
"$bin/report" plan -in "$work/dry.json" -share "${SHARE:-1/1}" -focus "$focus" >"$work/all"
"$bin/report" plan -in "$work/dry.json" -share "${SHARE:-1/1}" -focus "$focus" -done "$(joined "${runs[@]}")" \
	>"$work/plan"

# program FILE COMMAND... writes a program that runs a command and adds its output to the log.
log=$root/.build/conformance.log
rm -f "$log"
program() {
	printf '#!/usr/bin/env bash\nexec%s >>%q 2>&1\n' "$(printf ' %q' "${@:2}")" "$log" >"$1"
	chmod +x "$1"
}
# The registry and the suite run in the network namespace from which the nodes can be reached.
program "$work/registry" "$root/$bin/registry" -listen "$host:5000" "$root/$images"/*.tar \
	"$root"/.build/images/*.tar "${drivers[@]/#/$root/}"
program "$work/suite" env KUBECONFIG="$work/kubeconfig" PATH="$root/bin:$PATH" HOME="$work" \
	"$root/$bin/ginkgo" --procs="$procs" --timeout="$timeout" --label-filter="$labels" --focus="$(<"$work/plan")" \
		--flake-attempts="${ATTEMPTS:-1}" \
	--no-color --succinct --keep-going --output-dir="$work" --json-report=report.json "$root/$bin/e2e.test" -- \
	--provider=skeleton --kubeconfig="$work/kubeconfig" --kubectl-path="$root/bin/kubectl" --report-dir= \
	--num-nodes="$nodes" "${storage[@]}"

# gated NAME FLAG... adds a program of the cluster that has more flags.
gated() { printf '#!/bin/sh\nexec %q "$@"%s\n' "$root/bin/$1" "$(printf ' %q' "${@:2}")" >"$programs/$1"; }
# in_namespaces runs the suite in a cluster whose nodes are namespaces of this machine.
in_namespaces() {
	programs=$root/bin
	if [[ -n ${PODGROUPS:-} ]]; then
		programs=$work/bin
		mkdir "$programs"
		gated apiserver --feature-gates=GenericWorkload=true --runtime-config=scheduling.k8s.io/v1beta1=true
		gated controller-manager '--controllers=*,podgroup-protection-controller'
		gated scheduler --feature-gates=GenericWorkload=true
		chmod +x "$programs"/*
		cp "$root"/bin/{cni,ctl,kubelet,proxy} "$programs"
	fi
	bin/ctl cluster up --name "$name" --nodes "$nodes" --ip-family "$family" --kubeconfig "$work/machine" --data-dir \
		"$work/data" --bin-dir "$programs" --tools-dir bin/tools
	bin/ctl cluster load --name "$name" "$images"/*.tar
	for ((n = 0; zones > 0 && n < nodes; n++)); do
		bin/ctl --kubeconfig "$work/machine" label node "n$((n + 1))" "topology.kubernetes.io/zone=z$((n % zones + 1))"
	done
	# Some specs pull images. Make the nodes pull them from hack/registry, which takes the place of all
	# registries, and responds at once if it does not have an image.
	for node in "$work"/data/nodes/*/; do
		mkdir -p "$node/etc/containerd/certs.d/_default"
		printf 'server = "http://%s:5000"\n' "$host" >"$node/etc/containerd/certs.d/_default/hosts.toml"
		# Some specs run their own registry on the node. Pull its images from there.
		mkdir -p "$node/etc/containerd/certs.d/localhost:5000"
		echo 'server = "http://localhost:5000"' >"$node/etc/containerd/certs.d/localhost:5000/hosts.toml"
	done
	bin/ctl cluster exec --name "$name" -- "$work/registry" &
	registry=$!
	if [[ -n ${STORAGE:-} ]]; then
		bin/ctl --kubeconfig "$work/machine" apply -f .build/e2e-images/sidecars/manifests
		bin/ctl --kubeconfig "$work/machine" wait --for=condition=Established crd --all --timeout=1m
		for file in snapshot-controller csi csi-snapshots; do
			sed "s#/srv/keelson-e2e-csi#/srv/keelson-$name-csi#" "test/e2e/testdata/$file.yaml" | bin/ctl --kubeconfig \
				"$work/machine" apply -f -
		done
		bin/ctl --kubeconfig "$work/machine" -n kube-system rollout status deployment snapshot-controller
		bin/ctl --kubeconfig "$work/machine" -n csi rollout status daemonset node
		bin/ctl --kubeconfig "$work/machine" -n csi rollout status deployment snapshots
	fi
	# In the network namespace, the API server has another address than on the machine.
	sed "s#server: https://127.0.0.1:.*#server: https://$host:6443#" "$work/machine" >"$work/kubeconfig"
	echo "conformance: running, at most $timeout"
	bin/ctl cluster exec --name "$name" -- "$work/suite" || echo "conformance: see .build/conformance.log"
}
passed=0
if [[ -n ${MACHINES:-} ]]; then
	echo "conformance: running on machines, at most $timeout"
	# The machines' disks are below TMPDIR, so they are removed even if the test is killed.
	TMPDIR=$work KEELSON_MACHINES=1 KEELSON_CONFORMANCE=$work go test -count=1 -timeout 0 -run 'TestConformance$' \
		-v ./test/machines >.build/conformance-machines.log 2>&1 || passed=1
	((!passed)) || echo "conformance: see .build/conformance.log and .build/conformance-machines.log"
else
	in_namespaces
fi
runs+=("$reports/$(printf %03d "${#runs[@]}").json")
mv "$work/report.json" "${runs[-1]}"
version=$(bin/ctl version --client | sed -n 's/^Client Version: //p')
case $family in
ipv4) addresses=IPv4 ;;
ipv6) addresses=IPv6 ;;
*) addresses="IPv4 and IPv6" ;;
esac
cluster="$nodes nodes"
[[ -z ${MACHINES:-} ]] || cluster="three control planes and two workers on machines with systemd,"
"$bin/report" write -in "$(joined "${runs[@]}")" -plan "$work/all" -out "$out" -title "${TITLE:-}" -focus \
	"$focus" -labels "$labels" -cluster \
		"Tested: version $version, in a cluster of $cluster with $addresses. The suite ran specs in $procs \
processes at a time." || passed=1
sed -n '/^| SIG/,/^$/p' "$out"
exit $passed
