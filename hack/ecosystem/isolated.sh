#!/usr/bin/env bash
# Copyright The Keelson Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Runs a command in a network namespace of its own, without access to other networks, if the script
# runs as root. So tests that want the Internet fail at once. The command also has a PID namespace, so
# that no process that a test has left behind outlives the command.
set -euo pipefail

if (($# == 0)) || [[ $1 == -h || $1 == --help ]]; then
	echo "usage: hack/ecosystem/isolated.sh COMMAND [ARGUMENT...]"
	exit
fi
if [[ $(id -u) != 0 ]]; then
	exec "$@"
fi
# The shell stays the namespace's first process, which has to wait for orphans.
exec unshare --net --pid --fork --kill-child --mount-proc bash -c 'ip link set lo up && "$@"; exit $?' _ "$@"
