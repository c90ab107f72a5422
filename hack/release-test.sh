#!/usr/bin/env bash
# Copyright The Keelson Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Checks that a release is reproducible: builds the present commit here and in another directory, with
# another umask, time zone and language, and compares the bytes. Both builds use the same cache of
# compiled Go packages, but link all programs and compile all C programs. With --cold, the second build
# also compiles all Go packages, which takes half an hour of CPU time for each architecture.
#
# It also installs the package for the architecture of this machine on a machine of the lab
# (test/machines), creates a cluster, and removes both again.
set -euo pipefail

case ${1:-} in
-h | --help)
	echo "usage: hack/release-test.sh [--cold] [--quick] [ARCH...]    (see hack/release.sh --quick)"
	exit
	;;
esac
cold=
if [[ ${1:-} == --cold ]]; then
	cold=yes
	shift
fi

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
work=$(mktemp -d)
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT

hack/release.sh --out "$work/first" "$@"
(
	umask 077
	# The clone has the tags, from which the version is made, and no untracked files.
	git clone --quiet --shared "$root" "$work/elsewhere"
	export TZ=Asia/Kathmandu LC_ALL=C.UTF-8
	[[ -z $cold ]] || export GOCACHE=$work/cache
	"$work/elsewhere/hack/release.sh" --out "$work/second" "$@"
)
differences=0
for file in "$work"/first/*; do
	cmp "$file" "$work/second/${file##*/}" || differences=$((differences + 1))
done
if ((differences)); then
	echo "release-test: $differences files differ" >&2
	exit 1
fi
echo "release-test: $(find "$work/first" -type f | wc -l) files are equal"

for package in "$work"/first/*_"$(dpkg --print-architecture)".deb; do
	if [[ -e $package ]]; then
		hack/package-test.sh "$package"
	fi
done
