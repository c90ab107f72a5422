#!/usr/bin/env bash
# Copyright The Keelson Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Builds a release for amd64 and arm64: an archive and a Debian package with Keelson's programs, the
# programs that nodes run, the images of the add-ons, licences and a bill of materials. Intermediate
# results are in .build/release.
set -euo pipefail

usage() {
	cat <<-'USAGE'
		usage: hack/release.sh [--dirty] [--quick] [--out DIRECTORY] [ARCH...]

		Writes the release of the present commit into DIRECTORY (default: dist). Without ARCH, builds for
		amd64 and arm64. The version is that of pkg/release if the commit has its tag, and otherwise the
		same with "-dev.gCOMMIT".

		  --dirty  build although files differ from the commit; the version then ends with ".dirty"
		  --quick  compress little, for tests on this machine
	USAGE
}

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
# shellcheck source=hack/progress.sh
source hack/progress.sh
out=dist dirty= quick=
while (($#)); do
	case $1 in
	-h | --help)
		usage
		exit
		;;
	--dirty) dirty=yes ;;
	--quick) quick=-quick ;;
	--out)
		out=$2
		shift
		;;
	amd64 | arm64) break ;;
	*)
		usage >&2
		exit 2
		;;
	esac
	shift
done
arches=("$@")
((${#arches[@]})) || arches=(amd64 arm64)

hack/deps.sh release
umask 022
changes=$(git status --porcelain)
if [[ -n $changes && -z $dirty ]]; then
	echo "release: these files differ from the commit; commit them, or use --dirty:" >&2
	echo "$changes" | head -n 20 >&2
	exit 1
fi
commit=$(git rev-parse HEAD)
version=$(sed -n 's/^var Version = "\(.*\)"$/\1/p' pkg/release/release.go)
[[ -z $changes && $(git tag --points-at HEAD --list "v$version") ]] || version+=-dev.g${commit:0:12}
[[ -z $changes ]] || version+=.dirty

# build ARCH builds everything that the release has for an architecture.
build() {
	local arch=$1 work=.build/release/$1
	rm -rf "$work" # of an earlier call: it may have files that this release does not have
	mkdir -p "$work"/{root/bin,root/images,root/sources,texts/{go,crun,debian},parts/{coredns,ingress,pause}}
	step "$arch: Keelson's programs" hack/build.sh --release "$version" "$arch" "$work/root/bin"
	step "$arch: programs of nodes" hack/tools.sh --for "$arch" "$work/root/tools" containerd cni etcd crun
	step "$arch: CoreDNS" hack/tools.sh --for "$arch" "$work/parts/coredns" coredns
	step "$arch: ingress proxy and pause" image_programs "$arch" "$work/parts"
	step "$arch: images" go run ./hack/images -arch "$arch" -out "$work/root/images" \
		-pause "$work/parts/pause/pause" -coredns "$work/parts/coredns/coredns" -ingress "$work/parts/ingress/ingress"
	[[ ! -d deploy/systemd ]] || cp -r deploy/systemd "$work/root/systemd"
	texts "$work/texts"
	# The licence of crun requires that its source comes with it.
	cp "$work/texts/crun.tar.gz" "$work/root/sources/crun_1.21.orig.tar.gz"
	cp hack/crun.sh "$work/root/sources/"
	compilers "$arch" >"$work/debian"
	step "$arch: archive and package" pack "$arch" "$work"
	step "$arch: start the programs" hack/release-start.sh "$arch" "$work"
}

image_programs() {
	local cc=gcc system
	if [[ $1 != "$(dpkg --print-architecture)" ]]; then
		system=$(hack/cross.sh "$1")
		cc="$(dpkg-architecture -a"$1" -qDEB_HOST_MULTIARCH 2>/dev/null)-gcc --sysroot=$system"
	fi
	# $cc has flags.
	$cc -Os -static -s -Wall -Wextra -o "$2/pause/pause" test/images/pause/pause.c
	GOARCH=$1 go build -v -buildvcs=false -ldflags '-s -w' -o "$2/ingress/" ./cmd/ingress
}

# texts DIRECTORY collects the licences of what is not a Go module.
texts() {
	local package
	cp "$(go env GOROOT)/LICENSE" "$(go env GOROOT)/PATENTS" "$1/go/"
	hack/crun.sh --source "$1/crun.tar.gz"
	tar -xf "$1/crun.tar.gz" -C "$1/crun" --strip-components=1 --wildcards '*/COPYING*' '*/LICENSE*'
	for package in gcc-12-base libc6-dev libcap-dev libseccomp-dev libyajl-dev; do
		mkdir -p "$1/debian/$package"
		cp -L "/usr/share/doc/$package/copyright" "$1/debian/$package/"
	done
	mkdir -p "$1/debian/common-licenses"
	cp -L /usr/share/common-licenses/{GPL-2,GPL-3,LGPL-2.1} "$1/debian/common-licenses/"
}

# compilers ARCH prints the Debian packages on whose contents the release depends, with their versions.
compilers() {
	local packages=(binutils gcc-12 gcc-12-base libc6-dev libcap-dev libseccomp-dev libyajl-dev xz-utils)
	if [[ $1 == "$(dpkg --print-architecture)" ]]; then
		dpkg-query --show --showformat '${Package} ${Version}\n' "${packages[@]}"
	else
		cat ".build/cross/$1.versions"
		dpkg-query --show --showformat '${Package} ${Version}\n' "gcc-12-*-linux-gnu" "binutils-*-linux-gnu" \
			xz-utils
	fi
}

pack() {
	local arch=$1 work=$2
	(cd hack/release && GOWORK=off go run . -version "$version" -arch "$arch" -commit "$commit" \
		-time "$(git log -1 --format=%ct)" -root "$root/$work/root" -parts "$root/$work/parts" \
		-texts "$root/$work/texts" -debian "$root/$work/debian" -modules "$(go env GOMODCACHE)" -source "$root" \
		-out "$out" $quick)
}

mkdir -p "$out"
out=$(realpath "$out")
rm -f "$out"/keelson-* "$out"/SHA256SUMS # of an earlier version
steps $((7 * ${#arches[@]}))
for arch in "${arches[@]}"; do
	build "$arch"
done
(cd "$out" && sha256sum keelson-* >SHA256SUMS)
ls -l "$out"
