#!/usr/bin/env bash
# Copyright The Keelson Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Runs test suites and programs of other projects, which were written for Kubernetes, against Keelson.
# They are of pinned releases and are not modified.
set -euo pipefail

usage() {
	cat <<-'USAGE'
		usage: hack/ecosystem.sh [SUITE...]

		Runs the suites and prints a summary of each. Without a name: those that are marked with *.

		Suites of Go tests, with the programs of hack/envtest.sh:

		  controller-runtime  * the tests of its packages
		  kueue                 integration tests of webhooks, controllers and scheduler: half an hour.
		                        The variable KUEUE_PACKAGES selects packages of test/integration,
		                        for example "singlecluster/webhook/... multikueue"
		  kueue-performance     the runner for the performance of Kueue's scheduler
		  cert-manager          integration tests; CERT_MANAGER is a directory with cert-manager's
		                        repository, because no registry has the module of these tests

		Programs, with a cluster without nodes; they need root:

		  helm3 helm4         * install, upgrade, roll back, test and uninstall hack/ecosystem/chart
		  kustomize           * apply hack/ecosystem/kustomize
		  prometheus          * discover objects of all kinds with Kubernetes' service discovery
		  python              * the tests in Debian's package of the Python client, and our own

		The sources and the full output of a suite are in .build/ecosystem. Tests have no access to other
		networks if the script runs as root.
	USAGE
}

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
out=$root/.build/ecosystem
own=$root/hack/ecosystem
# shellcheck source=hack/ecosystem/gotests.sh
source "$own/gotests.sh"
# shellcheck source=hack/ecosystem/programs.sh
source "$own/programs.sh"

# source_of MODULE VERSION SUM NAME copies the module to $out/NAME. SUM is the module's checksum as in
# go.sum. "go mod download" does not keep the files' mode, so scripts are made executable again.
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

# check NAME COMMAND [ARGUMENT...] runs the command and prints whether it succeeded. If it did not, the
# suite ends, because later checks build on earlier ones.
check() {
	local name=$1
	shift
	set +e
	(set -e && "$@")
	local status=$?
	set -e
	if ((status)); then
		echo "check failed: $name"
		return "$status"
	fi
	echo "check passed: $name"
}

# summary SUITE LOG prints how many packages, Go tests, specs of Ginkgo, tests of Python's unittest, and
# checks of this script a log has, and which failed. It succeeds only if a test failed and every test
# that failed is in expected.txt. So it reports whether the failure of the suite is expected.
summary() {
	awk -v suite="$1" '
		function fail(name) {
			if (name in reasons) expected = expected "\n  " name ": " reasons[name]
			else bad = bad "\n  " name
		}
		NR == FNR {
			if (split($0, field, " *[|] *") == 3 && field[1] == suite) reasons[field[2]] = field[3]
			next
		}
		/^ok / { passed++ }
		/^FAIL\t/ { failed++ }
		/^ *--- PASS: / { tests++ }
		/^ *--- FAIL: / { fail($3) }
		/^ *--- SKIP: / { skipped++ }
		/^(SUCCESS|FAIL)! -- / { specs += $3; wrong += $6; pending += $9; left += $12 }
		/^  \[(FAIL|PANICKED!|TIMEDOUT|INTERRUPTED)\] / { sub(/^ *\[[A-Z!]*\] /, ""); fail($0) }
		/^check passed: / { checks++ }
		/^check failed: / { fail($0) }
		/^Ran [0-9]+ tests? in / { python += $2 }
		/^(FAIL|ERROR): / { fail($2) }
		END {
			if (passed + failed) printf "packages: %d passed, %d failed\n", passed, failed
			if (tests + skipped) printf "Go tests: %d passed, %d skipped\n", tests, skipped
			if (specs + wrong) {
				printf "specs: %d passed, %d failed, %d pending, %d skipped\n", specs, wrong, pending, left
			}
			if (python) printf "Python tests: %d\n", python
			if (checks) printf "checks: %d passed\n", checks
			if (expected != "") print "failed, as expected:" expected
			if (bad != "") print "failed:" bad
			exit bad != "" || expected == ""
		}' "$own/expected.txt" "$2"
}

case ${1:-} in
-h | --help)
	usage
	exit
	;;
esac

defaults=(controller-runtime helm3 helm4 kustomize prometheus python)
others=(kueue kueue-performance cert-manager)
(($#)) || set -- "${defaults[@]}"
for suite in "$@"; do
	if [[ " ${defaults[*]} ${others[*]} " != *" $suite "* ]]; then
		usage >&2
		exit 2
	fi
done

mkdir -p "$out"
status=0
for suite in "$@"; do
	log=$out/$suite.log
	echo "ecosystem: $suite (log: $log)"
	# Bash ignores "set -e" in a command whose status is tested by "if" or "||". So run the function in a
	# subshell, and read its status afterwards.
	set +e
	(set -e && "suite_${suite//-/_}") >"$log" 2>&1
	ended=$?
	set -e
	summary "$suite" "$log" || ((ended == 0)) || { status=1 && echo "ecosystem: $suite failed"; }
done
exit "$status"
