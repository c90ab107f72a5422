#!/usr/bin/env bash
# Copyright The Keelson Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Builds the images that every node is loaded with, as OCI archives in
# .build/images; or, with the argument e2e, those that the e2e tests load
# themselves, in .build/e2e-images; or, with the argument sidecars, those of
# Kubernetes' CSI sidecars, with their types and roles, for the e2e tests too; or, with the argument
# mock, those that the upstream suite deploys with storage drivers. Nothing is built when
# nothing that they are made of changed.
set -euo pipefail

case ${1:-} in
-h | --help)
	echo "usage: hack/images.sh [e2e|sidecars|mock]   (writes .build/images/*.tar, or what e2e tests load to .build/e2e-images; needs hack/tools.sh to have run)"
	exit
	;;
esac

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
if [[ ${1:-} == e2e ]]; then
	out=.build/e2e-images
	mkdir -p "$out"
	(cd test/e2e/operator && CGO_ENABLED=0 GOWORK=off go build -trimpath -ldflags '-s -w' -o "$root/$out/operator" .)
	if [[ $out/operator -nt $out/operator.tar ]]; then
		go run ./hack/images -out "$out" -operator "$out/operator"
	fi
	CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o "$out/csi" ./test/csi
	if [[ $out/csi -nt $out/csi.tar ]]; then
		go run ./hack/images -out "$out" -driver "$out/csi"
	fi
	CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o "$out/walstore" ./test/walstore
	if [[ $out/walstore -nt $out/walstore.tar ]]; then
		go run ./hack/images -out "$out" -store "$out/walstore"
	fi
	exit
fi
if [[ ${1:-} == mock ]]; then
	out=.build/e2e-images/mock
	mkdir -p "$out"
	CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o "$out/mock" ./test/images/csi
	CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o "$out/populator" ./test/images/populator
	if [[ $out/mock -nt $out/hostpathplugin.tar || $out/populator -nt $out/hello-populator.tar || hack/images/specs.go -nt $out/hostpathplugin.tar ]]; then
		hack/busybox.sh .build/image-parts/busybox
		go run ./hack/images -out "$out" -mock "$out/mock" -populator "$out/populator" -busybox .build/image-parts/busybox
	fi
	exit
fi
if [[ ${1:-} == sidecars ]]; then
	out=.build/e2e-images/sidecars
	if [[ $out/.stamp -nt bin/tools/.stamp-sidecars && $out/.stamp -nt hack/images.sh ]]; then
		exit
	fi
	mkdir -p "$out/manifests"
	go run ./hack/images -out "$out" -sidecars bin/tools/sidecars
	# The types and roles are those that the sidecars' modules come with.
	module() { (cd hack/tools/sidecars && GOWORK=off go list -m -f '{{.Dir}}' "github.com/kubernetes-csi/$1"); }
	snapshotter=$(module external-snapshotter/v8)
	for kind in "$(module external-snapshotter/client/v8)"/config/crd/*.storage.k8s.io_*.yaml; do
		cp "$kind" "$out/manifests/${kind##*_}"
	done
	cp "$snapshotter/deploy/kubernetes/snapshot-controller/rbac-snapshot-controller.yaml" "$out/manifests/snapshot-controller.yaml"
	cp "$snapshotter/deploy/kubernetes/csi-snapshotter/rbac-csi-snapshotter.yaml" "$out/manifests/snapshotter.yaml"
	cp "$(module external-provisioner/v6)/deploy/kubernetes/rbac.yaml" "$out/manifests/provisioner.yaml"
	cp "$(module external-attacher/v4)/deploy/kubernetes/rbac.yaml" "$out/manifests/attacher.yaml"
	cp "$(module external-resizer/v2)/deploy/kubernetes/rbac.yaml" "$out/manifests/resizer.yaml"
	chmod -R u+w "$out/manifests"
	touch "$out/.stamp"
	exit
fi
out=.build/images
parts=.build/image-parts
sources=(hack/images/*.go hack/images.sh hack/busybox.sh test/images/pause/pause.c test/images/web/main.go test/images/web/index.html)

# Nothing of the commit is in it: a node whose images have not changed keeps them.
ingress=$parts/ingress
mkdir -p "$parts"
if [[ ! -f $ingress || -n $(find cmd/ingress pkg/ingress pkg/api/networking/hosts pkg/daemon pkg/health staging/src/keelson.dev/api go.mod go.sum -newer "$ingress" -type f ! -name '*_test.go' -print -quit) ]]; then
	CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags '-s -w' -o "$ingress" ./cmd/ingress
	touch "$ingress"
fi

digest=$({
	sha256sum "$ingress"
	sha256sum "${sources[@]}"
	cat bin/tools/.stamp-coredns
	go version
} | sha256sum | cut -d' ' -f1)
if [[ -f $out/.stamp && $(<"$out/.stamp") == "$digest" ]]; then
	exit
fi

mkdir -p "$out"
hack/busybox.sh "$parts/busybox"
echo "images: building programs"
gcc -Os -static -s -Wall -Wextra -o "$parts/pause" test/images/pause/pause.c
CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o "$parts/web" ./test/images/web
go run ./hack/images -out "$out" -pause "$parts/pause" -web "$parts/web" -index test/images/web/index.html \
	-busybox "$parts/busybox" -coredns bin/tools/coredns -ingress "$ingress"
echo "$digest" >"$out/.stamp"
