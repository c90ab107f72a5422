#!/usr/bin/env bash
# Copyright The Keelson Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Runs every fuzz target for a while. An input that fails is written to testdata/fuzz of the package;
# from then on every test run tries it.
set -euo pipefail

case ${1:-} in
-h | --help)
	echo "usage: hack/fuzz.sh [TIME|COUNTx]    how long each target runs, or how often (default: 30s)"
	exit
	;;
esac
time=${1:-30s}
log=$(mktemp)
trap 'rm -f "$log"' EXIT

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
grep -rlE '^func Fuzz' --include='*_test.go' pkg staging | xargs -n 1 dirname | sort -u | while read -r dir; do
	for target in $(grep -hoE '^func Fuzz[A-Za-z0-9]+' "$dir"/*_test.go | cut -d' ' -f2); do
		echo "fuzz: $dir $target"
		(cd "$dir" && go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" -fuzzminimizetime 100x -parallel 2 .) \
			>"$log" 2>&1 || {
			cat "$log" >&2
			exit 1
		}
	done
done
