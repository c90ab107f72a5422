#!/usr/bin/env bash
# Copyright The Keelson Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Runs gofmt, go vet, staticcheck and the linters of .golangci.yml on every module of go.work. The
# project's own rules are tests in test/arch.
set -euo pipefail

usage() {
	cat <<-'USAGE'
		usage: hack/lint.sh

		Runs gofmt, go vet, staticcheck and golangci-lint with the linters of .golangci.yml.
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
	echo "lint: not formatted, run gofmt -w:" $unformatted >&2
	exit 1
fi
packages=(./... ./staging/src/keelson.dev/{api,apiserver,scheduling}/...)
step() {
	SECONDS=0
	echo "lint: $1"
	"${@:2}"
	echo "lint: $1 took $SECONDS s"
}
step "go vet" go vet "${packages[@]}"
step staticcheck bin/tools/staticcheck "${packages[@]}"
step golangci-lint bin/tools/golangci-lint run "${packages[@]}"
