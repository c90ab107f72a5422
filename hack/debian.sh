#!/usr/bin/env bash
# Copyright The Keelson Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Unpacks Debian packages and their dependencies into a directory. It is the base of images whose
# programs need more than busybox, and has the libraries for another architecture. The packages'
# scripts do not run. DIRECTORY.versions gets the packages' names and versions.
set -euo pipefail

if (($# < 2)) || [[ $1 == -h || $1 == --help ]]; then
	echo "usage: hack/debian.sh [--arch ARCH] DIRECTORY PACKAGE..."
	exit
fi
arch=$(dpkg --print-architecture)
if [[ $1 == --arch ]]; then
	arch=$2
	shift 2
fi
dir=$(realpath -m "$1")
shift
stamp=$dir.packages
[[ -f $stamp && $(<"$stamp") == "$*" ]] && exit

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
touch "$work/status"
mkdir -p "$work/lists/partial" "$dir"
options=(-qq -y -o APT::Sandbox::User=root -o Debug::NoLocking=1 -o Dir::State::status="$work/status"
	-o Dir::Cache::archives="$work")
if [[ $arch != "$(dpkg --print-architecture)" ]]; then
	# This machine's lists of packages need not have those of another architecture.
	options+=(-o APT::Architecture="$arch" -o APT::Architectures="$arch" -o Dir::State::lists="$work/lists"
		-o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache=)
	apt-get "${options[@]}" update
fi
echo "debian: fetching $*"
apt-get "${options[@]}" --download-only --no-install-recommends install "$@" >/dev/null
rm -rf "$dir"
mkdir -p "$dir"
for package in "$work"/*.deb; do
	dpkg -x "$package" "$dir"
	dpkg-deb --show --showformat '${Package} ${Version}\n' "$package"
done >"$dir.versions"
rm -rf "$dir/usr/share/doc" "$dir/usr/share/man" "$dir/usr/share/locale" "$dir/usr/share/info" "$dir/var/cache"
# Links that the packages' scripts would have made.
[[ ! -d $dir/bin || -e $dir/bin/sh ]] || ln -s dash "$dir/bin/sh"
[[ ! -e $dir/bin/nc.openbsd ]] || ln -sf nc.openbsd "$dir/bin/nc"
echo "$*" >"$stamp"
