#!/usr/bin/env bash
# Copyright The Keelson Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Starts each program of a release that hack/release.sh has built, and lets it print its version. The
# programs of another architecture run in Debian's qemu-user-static. This shows that they load and run,
# but not that containers work.
set -euo pipefail

if (($# != 2)) || [[ $1 == -h || $1 == --help ]]; then
	echo "usage: hack/release-start.sh ARCH DIRECTORY    (DIRECTORY: .build/release/ARCH)"
	exit
fi
cd "$2"
emulator=()
if [[ $1 != "$(dpkg --print-architecture)" ]]; then
	# Before crun does anything, it executes a copy of /proc/self/exe, which is the emulator here. It does
	# not do so if its own file is on a read-only file system.
	emulator=(unshare --mount sh -c 'mount --bind -o ro "$2" "$2" && exec "$@"' sh
		"qemu-$(dpkg-architecture -a"$1" -qDEB_HOST_GNU_CPU 2>/dev/null)-static")
fi

# start PROGRAM [ARGUMENT...] prints the first line that a program prints.
start() {
	local said
	said=$("${emulator[@]}" "$@" 2>&1) || {
		echo "release-start: $* failed: $said" >&2
		exit 1
	}
	[[ -n $said ]] || {
		echo "release-start: $* printed nothing" >&2
		exit 1
	}
	echo "$1: ${said%%$'\n'*}"
}

for program in root/bin/{apiserver,controller-manager,kubelet,proxy,scheduler} parts/ingress/ingress; do
	start "$program" --version
done
start root/bin/ctl version --client
start root/bin/kubectl version --client
for program in root/tools/{containerd,ctr,crun,etcd}; do
	start "$program" --version
done
start root/tools/containerd-shim-runc-v2 -v
start parts/coredns/coredns -version
for program in root/bin/cni root/tools/cni/*; do
	CNI_COMMAND=VERSION start "$program" <<<'{"cniVersion": "1.0.0"}'
done
# pause waits for a signal, and ends without an error when it gets one.
timeout --preserve-status --signal TERM 1 "${emulator[@]}" parts/pause/pause
