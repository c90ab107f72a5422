#!/usr/bin/env bash
# Copyright The Keelson Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Runs test suites of other projects, which were written for Kubernetes, against Keelson. The suites
# are those of pinned releases and are not modified.
set -euo pipefail

usage() {
	cat <<-'USAGE'
		usage: hack/ecosystem.sh [SUITE...]

		Runs the suites and prints a summary of each. Without a name: all of them.

		  controller-runtime  the tests of its packages, with the programs of hack/envtest.sh

		The source and the full output of a suite are in .build/ecosystem.
	USAGE
}

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
out=$root/.build/ecosystem

# source_of MODULE VERSION SUM NAME copies the module to $out/NAME. SUM is the module's checksum as in
# go.sum. A module's files are not executable, whatever they are in its repository.
source_of() {
	local module=$1 version=$2 sum=$3 name=$4 found
	found=$(cd "$out" && GOWORK=off go mod download -json "$module@$version")
	if [[ $found != *"\"Sum\": \"$sum\""* ]]; then
		echo "ecosystem: $module $version is not what it was: $found" >&2
		return 1
	fi
	rm -rf "${out:?}/$name"
	cp -r --no-preserve=mode "$(sed -n 's/.*"Dir": "\(.*\)".*/\1/p' <<<"$found")" "$out/$name"
	find "$out/$name" -name '*.sh' -exec chmod +x {} +
}

# summary LOG prints what a log of "go test -v" counts: packages, Go tests, and specs of Ginkgo.
summary() {
	awk '
		/^ok / { passed++ }
		/^FAIL\t/ { failed++ }
		/^--- PASS: / { tests++ }
		/^--- FAIL: / { bad = bad "\n  test " $3 }
		/^--- SKIP: / { skipped++ }
		/^(SUCCESS|FAIL)! -- / { specs += $3; wrong += $6; pending += $9; left += $12 }
		/^  \[(FAIL|PANICKED!|TIMEDOUT)\] / { bad = bad "\n" $0 }
		END {
			printf "packages: %d passed, %d failed\n", passed, failed
			printf "Go tests: %d passed, %d skipped\n", tests, skipped
			printf "specs: %d passed, %d failed, %d pending, %d skipped\n", specs, wrong, pending, left
			if (bad != "") print "failed:" bad
		}' "$1"
}

# controller_runtime runs the tests of all packages. It uses the programs of hack/envtest.sh.
controller_runtime() {
	source_of sigs.k8s.io/controller-runtime v0.25.2 h1:bEkK3PVOIVK9X8QWLGVhJgmFc++47vfT6wakSzAOLsQ= \
		controller-runtime
	cd "$out/controller-runtime"
	GOWORK=off GINKGO_NO_COLOR=1 KUBEBUILDER_ASSETS=$("$root/hack/envtest.sh") \
		go test -v -count=1 -vet=off -timeout 30m ./pkg/...
}

case ${1:-} in
-h | --help)
	usage
	exit
	;;
esac

(($#)) || set -- controller-runtime
for suite in "$@"; do
	if [[ $suite != controller-runtime ]]; then
		usage >&2
		exit 2
	fi
done

mkdir -p "$out"
status=0
for suite in "$@"; do
	log=$out/$suite.log
	echo "ecosystem: $suite (log: $log)"
	# In a condition "set -e" has no effect, so the function runs in a shell of its own.
	set +e
	(set -e && "${suite//-/_}") >"$log" 2>&1
	(($? == 0)) || status=1
	set -e
	summary "$log"
done
exit "$status"
