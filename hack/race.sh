#!/usr/bin/env bash
# Copyright The Keelson Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Runs tests with the race detector: those of every package whose code or tests start goroutines.
# Other packages have no races of their own.
set -euo pipefail

usage() {
	cat <<-'USAGE'
		usage: hack/race.sh [--share K/N] [--list] [GO TEST FLAGS...]

		--share  test only the Kth of N shares of the packages
		--list   print the packages and run nothing

		Tests that need root are skipped if the script runs without it.
	USAGE
}

cd "$(dirname "${BASH_SOURCE[0]}")/.."

# A go statement, or a call of a method named Go, such as that of WaitGroup or errgroup.
start='(^|[[:space:];{])go (func\b|[A-Za-z_.]+\()|\.Go\('
packages=$(git grep --untracked -lE "$start" -- 'pkg/*.go' 'staging/*.go' 'test/*.go' | xargs -n 1 dirname | sort -u |
	while read -r dir; do
		case $dir in test/e2e* | test/conformance* | test/csi/sanity | test/envtest) continue ;; esac
		if compgen -G "$dir/*_test.go" >/dev/null; then echo "./$dir"; fi
	done)

if [[ ${1:-} == --share ]]; then
	packages=$(awk -v k="${2%/*}" -v n="${2#*/}" 'NR % n == k % n' <<<"$packages")
	shift 2
fi
case ${1:-} in
-h | --help)
	usage
	exit
	;;
--list)
	echo "$packages"
	exit
	;;
esac
hack/tools.sh gotestsum
# The race detector is written in C and needs cgo. It slows tests down, so the timeout is long.
# shellcheck disable=SC2086 # one argument for each package
CGO_ENABLED=1 bin/tools/gotestsum --format pkgname --format-icons text -- \
	-race -vet=off -timeout 30m "$@" $packages
