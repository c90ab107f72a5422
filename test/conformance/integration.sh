#!/usr/bin/env bash
# Copyright The Keelson Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Runs Kubernetes' own integration tests against Keelson's API server, and fails if a test fails that
# is not listed in integration/known.txt.
set -euo pipefail

usage() {
	cat <<-'USAGE'
		usage: test/conformance/integration.sh [PACKAGE...]

		PACKAGE is a directory below test/integration of Kubernetes, for example auth or apiserver/apply.
		Without one, all packages run. Variables:

		SHARE     I/N: one of N parts of the packages (1/1)
		LIMIT     minutes that a package may take to run, without its compilation (10)
		ATTEMPTS  how often a package may be tried until none of its tests fails unexpectedly (1)
		RUN       regular expression of the tests to run (all)
		OUT       the file to which the table of results is written (none)
	USAGE
}

case ${1:-} in
-h | --help)
	usage
	exit
	;;
esac

out=${OUT:+$(realpath -m "$OUT")}
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
here=$root/test/conformance
work=$root/.build/integration
mkdir -p "$work"

"$root/hack/build.sh"
"$root/hack/tools.sh" etcd
export GOWORK=off

# Copy Kubernetes, because Go does not overlay files in the module cache, and because some tests write
# files into their own directory. A second go.mod replaces the module by the copy. Go also adds the
# modules to it that only these tests need.
cd "$here"
source=$(go mod download -json k8s.io/kubernetes | sed -n 's/.*"Dir": "\(.*\)".*/\1/p')
version=${source##*@}
kubernetes=$work/kubernetes-$version
minutes=${LIMIT:-10}
if [[ ! -d $kubernetes ]]; then
	rm -rf "$work"/kubernetes-*
	cp -r --no-preserve=mode "$source" "$kubernetes.new"
	# Files in the module cache are never executable, but the tests run these scripts.
	find "$kubernetes.new/test/integration" -name '*.sh' ! -name '*-not-executable*' -exec chmod +x {} +
	# Rename the function that integration/etcd/keelson.go replaces.
	sed -i 's/^func StartRealAPIServerOrDie(/func startUpstream(/' "$kubernetes.new/test/integration/etcd/server.go"
	mv "$kubernetes.new" "$kubernetes"
fi
cp go.mod "$work/go.mod"
cp go.sum "$work/go.sum"
go mod edit -replace "k8s.io/kubernetes=$kubernetes" "$work/go.mod"
cat >"$work/overlay.json" <<-JSON
	{"Replace": {
	  "$kubernetes/cmd/kube-apiserver/app/testing/testserver.go": "$here/integration/testserver/testserver.go",
	  "$kubernetes/test/integration/framework/test_server.go": "$here/integration/framework/test_server.go",
	  "$kubernetes/test/integration/etcd/keelson.go": "$here/integration/etcd/keelson.go"
	}}
JSON
flags=(-modfile="$work/go.mod" -mod=mod -overlay="$work/overlay.json" -tags keelson)

patterns=()
for name in "$@"; do
	patterns+=("k8s.io/kubernetes/test/integration/$name")
done
((${#patterns[@]})) || patterns=(k8s.io/kubernetes/test/integration/...)
share=${SHARE:-1/1}
mapfile -t packages < <(
	go list "${flags[@]}" -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}' "${patterns[@]}" |
		awk -v "i=${share%/*}" -v "n=${share#*/}" 'NF && NR % n == i % n'
)

# The tests start etcd from PATH. This wrapper makes the kernel kill etcd when the test ends or crashes.
mkdir -p "$work/bin"
printf '#!/bin/sh\nexec setpriv --pdeathsig KILL "%s" "$@"\n' "$root/bin/tools/etcd" >"$work/bin/etcd"
chmod +x "$work/bin/etcd"
export PATH=$work/bin:$PATH
export KEELSON_APISERVER=$root/bin/apiserver
logs=$work/logs
rm -rf "$logs"
mkdir -p "$logs"
echo "integration: ${#packages[@]} packages of Kubernetes $version (logs: $logs)"

# start_etcd starts an etcd that is killed when the current shell ends. Call it in a subshell.
start_etcd() {
	data=$(mktemp -d)
	"$work/bin/etcd" --data-dir "$data/etcd" --listen-client-urls "unix://$data/socket" --log-level error \
		--advertise-client-urls http://127.0.0.1:0 --listen-peer-urls http://127.0.0.1:0 2>"$log.etcd" &
	etcd=$!
	trap 'kill "$etcd"; wait "$etcd" || true; rm -rf "$data"' EXIT
	until [[ -S $data/socket ]]; do
		kill -0 "$etcd" || exit
		sleep 0.1
	done
	export KUBE_INTEGRATION_ETCD_URL=unix://$data/socket
}

# run_package runs the tests of a package and writes the log to the file $log.json. Each package has its
# own etcd, which most packages start themselves. go test ends a package that runs longer than LIMIT;
# limit.sh ends go test if that does not help. The report reads the results, not this function.
run_package() {
	(
		grep -qE 'EtcdMain|StartEtcd' "$kubernetes/test/integration/$name"/*_test.go || start_etcd
		"$root/hack/limit.sh" "$((minutes + 15))m" go test "${flags[@]}" -json -p 2 -count=1 -vet=off \
			-timeout "${minutes}m" -run "${RUN:-.}" "$package" >"$log.json" 2>"$log.err"
	) || true
}

go build -o "$work/bin/report" ./integration/report
number=0
for package in "${packages[@]}"; do
	name=${package#k8s.io/kubernetes/test/integration/}
	echo "integration: $((++number)) of ${#packages[@]}: $name"
	for ((attempt = 1; attempt <= ${ATTEMPTS:-1}; attempt++)); do
		rm -rf "$work/attempt"
		mkdir "$work/attempt"
		log=$work/attempt/${name//\//+}
		run_package
		"$work/bin/report" -logs "$work/attempt" -known integration/known.txt >"$log.txt" 2>&1 || true
		if ((attempt == ${ATTEMPTS:-1})) || ! grep "unknown failures" "$log.txt"; then
			break
		fi
		mv "$log.json" "$logs/${log##*/}.attempt$attempt"
	done
	mv "$work/attempt"/* "$logs/"
done
"$work/bin/report" -logs "$logs" -known integration/known.txt ${out:+-out "$out"}
