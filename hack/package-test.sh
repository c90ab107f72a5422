#!/usr/bin/env bash
# Copyright The Keelson Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Installs a Debian package of Keelson on a machine of the lab (test/machines), creates a cluster, and
# removes both again. Without FILE, it first builds the package of the present commit for this machine,
# with little compression.
set -euo pipefail

case ${1:-} in
-h | --help)
	echo "usage: hack/package-test.sh [FILE]"
	exit
	;;
esac
package=${1:-}
cd "$(dirname "${BASH_SOURCE[0]}")/.."
hack/deps.sh machines
if [[ -z $package ]]; then
	work=$(mktemp -d)
	trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
	hack/release.sh --quick --out "$work" "$(dpkg --print-architecture)"
	package=$(echo "$work"/*.deb)
fi
KEELSON_PACKAGE=$package go test -count=1 -timeout 10m -run 'TestPackage$' -v ./test/machines
