#!/usr/bin/env bash
# Copyright The Keelson Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Builds crun, the OCI runtime of nodes, as a static program from the source that Debian 13 has.
# Debian 12's version does not support the runtime specification that containerd writes. For another
# architecture than this machine's, it needs Debian's cross compiler.
set -euo pipefail

if (($# < 1 || $# > 2)) || [[ $1 == -h || $1 == --help ]]; then
	cat <<-'USAGE'
		usage: hack/crun.sh FILE [ARCH]
		       hack/crun.sh --source FILE

		  ARCH      amd64 or arm64
		  --source  only fetch the archive with the source
	USAGE
	exit
fi
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
fetch() {
	"$here/source.sh" crun/crun_1.21.orig.tar.gz 4bfb700e764a4804a4de3ecf07753f4c391005356d60356df65d80ae0914c486 \
		"$1"
}
if [[ $1 == --source ]]; then
	fetch "$(realpath -m "$2")"
	exit
fi
file=$(realpath -m "$1")
arch=${2:-$(dpkg --print-architecture)}
cc=gcc strip=strip options=()
if [[ $arch != "$(dpkg --print-architecture)" ]]; then
	triplet=$(dpkg-architecture -a"$arch" -qDEB_HOST_MULTIARCH 2>/dev/null)
	system=$("$here/cross.sh" "$arch")
	cc="$triplet-gcc --sysroot=$system" strip=$triplet-strip
	options=(--host="$triplet")
	export PKG_CONFIG_LIBDIR=$system/usr/lib/$triplet/pkgconfig PKG_CONFIG_SYSROOT_DIR=$system
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
mkdir lib
fetch "$work/crun.tar.gz"
tar -xf crun.tar.gz
cd crun-*/

# On a machine that mounts both versions of cgroups, crun refuses to run if version 2 has a controller.
# Remove this check: crun, like runc, can put containers into cgroups of both versions. The kubelet
# itself sets the limits in version 2 (those of huge pages) on the pod's cgroup.
refusal='cgroups in hybrid mode not supported'
grep -q "if (len > 0)" src/libcrun/cgroup.c && grep -q "$refusal" src/libcrun/cgroup.c
sed -i "/if (len > 0)/,/$refusal/d" src/libcrun/cgroup.c

# The static library's name differs from the shared one's.
ln -s "$($cc -print-file-name=libyajl_s.a)" "$work/lib/libyajl.a"
{
	./configure "${options[@]}" CC="$cc" --disable-systemd --disable-criu --disable-dependency-tracking \
		LDFLAGS="-static -L$work/lib" CFLAGS=-O2
	make -j"$(nproc)" LDFLAGS="-all-static -L$work/lib"
} >build.log 2>&1 || {
	tail -n 20 build.log >&2
	exit 1
}
mkdir -p "$(dirname "$file")"
install -s --strip-program="$strip" -m 0755 crun "$file.new"
mv -f "$file.new" "$file"
