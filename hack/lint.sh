#!/usr/bin/env bash
# Copyright The Keelson Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Runs gofmt, go vet and staticcheck over every module. The rules that are our
# own are tests: test/arch.
set -euo pipefail

case ${1:-} in
-h | --help)
	echo "usage: hack/lint.sh"
	exit
	;;
esac

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
hack/tools.sh lint
unformatted=$(gofmt -l cmd hack pkg staging test)
if [[ -n $unformatted ]]; then
	echo "not as gofmt would have it:" $unformatted >&2
	exit 1
fi
modules=(. staging/src/keelson.dev/api staging/src/keelson.dev/apiserver staging/src/keelson.dev/scheduling)
for module in "${modules[@]}"; do
	echo "lint: $module"
	(cd "$module" && go vet ./... && "$root/bin/tools/staticcheck" ./...)
done
