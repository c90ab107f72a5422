#!/usr/bin/env bash
# Copyright The Keelson Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Runs Keelson's API server beside those of Kubernetes 1.36 and 1.37: on the same etcd one after the
# other, and with the same kubectl.
set -euo pipefail

usage() {
	cat <<-'USAGE'
		usage: test/conformance/stores.sh [REGEXP]

		REGEXP is a regular expression of the tests to run, as for go test -run (all). Kubernetes' programs
		are built into .build/kubernetes-VERSION. Logs of all processes are in .build/stores.
	USAGE
}

case ${1:-} in
-h | --help)
	usage
	exit
	;;
esac

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
export GOWORK=off

# build MODULE PROGRAM... builds programs of a module's release of Kubernetes, unless they exist.
build() {
	local release minor digest dest v=k8s.io/component-base/version
	cd "$root/test/conformance/$1"
	shift
	release=$(go list -m -f '{{.Version}}' k8s.io/kubernetes)
	minor=${release#v1.}
	minor=${minor%%.*}
	dest=$root/.build/kubernetes-1.$minor
	digest=$({
		cat go.mod go.sum
		echo "$*"
	} | sha256sum | cut -d' ' -f1)
	if [[ -f $dest/.stamp && $(<"$dest/.stamp") == "$digest" ]]; then
		return
	fi
	echo "stores: building Kubernetes $release"
	mkdir -p "$dest"
	go build -ldflags "-s -w -X $v.gitVersion=$release -X $v.gitMajor=1 -X $v.gitMinor=$minor" -o "$dest/" \
		"${@/#/k8s.io/kubernetes/cmd/}"
	echo "$digest" >"$dest/.stamp"
}

# images makes the images of kubeadm's static pods from the programs in a directory, for test/machines.
images() {
	[[ ! $1/images/.stamp -nt $1/.stamp ]] || return 0
	(cd "$root" && GOWORK='' go run ./hack/images -out "$1/images" -kubernetes "$1" \
		-version "$("$1/kubeadm" version -o short)" -etcd bin/tools/etcd)
	touch "$1/images/.stamp"
}

GOWORK='' "$root/hack/build.sh"
"$root/hack/tools.sh" etcd
build . kube-apiserver kubectl kube-controller-manager kube-scheduler kubeadm kubelet
images "$root/.build/kubernetes-1.37"
build kubernetes136 kube-apiserver kubectl
rm -rf "$root/.build/stores"
cd "$root/test/conformance"
KEELSON_STORES=1 go test -count=1 -vet=off -timeout 20m -run "${1:-.}" -v ./stores
