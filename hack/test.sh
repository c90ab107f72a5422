#!/usr/bin/env bash
# Copyright The Keelson Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Runs the unit and integration tests of every module. Those that need root make
# network namespaces of their own.
set -euo pipefail

case ${1:-} in
-h | --help)
	echo "usage: hack/test.sh [GO TEST FLAGS...]"
	exit
	;;
esac

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
for module in staging/src/keelson.dev/api staging/src/keelson.dev/apiserver staging/src/keelson.dev/scheduling .; do
	echo "test: $module"
	(cd "$module" && go test -timeout 30m "$@" ./... | { grep -v 'no test files' || true; })
done
# The storage driver against csi-sanity, in a module of its own.
echo "test: test/csi/sanity"
(cd test/csi/sanity && GOWORK=off go test -timeout 30m "$@" .)
# The shim, in the module of the tools.
echo "test: hack/tools/containerd-shim-runc-v2"
(cd hack/tools && GOWORK=off go test -timeout 30m "$@" ./containerd-shim-runc-v2)
