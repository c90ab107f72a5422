#!/usr/bin/env bash
# Copyright The Keelson Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Builds six programs and the CNI plugin into bin/. It does nothing if no source has changed since
# the last build, unless --force is given. With --release it builds them for a release instead.
set -euo pipefail

usage() {
	cat <<-'USAGE'
		usage: hack/build.sh [--force]
		       hack/build.sh --release VERSION ARCH DIRECTORY

		  --force    build even if no source has changed
		  --release  build programs that report VERSION, for amd64 or arm64, into DIRECTORY
	USAGE
}

case ${1:-} in
-h | --help)
	usage
	exit
	;;
--release)
	(($# == 4)) || {
		usage >&2
		exit 2
	}
	;;
esac

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
# shellcheck source=hack/progress.sh
source hack/progress.sh
programs=(apiserver scheduler controller-manager kubelet cni proxy ctl)
stamp=bin/.stamp

fresh() {
	local p
	[[ ${1:-} != --force && -f $stamp ]] || return 1
	for p in "${programs[@]}"; do
		[[ -x bin/$p ]] || return 1
	done
	[[ -z $(find cmd pkg staging go.mod go.sum go.work hack/build.sh -newer "$stamp" -type f ! -name '*_test.go' \
		-print -quit) ]]
}

if [[ ${1:-} != --release ]] && fresh "$@"; then
	exit
fi

# The version that every process and the API report: Kubernetes' version, a plus sign, and Keelson's
# commit.
commit=$(git rev-parse HEAD 2>/dev/null || echo unknown)
short=${commit:0:12}
version=v1.37.2+keelson.$short
v=k8s.io/component-base/version
flags="-s -w -X $v.gitVersion=$version -X $v.gitMajor=1 -X $v.gitMinor=37"
flags+=" -X $v.gitCommit=$commit -X $v.gitTreeState=clean"

if [[ ${1:-} == --release ]]; then
	# A release must not depend on tags and on files that git does not know, as go's own stamps do. So
	# the linker sets what the programs report about their source.
	r=keelson.dev/keelson/pkg/release
	date=$(TZ=UTC git log -1 --format=%cd --date=format-local:%Y-%m-%dT%H:%M:%SZ)
	flags+=" -X $r.Version=$2 -X $r.Commit=$commit -X $r.Date=$date"
	mkdir -p "$4"
	out=$(realpath "$4")
	GOARCH=$3 go build -v -buildvcs=false -ldflags "$flags" -o "$out/" "${programs[@]/#/./cmd/}"
	ln -sf ctl "$out/kubectl"
	exit
fi

mkdir -p bin
began=$(mktemp bin/.began.XXXXXX)
trap 'rm -rf "$began" "${out:-}"' EXIT
out=$(mktemp -d bin/.build.XXXXXX)
step "${programs[*]}" go build -v -ldflags "$flags" -o "$out/" "${programs[@]/#/./cmd/}"
# Programs are renamed into place, so that a running process keeps its file.
mv -f "$out"/* bin/
ln -f bin/ctl bin/kubectl # no symbolic link: it is copied into containers
touch -r "$began" "$stamp"
