#!/usr/bin/env bash
# Copyright The Keelson Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Builds the programs that a cluster runs beside Keelson's own, and those that the tests need, into
# bin/tools. Go programs are built from the modules below hack/tools, which pin their versions; crun
# is built from its source. Each group has a stamp with a digest of its sources and flags, so that a
# second run does nothing.
set -euo pipefail

usage() {
	cat <<-'USAGE'
		usage: hack/tools.sh [--for ARCH DIRECTORY] [GROUP...]

		Builds programs into bin/tools. Without a group: containerd crun cni coredns. With --for, builds
		them for amd64 or arm64 into DIRECTORY.

		  containerd  containerd, its shim and ctr
		  crun        the OCI runtime of nodes
		  cni         the CNI plugins
		  coredns     the DNS server of clusters
		  runc        the other OCI runtime, for "ctl cluster up --runtime runc" and RuntimeClasses
		  etcd        for clusters with several control planes
		  lint        staticcheck and golangci-lint
		  gotestsum   the runner of unit tests
		  helm        for the e2e tests
		  sidecars    Kubernetes' CSI sidecars, for the e2e tests
	USAGE
}

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
out=$root/bin/tools
arch=
# shellcheck source=hack/progress.sh
source "$root/hack/progress.sh"

# describe GROUP sets variables that say how a group of programs is built: the module's directory, our
# own source files in it, the destination, and the flags, environment and packages of "go build".
describe() {
	local containerd=github.com/containerd/containerd/v2/cmd csi=github.com/kubernetes-csi
	local plugins=github.com/containernetworking/plugins/plugins name
	dir=$root/hack/tools sources=() dest=$out flags=() packages=() cgo=0
	case $1 in
	containerd)
		# These tags replace those of GOFLAGS, so they have the one that all programs with gRPC are built with.
		flags=(-tags no_btrfs,no_devmapper,no_zfs,grpcnotrace)
		packages=("$containerd/containerd" "$containerd/ctr")
		;;
	shim)
		# Like the shim in containerd's releases, this one is built without gRPC. It then uses 6 MB less
		# and starts 1 ms faster, and each pod has a shim.
		flags=(-tags no_btrfs,no_devmapper,no_zfs,no_grpc)
		packages=(keelson.dev/keelson/hack/tools/containerd-shim-runc-v2)
		sources=("$dir"/containerd-shim-runc-v2/{main,outputs}.go)
		;;
	cni)
		dest=$out/cni
		for name in ipam/host-local ipam/static \
			main/bridge main/host-device main/loopback main/macvlan main/ptp main/vlan \
			meta/bandwidth meta/firewall meta/portmap meta/sbr meta/tuning; do
			packages+=("$plugins/$name")
		done
		;;
	coredns)
		dir=$root/hack/tools/coredns
		packages=(keelson.dev/keelson/hack/tools/coredns)
		sources=("$dir/main.go")
		;;
	runc)
		# runc needs cgo, because its set-up code and libseccomp are C. Link it statically, because that
		# makes each run of runc a fifth cheaper, and a pod start needs six runs.
		cgo=1
		flags=(-tags seccomp,netgo,osusergo -ldflags '-s -w -extldflags -static')
		packages=(github.com/opencontainers/runc)
		;;
	etcd) # of the version that the API server embeds
		dir=$root/hack/tools/etcd
		packages=(keelson.dev/keelson/hack/tools/etcd)
		sources=("$dir/main.go")
		;;
	lint)
		dir=$root/hack/tools/lint
		packages=(honnef.co/go/tools/cmd/staticcheck github.com/golangci/golangci-lint/v2/cmd/golangci-lint)
		;;
	gotestsum)
		dir=$root/hack/tools/lint
		packages=(gotest.tools/gotestsum)
		;;
	helm)
		dir=$root/hack/tools/helm
		packages=(helm.sh/helm/v3/cmd/helm)
		;;
	sidecars)
		dir=$root/hack/tools/sidecars dest=$out/sidecars
		packages=("$csi/external-provisioner/v6/cmd/csi-provisioner" "$csi/external-attacher/v4/cmd/csi-attacher"
			"$csi/external-resizer/v2/cmd/csi-resizer" "$csi/external-snapshotter/v8/cmd/csi-snapshotter"
			"$csi/external-snapshotter/v8/cmd/snapshot-controller")
		;;
	esac
}

# digest GROUP prints what the group is built from.
digest() {
	{
		if [[ $1 == crun ]]; then
			cat "$root/hack/crun.sh"
		else
			cat "$dir/go.mod" "$dir/go.sum" "${sources[@]}"
			go version
			echo "$cgo" "${flags[@]}" "${packages[@]}"
		fi
		[[ -z $arch ]] || echo "$arch"
	} | sha256sum | cut -d' ' -f1
}

# fresh GROUP succeeds if the group need not be built.
fresh() {
	local files=("$out/crun") package
	if [[ $1 != crun ]]; then
		files=()
		for package in "${packages[@]}"; do
			files+=("$dest/${package##*/}")
		done
	fi
	for package in "${files[@]}"; do
		[[ -x $package ]] || return 1
	done
	[[ -f $out/.stamp-$1 && $(<"$out/.stamp-$1") == "$(digest "$1")" ]]
}

# build GROUP builds a group. It renames each program into place, so that a running daemon keeps its
# file.
build() {
	local tmp
	if [[ $1 == crun ]]; then
		"$root/hack/crun.sh" "$out/crun" ${arch:+"$arch"}
	else
		mkdir -p "$dest"
		tmp=$(mktemp -d "$dest/.build.XXXXXX")
		(cd "$dir" && GOWORK=off CGO_ENABLED=$cgo go build -v -buildvcs=false -ldflags '-s -w' "${flags[@]}" \
			-o "$tmp/" "${packages[@]}")
		mv -f "$tmp"/* "$dest/"
		rmdir "$tmp"
	fi
	digest "$1" >"$out/.stamp-$1"
}

case ${1:-} in
-h | --help)
	usage
	exit
	;;
--for)
	(($# >= 3)) || {
		usage >&2
		exit 2
	}
	arch=$2
	mkdir -p "$3"
	out=$(realpath "$3")
	export GOARCH=$arch
	shift 3
	;;
esac

mkdir -p "$out"
groups=("$@")
((${#groups[@]})) || groups=(containerd crun cni coredns)
stale=()
for group in "${groups[@]}"; do
	case $group in
	containerd) parts=(containerd shim) ;;
	crun | cni | coredns | runc | etcd | lint | gotestsum | helm | sidecars) parts=("$group") ;;
	*)
		usage >&2
		exit 2
		;;
	esac
	for part in "${parts[@]}"; do
		describe "$part"
		fresh "$part" || stale+=("$part")
	done
done

steps ${#stale[@]}
for part in "${stale[@]}"; do
	describe "$part"
	step "$part" build "$part"
done
