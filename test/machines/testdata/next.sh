#!/usr/bin/env bash
# Copyright The Keelson Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Builds the API server, the kubelet and ctl once more, so that they claim to be compatible with the next minor
# version of Kubernetes, and prints the directory. A test upgrades to them: which API servers programs use
# depends only on the version that these report.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../.." && pwd)
cd "$root"
out=$root/.build/machines/next
mkdir -p "$out"
file=pkg/daemon/version.go
minor=$(sed -n 's/^const Major, Minor, Patch = "1", "\([0-9]*\)".*/\1/p' "$file")
sed -e "s/\"$minor\"/\"$((minor + 1))\"/" -e "s/\"$((minor - 1))\"/\"$minor\"/" "$file" >"$out/version.go"
printf '{"Replace": {"%s": "%s"}}\n' "$root/$file" "$out/version.go" >"$out/overlay.json"
go build -overlay "$out/overlay.json" -ldflags '-s -w' -o "$out/" ./cmd/apiserver ./cmd/kubelet ./cmd/ctl
"$out/apiserver" --version | grep -q "Kubernetes v1.$((minor + 1))\."
echo "$out"
