#!/usr/bin/env bash
# Copyright The Keelson Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Builds busybox from Debian's source package, static, into the file that is
# named. Debian's own static busybox cannot look up names (glibc wants its
# shared libraries for that), so musl is the C library here. Programs in PATH win
# over its own applets.
set -euo pipefail

if (($# != 1)) || [[ $1 == -h || $1 == --help ]]; then
	echo "usage: hack/busybox.sh FILE"
	exit
fi
file=$(realpath -m "$1")
stamp=$file.made-by
digest=$(sha256sum <"${BASH_SOURCE[0]}")
[[ -x $file && -f $stamp && $(<"$stamp") == "$digest" ]] && exit

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
mkdir lists
echo 'deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian bookworm main' >sources.list
apt=(apt-get -qq -o Dir::Etc::sourcelist="$work/sources.list" -o Dir::Etc::sourceparts=/dev/null
	-o Dir::State::lists="$work/lists" -o APT::Sandbox::User=root)
echo "busybox: fetching the source"
"${apt[@]}" update
"${apt[@]}" source --download-only busybox
tar -xf busybox_*.orig.tar.bz2
cd busybox-*/

# musl writes what is up to the first line feed at once, even into a pipe, and what follows
# later. A reader that wants all in one piece, as dd does, had half of it now and then: what is
# no terminal gets whole buffers, as with the C library that others build busybox with.
cat >>libbb/appletlib.c <<-'END'
	static void __attribute__((constructor)) buffer_whole(void)
	{
		if (!isatty(STDOUT_FILENO))
			setvbuf(stdout, NULL, _IOFBF, 0);
	}
END

echo "busybox: building"
make -s defconfig >/dev/null 2>&1
set_config() { sed -i -e "s/^CONFIG_$1=.*/CONFIG_$1=$2/" -e "s/^# CONFIG_$1 is not set/CONFIG_$1=$2/" .config; }
unset_config() { sed -i "s/^CONFIG_$1=y/# CONFIG_$1 is not set/" .config; }
set_config STATIC y
unset_config FEATURE_PREFER_APPLETS
unset_config FEATURE_SH_STANDALONE
unset_config TC # wants kernel headers that are gone
# The kernel's headers, after musl's own.
set_config EXTRA_CFLAGS '"-idirafter \/usr\/include -idirafter \/usr\/include\/'"$(gcc -dumpmachine)"'"'
(set +o pipefail; yes '' | make -s oldconfig >/dev/null 2>&1)
make -s -j"$(nproc)" CC=musl-gcc busybox >build.log 2>&1 || {
	tail -n 20 build.log >&2
	exit 1
}
# The pipe stays open for a while, so that what is written too early is seen alone.
whole=$({
	printf 'ab\ncdef' | base64
	sleep 1
} | ./busybox base64 -d | ./busybox dd bs=64 count=1 2>/dev/null)
if [[ $whole != $'ab\ncdef' ]]; then
	echo "busybox: writes ${whole@Q} before the rest" >&2
	exit 1
fi
mkdir -p "$(dirname "$file")"
install -m 0755 busybox "$file"
echo "$digest" >"$stamp"
