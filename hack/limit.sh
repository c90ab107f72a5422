#!/usr/bin/env bash
# Copyright The Keelson Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Runs a command with a time limit. timeout puts the command into a process group of its own, so
# Ctrl-C and signals to this script's group do not reach it. The trap passes them on.
set -euo pipefail

if (($# < 2)) || [[ $1 == -h || $1 == --help ]]; then
	echo "usage: hack/limit.sh TIME COMMAND [ARGUMENT...]    (SIGTERM after TIME, SIGKILL a minute later)"
	exit
fi
timeout --kill-after=1m "$@" &
child=$!
trap 'kill "$child" && wait "$child"' INT TERM
wait "$child"
