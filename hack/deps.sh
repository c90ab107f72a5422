#!/usr/bin/env bash
# Copyright The Keelson Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Checks for root and for Go, and installs the Debian packages that are missing and needed to build
# and run a cluster. With the argument "machines", it also installs those that hack/machines.sh and
# test/machines need, and with "release" those that hack/release.sh needs.
set -euo pipefail

case ${1:-} in
-h | --help)
	echo "usage: hack/deps.sh [machines|release]"
	exit
	;;
esac

if ((EUID != 0)); then
	echo "deps: run as root: a cluster needs namespaces, mounts and cgroups" >&2
	exit 1
fi
if ! command -v go >/dev/null; then
	echo "deps: Go is not installed; install Go 1.26 or later" >&2
	exit 1
fi

# Each line has a package and a file of it. The package is installed if the file is missing.
missing=()
while read -r package have; do
	[[ -e $have ]] || missing+=("$package")
done <<-'LIST'
	bzip2 /usr/bin/bzip2
	ca-certificates /etc/ssl/certs/ca-certificates.crt
	conntrack /usr/sbin/conntrack
	curl /usr/bin/curl
	e2fsprogs /usr/sbin/mkfs.ext4
	gcc /usr/bin/gcc
	iproute2 /usr/bin/ip
	kmod /usr/sbin/modprobe
	libc6-dev /usr/include/stdio.h
	libcap-dev /usr/include/sys/capability.h
	libseccomp-dev /usr/include/seccomp.h
	libyajl-dev /usr/include/yajl/yajl_tree.h
	make /usr/bin/make
	mount /usr/bin/mount
	musl-tools /usr/bin/musl-gcc
	nftables /usr/sbin/nft
	pkg-config /usr/bin/pkg-config
	python3-minimal /usr/bin/python3
	util-linux /usr/bin/nsenter
	xz-utils /usr/bin/xz
LIST
if [[ ${1:-} == machines ]]; then
	[[ -e /usr/sbin/debootstrap ]] || missing+=(debootstrap)
	[[ -e /usr/bin/systemd-nspawn ]] || missing+=(systemd-container)
elif [[ ${1:-} == release ]]; then
	[[ -e /usr/bin/aarch64-linux-gnu-gcc ]] || missing+=(gcc-aarch64-linux-gnu)
	[[ -e /usr/bin/dpkg-architecture ]] || missing+=(dpkg-dev)
	[[ -e /usr/bin/git ]] || missing+=(git)
	[[ -e /usr/bin/lintian ]] || missing+=(lintian)
	[[ -e /usr/bin/qemu-aarch64-static ]] || missing+=(qemu-user-static)
fi
if ((${#missing[@]})); then
	echo "deps: installing ${missing[*]}"
	export DEBIAN_FRONTEND=noninteractive
	apt-get -qq update
	apt-get -qq -y install --no-install-recommends "${missing[@]}" >/dev/null
fi
