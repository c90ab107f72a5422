#!/bin/sh
# Copyright The Keelson Authors.
# SPDX-License-Identifier: Apache-2.0
#
# The first program of a machine. It makes writable what belongs to the machine alone: its cgroups and
# the settings of its network namespace. It makes sysrq-trigger read-only, which restarts the machine on
# which the lab runs. It makes the file with which programs get loop devices; they make the files of the
# devices themselves. Then it starts systemd.
set -eu
for dir in /sys/fs/cgroup/*/; do
	mount -o remount,bind,rw,nosuid,nodev,noexec "$dir"
done
mount --bind /proc/sys/net /proc/sys/net
mount -o remount,bind,rw,nosuid,nodev,noexec /proc/sys/net
if [ -e /proc/sysrq-trigger ]; then
	mount --bind /proc/sysrq-trigger /proc/sysrq-trigger
	mount -o remount,bind,ro,nosuid,nodev,noexec /proc/sysrq-trigger
fi
mknod -m 600 /dev/loop-control c 10 237
exec /lib/systemd/systemd
