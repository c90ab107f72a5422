#!/usr/bin/env bash
# Copyright The Keelson Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Fetches a source archive of a Debian package from the mirror that this machine's apt is configured
# with. A mirror has the archives of all releases of Debian in one pool, so the archive may belong to
# another release than the machine's. The script checks the archive's SHA-256 digest.
set -euo pipefail

if (($# != 3)) || [[ $1 == -h || $1 == --help ]]; then
	echo "usage: hack/source.sh ARCHIVE SHA256 FILE    (ARCHIVE: PACKAGE/NAME, as in crun/crun_1.21.orig.tar.gz)"
	exit
fi
archive=$1 sum=$2 file=$3
mapfile -t mirrors < <(apt-get indextargets --no-release-info --format '$(REPO_URI)' \
	'Created-By: Packages' 'Component: main' | awk '!seen[$0]++')
log=$(mktemp)
trap 'rm -f "$log"' EXIT
for mirror in "${mirrors[@]%/}"; do
	if /usr/lib/apt/apt-helper -o APT::Sandbox::User=root -o Acquire::Retries=5 \
		download-file "$mirror/pool/main/${archive:0:1}/$archive" "$file" "SHA256:$sum" >>"$log" 2>&1; then
		exit
	fi
done
cat "$log" >&2
echo "source: $archive not found on any mirror in apt's sources: ${mirrors[*]:-there is none}" >&2
exit 1
