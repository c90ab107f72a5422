#!/usr/bin/env bash
# Copyright The Keelson Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Makes the disk image of the machines on which test/machines installs Keelson, and prints its
# directory. It is a minimal Debian 12 with the packages that Keelson's own packages may depend on.
# The image is below .build/machines, and is made again only if this script changes.
set -euo pipefail

case ${1:-} in
-h | --help)
	echo "usage: hack/machines.sh    (run hack/deps.sh machines first)"
	exit
	;;
esac

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
recipe=$(sha256sum "${BASH_SOURCE[0]}" | cut -c -12)
image=$root/.build/machines/debian-$recipe
mkdir -p "$root/.build/machines"
exec 9>"$root/.build/machines/.lock"
flock 9
if [[ -d $image ]]; then
	echo "$image"
	exit
fi

work=$image.new
rm -rf "$work" # of an earlier call that was killed
log=$root/.build/machines/debian.log
fail() {
	[[ ! -f $log ]] || tail -n 20 "$log" >&2
	echo "machines: $1" >&2
	exit 1
}

mapfile -t mirrors < <(apt-get indextargets --no-release-info --format '$(REPO_URI)' \
	'Created-By: Packages' 'Component: main' 'Release: bookworm' | awk '!seen[$0]++')
((${#mirrors[@]})) || fail "apt's sources have no mirror of Debian 12"
packages=systemd,systemd-sysv,dbus,iproute2,nftables,kmod,procps,util-linux,conntrack,ca-certificates
packages+=,e2fsprogs,mount,ethtool,iputils-ping
echo "machines: fetching Debian 12" >&2
# The variable selects a way of setting up /dev and /proc that does not depend on this machine.
export container=systemd-nspawn
debootstrap --foreign --variant=minbase --include="$packages" bookworm "$work" "${mirrors[0]%/}" >"$log" 2>&1 ||
	fail "fetching Debian failed"

# The scripts of the packages run without a network, and cannot change this machine's kernel settings.
echo "machines: installing Debian 12" >&2
install() {
	unshare --mount --pid --net --uts --ipc --fork --kill-child sh -ec '
		mount -t proc proc "$0/proc"
		mount --bind "$0/proc/sys" "$0/proc/sys"
		mount -o remount,bind,ro "$0/proc/sys"
		exec chroot "$0" /debootstrap/debootstrap --second-stage' "$work"
}
DEBIAN_FRONTEND=noninteractive install </dev/null >>"$log" 2>&1 || fail "installing Debian failed"

# No machine reaches a mirror or a name server. Each gets its own host name, hosts and machine ID.
rm -rf "$work"/{debootstrap,etc/hostname,etc/resolv.conf,etc/apt/sources.list,var/cache/apt/*.bin}
rm -rf "$work"/{usr/share/doc,usr/share/man,usr/share/locale,var/lib/apt/lists,var/cache/apt/archives,dev}/*
: >"$work/etc/machine-id"
: >"$work/etc/resolv.conf"
# Machines have no log-in on a terminal, and no timers that change what runs on them from hour to hour.
# The audit system, debugfs and tracefs belong to the kernel, and so to all machines together.
for unit in console-getty.service getty.target apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer \
	e2scrub_all.timer e2scrub_reap.service systemd-journald-audit.socket sys-kernel-debug.mount \
	sys-kernel-tracing.mount; do
	ln -sf /dev/null "$work/etc/systemd/system/$unit"
done
mv "$work" "$image"
for other in "$root"/.build/machines/debian-*/; do
	[[ ${other%/} == "$image" ]] || rm -rf "$other"
done
echo "$image"
