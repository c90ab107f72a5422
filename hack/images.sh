#!/usr/bin/env bash
# Copyright The Keelson Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Builds OCI archives of container images, unless their sources have not changed. Without an argument
# it builds the images that every node starts with, in .build/images. With an argument it builds
# images for tests, in .build/e2e-images:
#   e2e       the images that the e2e tests load themselves
#   sidecars  Kubernetes' CSI sidecars, with their custom resources and roles
#   mock      the images that Kubernetes' test suite deploys with storage drivers
set -euo pipefail

case ${1:-} in
-h | --help)
	echo "usage: hack/images.sh [e2e|sidecars|mock]    (run hack/tools.sh first)"
	exit
	;;
esac

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
# shellcheck source=hack/progress.sh
source hack/progress.sh
if [[ ${1:-} == e2e ]]; then
	out=.build/e2e-images
	mkdir -p "$out"
	(cd test/e2e/operator && GOWORK=off go build -ldflags '-s -w' -o "$root/$out/operator" .)
	if [[ $out/operator -nt $out/operator.tar ]]; then
		go run ./hack/images -out "$out" -operator "$out/operator"
	fi
	go build -ldflags '-s -w' -o "$out/csi" ./test/csi
	if [[ $out/csi -nt $out/csi.tar ]]; then
		go run ./hack/images -out "$out" -driver "$out/csi"
	fi
	go build -ldflags '-s -w' -o "$out/walstore" ./test/walstore
	if [[ $out/walstore -nt $out/walstore.tar ]]; then
		go run ./hack/images -out "$out" -store "$out/walstore"
	fi
	exit
fi
if [[ ${1:-} == mock ]]; then
	out=.build/e2e-images/mock
	mkdir -p "$out"
	go build -ldflags '-s -w' -o "$out/mock" ./test/images/csi
	go build -ldflags '-s -w' -o "$out/populator" ./test/images/populator
	if [[ $out/mock -nt $out/hostpathplugin.tar || $out/populator -nt $out/hello-populator.tar || \
		hack/images/specs.go -nt $out/hostpathplugin.tar ]]; then
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
	# The custom resources and roles come from the sidecars' modules.
	module() { (cd hack/tools/sidecars && GOWORK=off go list -m -f '{{.Dir}}' "github.com/kubernetes-csi/$1"); }
	snapshotter=$(module external-snapshotter/v8)
	for kind in "$(module external-snapshotter/client/v8)"/config/crd/*.storage.k8s.io_*.yaml; do
		cp "$kind" "$out/manifests/${kind##*_}"
	done
	cp "$snapshotter/deploy/kubernetes/snapshot-controller/rbac-snapshot-controller.yaml" \
		"$out/manifests/snapshot-controller.yaml"
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
sources=(hack/images/*.go hack/images.sh hack/busybox.sh test/images/pause/pause.c test/images/web/main.go \
	test/images/web/index.html)

# The ingress program does not contain the commit (-buildvcs=false). So a commit that does not change
# the program does not change the image either.
ingress=$parts/ingress
mkdir -p "$parts"
if [[ ! -f $ingress || -n $(find cmd/ingress pkg/ingress pkg/api/networking/hosts pkg/daemon pkg/health \
	staging/src/keelson.dev/api go.mod go.sum -newer "$ingress" -type f ! -name '*_test.go' -print -quit) ]]; then
	step "ingress controller" go build -v -buildvcs=false -ldflags '-s -w' -o "$ingress" ./cmd/ingress
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
steps 3
step busybox hack/busybox.sh "$parts/busybox"
programs() {
	gcc -Os -static -s -Wall -Wextra -o "$parts/pause" test/images/pause/pause.c
	go build -v -ldflags '-s -w' -o "$parts/web" ./test/images/web
}
step "pause and web server" programs
step archives go run ./hack/images -out "$out" -pause "$parts/pause" -web "$parts/web" \
	-index test/images/web/index.html \
	-busybox "$parts/busybox" -coredns bin/tools/coredns -ingress "$ingress"
echo "$digest" >"$out/.stamp"
