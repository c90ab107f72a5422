#!/usr/bin/env bash
# Copyright The Keelson Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Runs the unit and integration tests of every module, prints one line for each
# package, and ends with the list of tests that were skipped and why.
set -euo pipefail

usage() {
	cat <<-'USAGE'
		usage: hack/test.sh [GO TEST FLAGS...]

		Runs all tests except those that make a cluster. Needs root and the tools of `make tools`.
		With -short it needs neither, and leaves out the tests that need root and the modules
		that are not in go.work.
	USAGE
}

short=
for flag in "$@"; do
	case $flag in
	-h | --help)
		usage
		exit
		;;
	-short | -short=true) short=yes ;;
	esac
done

cd "$(dirname "${BASH_SOURCE[0]}")/.."
if [[ -z $short && $(id -u) != 0 ]]; then
	echo "test: run as root, or use -short to leave out the tests that need root" >&2
	exit 1
fi
hack/tools.sh gotestsum
# -vet=off because hack/lint.sh runs go vet on the same packages. The linker flags leave debug information and symbols
# out of the test programs, so that they are linked faster. Many tests wait most of the time, so more
# packages run at once than the machine has processors, and the two longest ones begin first.
bin/tools/gotestsum --format pkgname --format-icons text --format-hide-empty-pkg -- \
	-p "$(($(nproc) + 2))" -vet=off '-ldflags=-s -w' -timeout 30m "$@" \
	./test/security ./pkg/apiserver ./... ./staging/src/keelson.dev/{api,apiserver,scheduling}/...
[[ -z $short ]] || exit 0
# Four modules are not in go.work: the tests of the CSI drivers with csi-sanity, the tests of an
# operator with envtest, containerd's shim, and the program that makes releases.
echo "test: test/csi/sanity"
(cd test/csi/sanity && GOWORK=off go test -timeout 30m "$@" .)
echo "test: test/envtest"
hack/envtest.sh
(cd test/envtest && GOWORK=off go test -timeout 30m "$@" .)
echo "test: test/monitoring with promtool"
hack/monitoring/test.sh "$@"
echo "test: hack/tools/containerd-shim-runc-v2"
(cd hack/tools && GOWORK=off go test -timeout 30m "$@" ./containerd-shim-runc-v2)
echo "test: hack/release"
(cd hack/release && GOWORK=off go test -timeout 30m "$@" .)
