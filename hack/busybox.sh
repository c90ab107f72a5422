#!/usr/bin/env bash
# Copyright The Keelson Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Builds busybox as a static program from the source that Debian 12 has. The C library is musl, because
# a static program with glibc, such as Debian's own static busybox, cannot look up host names: glibc
# loads shared libraries for that. In this busybox's shell, programs in PATH take precedence over
# applets.
set -euo pipefail

if (($# != 1)) || [[ $1 == -h || $1 == --help ]]; then
	echo "usage: hack/busybox.sh FILE"
	exit
fi
file=$(realpath -m "$1")
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
stamp=$file.made-by
digest=$(sha256sum <"${BASH_SOURCE[0]}")
[[ -x $file && -f $stamp && $(<"$stamp") == "$digest" ]] && exit

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
"$here/source.sh" busybox/busybox_1.35.0.orig.tar.bz2 \
	faeeb244c35a348a334f4a59e44626ee870fb07b6884d68c10ae8bc19f83a694 "$work/busybox.tar.bz2"
tar -xf busybox.tar.bz2
cd busybox-*/

# musl writes output up to the last line feed at once, even into a pipe, and the rest later. A reader
# that expects one piece, as dd does, would sometimes get only the first part. Buffer output fully
# unless it is a terminal, as glibc does.
cat >>libbb/appletlib.c <<-'END'
	static void __attribute__((constructor)) buffer_whole(void)
	{
		if (!isatty(STDOUT_FILENO))
			setvbuf(stdout, NULL, _IOFBF, 0);
	}
END

make -s defconfig >/dev/null 2>&1
set_config() { sed -i -e "s/^CONFIG_$1=.*/CONFIG_$1=$2/" -e "s/^# CONFIG_$1 is not set/CONFIG_$1=$2/" .config; }
unset_config() { sed -i "s/^CONFIG_$1=y/# CONFIG_$1 is not set/" .config; }
set_config STATIC y
unset_config FEATURE_PREFER_APPLETS
unset_config FEATURE_SH_STANDALONE
unset_config TC # needs kernel headers that no longer exist
# The kernel's headers come after musl's own.
set_config EXTRA_CFLAGS '"-idirafter \/usr\/include -idirafter \/usr\/include\/'"$(gcc -dumpmachine)"'"'
(set +o pipefail; yes '' | make -s oldconfig >/dev/null 2>&1)
make -s -j"$(nproc)" CC=musl-gcc busybox >build.log 2>&1 || {
	tail -n 20 build.log >&2
	exit 1
}
# The pipe stays open for a second, so that dd reads a part that is written too early on its own.
whole=$({
	printf 'ab\ncdef' | base64
	sleep 1
} | ./busybox base64 -d | ./busybox dd bs=64 count=1 2>/dev/null)
if [[ $whole != $'ab\ncdef' ]]; then
	echo "busybox: wrote ${whole@Q} before the rest" >&2
	exit 1
fi
mkdir -p "$(dirname "$file")"
install -m 0755 busybox "$file"
echo "$digest" >"$stamp"
