#!/usr/bin/env bash
# Copyright The Keelson Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Unpacks Debian packages and their dependencies into a directory. It is the base of images whose
# programs need more than busybox. The packages' scripts do not run.
set -euo pipefail

if (($# < 2)) || [[ $1 == -h || $1 == --help ]]; then
	echo "usage: hack/debian.sh DIRECTORY PACKAGE..."
	exit
fi
dir=$(realpath -m "$1")
shift
stamp=$dir.packages
[[ -f $stamp && $(<"$stamp") == "$*" ]] && exit

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
touch "$work/status"
echo "debian: fetching $*"
apt-get -qq -y --download-only --no-install-recommends -o APT::Sandbox::User=root -o Debug::NoLocking=1 \
	-o Dir::State::status="$work/status" -o Dir::Cache::archives="$work" install "$@" >/dev/null
rm -rf "$dir"
mkdir -p "$dir"
for package in "$work"/*.deb; do
	dpkg -x "$package" "$dir"
done
rm -rf "$dir/usr/share/doc" "$dir/usr/share/man" "$dir/usr/share/locale" "$dir/usr/share/info" "$dir/var/cache"
# Links that the packages' scripts would have made.
[[ -e $dir/bin/sh ]] || ln -s dash "$dir/bin/sh"
[[ ! -e $dir/bin/nc.openbsd ]] || ln -sf nc.openbsd "$dir/bin/nc"
echo "$*" >"$stamp"
