#!/bin/sh
# The first program of a machine. It makes writable what belongs to the machine alone, its cgroups and
# the settings of its network namespace, and then starts systemd.
set -eu
for dir in /sys/fs/cgroup/*/; do
	mount -o remount,bind,rw,nosuid,nodev,noexec "$dir"
done
mount --bind /proc/sys/net /proc/sys/net
mount -o remount,bind,rw,nosuid,nodev,noexec /proc/sys/net
exec /lib/systemd/systemd
