#!/usr/bin/env bash
# Copyright The Keelson Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Runs a command for at most a time. timeout gives the command a process group of its own, which
# neither Ctrl-C nor a signal to this script's group reaches: without the trap the command would go on.
set -euo pipefail

if (($# < 2)) || [[ $1 == -h || $1 == --help ]]; then
	echo "usage: hack/limit.sh TIME COMMAND [ARGUMENT...]    (ends what still runs a minute after TIME)"
	exit
fi
timeout --kill-after=1m "$@" &
child=$!
trap 'kill "$child" && wait "$child"' INT TERM
wait "$child"
