#!/usr/bin/env bash
# Copyright The Keelson Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Builds the daemons that a cluster runs beside Keelson's own processes, each
# from the Go module that hack/tools pins: containerd, its shim, ctr, runc, the
# CNI plugins, CoreDNS; crun from its source; etcd for clusters of several control planes; golangci-lint,
# staticcheck and gotestsum for checks; Helm and Kubernetes' CSI sidecars for the e2e tests.
# They land in bin/tools. A stamp per group holds a digest of what the group is made from,
# so a second run does nothing.
set -euo pipefail

usage() {
	cat <<-'USAGE'
		usage: hack/tools.sh [GROUP...]

		Builds bin/tools. Groups: runtime (containerd, ctr, runc, crun), cni, coredns, etcd, lint, helm, sidecars.
		Without a group: runtime cni coredns.
	USAGE
}

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
out=$root/bin/tools

# digest DIR FLAGS... prints what the group in module DIR is made from.
digest() {
	local dir=$1
	shift
	{
		cat "$dir/go.mod" "$dir/go.sum" "${BASH_SOURCE[0]}"
		find "$dir" -name '*.go' | sort | xargs -r cat
		go version
		echo "$@"
	} | sha256sum | cut -d' ' -f1
}

# fresh GROUP DIGEST FILE... succeeds when the group need not be built.
fresh() {
	local stamp=$out/.stamp-$1 want=$2 file
	shift 2
	[[ -f $stamp && $(<"$stamp") == "$want" ]] || return 1
	for file in "$@"; do
		[[ -x $file ]] || return 1
	done
}

# build DIR DEST PACKAGE... builds commands of the module in DIR into DEST.
# Each binary appears by rename, so that a running daemon keeps its own file.
build() {
	local dir=$1 dest=$2 tmp
	shift 2
	mkdir -p "$dest"
	tmp=$(mktemp -d "$dest/.build.XXXXXX")
	(cd "$dir" && GOWORK=off go build -trimpath -ldflags '-s -w' "${flags[@]}" -o "$tmp/" "$@")
	mv -f "$tmp"/* "$dest/"
	rmdir "$tmp"
}

# group NAME DIR DEST PACKAGE... builds a group unless its stamp is fresh.
group() {
	local name=$1 dir=$2 dest=$3 want file files=()
	shift 3
	for file in "$@"; do
		file=${file##*/}
		files+=("$dest/$file")
	done
	want=$(digest "$dir" "${flags[@]}" "$@")
	if fresh "$name" "$want" "${files[@]}"; then
		return
	fi
	echo "tools: building $name"
	build "$dir" "$dest" "$@"
	echo "$want" >"$out/.stamp-$name"
}

runtime() {
	local containerd=github.com/containerd/containerd/v2/cmd
	local flags=(-tags no_btrfs,no_devmapper,no_zfs)
	CGO_ENABLED=0 group containerd "$root/hack/tools" "$out" $containerd/containerd $containerd/ctr
	# Without gRPC, as containerd ships it: there is one for each pod, which is 6 MB smaller and starts in a millisecond less.
	flags=(-tags no_btrfs,no_devmapper,no_zfs,no_grpc)
	CGO_ENABLED=0 group shim "$root/hack/tools" "$out" keelson.dev/keelson/hack/tools/containerd-shim-runc-v2
	# runc's own set-up code is C, and its seccomp filter is libseccomp's. It is run six times for each pod: linked statically, each costs a fifth less.
	flags=(-tags seccomp,netgo,osusergo -ldflags '-s -w -extldflags -static')
	CGO_ENABLED=1 group runc "$root/hack/tools" "$out" github.com/opencontainers/runc
	"$root/hack/crun.sh" "$out/crun"
}

cni() {
	local plugins=github.com/containernetworking/plugins/plugins name names=() flags=()
	for name in ipam/host-local ipam/static \
		main/bridge main/host-device main/loopback main/macvlan main/ptp main/vlan \
		meta/bandwidth meta/firewall meta/portmap meta/sbr meta/tuning; do
		names+=("$plugins/$name")
	done
	CGO_ENABLED=0 group cni "$root/hack/tools" "$out/cni" "${names[@]}"
}

coredns() {
	local flags=()
	CGO_ENABLED=0 group coredns "$root/hack/tools/coredns" "$out" github.com/coredns/coredns
}

# etcd is of the version that the API server embeds.
etcd() {
	local flags=()
	CGO_ENABLED=0 group etcd "$root/hack/tools/etcd" "$out" keelson.dev/keelson/hack/tools/etcd
}

lint() {
	local flags=()
	CGO_ENABLED=0 group lint "$root/hack/tools/lint" "$out" \
		github.com/golangci/golangci-lint/v2/cmd/golangci-lint gotest.tools/gotestsum \
		honnef.co/go/tools/cmd/staticcheck
}

helm() {
	local flags=()
	CGO_ENABLED=0 group helm "$root/hack/tools/helm" "$out" helm.sh/helm/v3/cmd/helm
}

sidecars() {
	local csi=github.com/kubernetes-csi flags=()
	CGO_ENABLED=0 group sidecars "$root/hack/tools/sidecars" "$out/sidecars" \
		$csi/external-provisioner/v6/cmd/csi-provisioner $csi/external-attacher/v4/cmd/csi-attacher \
		$csi/external-resizer/v2/cmd/csi-resizer $csi/external-snapshotter/v8/cmd/csi-snapshotter \
		$csi/external-snapshotter/v8/cmd/snapshot-controller
}

case ${1:-} in
-h | --help)
	usage
	exit
	;;
esac

mkdir -p "$out"
groups=("$@")
((${#groups[@]})) || groups=(runtime cni coredns)
for g in "${groups[@]}"; do
	case $g in
	runtime | cni | coredns | etcd | lint | helm | sidecars) "$g" ;;
	*)
		usage >&2
		exit 2
		;;
	esac
done
