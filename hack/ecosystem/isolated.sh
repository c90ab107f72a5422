#!/usr/bin/env bash
# Copyright The Keelson Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Runs a command in a network namespace of its own, without access to other networks, if the script
# runs as root. So tests that want the Internet fail at once.
set -euo pipefail

if (($# == 0)) || [[ $1 == -h || $1 == --help ]]; then
	echo "usage: hack/ecosystem/isolated.sh COMMAND [ARGUMENT...]"
	exit
fi
if [[ $(id -u) != 0 ]]; then
	exec "$@"
fi
exec unshare --net bash -c 'ip link set lo up && exec "$@"' _ "$@"
