#!/usr/bin/env bash
# Copyright The Keelson Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Unpacks the headers and static libraries of another architecture, with which C programs are built for
# it, and prints their directory.
set -euo pipefail

if (($# != 1)) || [[ $1 == -h || $1 == --help ]]; then
	echo "usage: hack/cross.sh ARCH    (prints the directory for the compiler's flag --sysroot)"
	exit
fi
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
system=$root/.build/cross/$1
"$root/hack/debian.sh" --arch "$1" "$system" libc6-dev libcap-dev libseccomp-dev libyajl-dev >&2
echo "$system"
