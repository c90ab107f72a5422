#!/usr/bin/env bash
# Copyright The Keelson Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Runs gofmt, go vet and staticcheck over every module of go.work. Rules of our
# own are tests in test/arch.
set -euo pipefail

usage() {
	cat <<-'USAGE'
		usage: hack/lint.sh [--more [GOLANGCI-LINT FLAGS...]]

		--more runs the linters of .golangci.yml instead, whose findings are not all corrected yet.
	USAGE
}

case ${1:-} in
-h | --help)
	usage
	exit
	;;
esac

cd "$(dirname "${BASH_SOURCE[0]}")/.."
hack/tools.sh lint
unformatted=$(gofmt -l cmd hack pkg staging test)
if [[ -n $unformatted ]]; then
	echo "not as gofmt would have it:" $unformatted >&2
	exit 1
fi
packages=(./... ./staging/src/keelson.dev/{api,apiserver,scheduling}/...)
step() {
	SECONDS=0
	echo "lint: $1"
	"${@:2}"
	echo "lint: $1 took $SECONDS s"
}
if [[ ${1:-} == --more ]]; then
	hack/tools.sh golangci
	step golangci-lint bin/tools/golangci-lint run "${@:2}" "${packages[@]}"
	exit
fi
step "go vet" go vet "${packages[@]}"
step staticcheck bin/tools/staticcheck "${packages[@]}"
