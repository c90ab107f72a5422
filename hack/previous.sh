#!/usr/bin/env bash
# Copyright The Keelson Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Builds the programs of Keelson with the previous release of Kubernetes, from this repository's history,
# into .build/previous/bin. The test of upgrades starts with them. A second run does nothing.
set -euo pipefail

# The last commit before Keelson followed Kubernetes 1.37.
commit=30b530273b34d80370d8eefc27b1296c86d7fd85

case ${1:-} in
-h | --help)
	echo "usage: hack/previous.sh    (builds the programs of Keelson with Kubernetes 1.36 into .build/previous/bin)"
	exit
	;;
esac

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
dir=$root/.build/previous
if [[ $(git -C "$dir" rev-parse --verify --quiet HEAD 2>/dev/null) != "$commit" || ! -f $dir/go.mod ]]; then
	if ! git -C "$root" cat-file -e "$commit^{commit}" 2>/dev/null; then
		echo "previous: the commit $commit, the last one with Kubernetes 1.36, is not in this repository." >&2
		echo "previous: the history is shallow or incomplete; get all of it with: git fetch --unshallow" >&2
		exit 1
	fi
	rm -rf "$dir"
	mkdir -p "$root/.build"
	# A clone has its own HEAD, from which the build script reads the version of the programs. It shares
	# the objects of this repository.
	git clone --quiet --shared --no-checkout "$root" "$dir"
	git -C "$dir" checkout --quiet --detach "$commit"
fi
"$dir/hack/build.sh"
