#!/usr/bin/env bash
# Copyright The Keelson Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Builds crun, the OCI runtime of nodes, from the source that Debian 13 has, static, into the
# file that is named. Debian 12's does not know the specification that containerd writes.
set -euo pipefail

if (($# != 1)) || [[ $1 == -h || $1 == --help ]]; then
	echo "usage: hack/crun.sh FILE"
	exit
fi
file=$(realpath -m "$1")
stamp=$(dirname "$file")/.stamp-crun
digest=$(sha256sum <"${BASH_SOURCE[0]}")
[[ -x $file && -f $stamp && $(<"$stamp") == "$digest" ]] && exit

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
mkdir lib
version=1.21
sum=4bfb700e764a4804a4de3ecf07753f4c391005356d60356df65d80ae0914c486
echo "crun: fetching the source"
curl -fsS --retry 5 --retry-all-errors -o crun.tar.gz "http://deb.debian.org/debian/pool/main/c/crun/crun_$version.orig.tar.gz"
sha256sum --quiet -c <<<"$sum  crun.tar.gz"
tar -xf crun.tar.gz
cd crun-*/

# Where a machine has both versions of cgroups, crun refuses to run if a controller is with the
# second. Containers are put into a group of either all the same, as runc does; what limits there
# are in the second (those of huge pages) the kubelet sets on the pod's.
refusal='cgroups in hybrid mode not supported'
grep -q "if (len > 0)" src/libcrun/cgroup.c && grep -q "$refusal" src/libcrun/cgroup.c
sed -i "/if (len > 0)/,/$refusal/d" src/libcrun/cgroup.c

# The static library has another name than the shared one.
ln -s "$(gcc -print-file-name=libyajl_s.a)" "$work/lib/libyajl.a"
echo "crun: building"
{
	./configure --disable-systemd --disable-criu --disable-dependency-tracking LDFLAGS="-static -L$work/lib" CFLAGS=-O2
	make -j"$(nproc)" LDFLAGS="-all-static -L$work/lib"
} >build.log 2>&1 || {
	tail -n 20 build.log >&2
	exit 1
}
mkdir -p "$(dirname "$file")"
install -s -m 0755 crun "$file.new"
mv -f "$file.new" "$file"
echo "$digest" >"$stamp"
