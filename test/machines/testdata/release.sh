#!/usr/bin/env bash
# Copyright The Keelson Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Makes a directory with the files of a release out of what was built in this tree, and prints its path.
# The files are hard links. hack/release.sh makes real releases.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../.." && pwd)
cd "$root"
out=$root/.build/machines/release
rm -rf "$out"
mkdir -p "$out"/{bin,tools,images}
cp -l bin/{apiserver,controller-manager,scheduler,kubelet,proxy,cni,ctl} "$out/bin/"
cp -lr bin/tools/{containerd,containerd-shim-runc-v2,ctr,crun,etcd,cni} "$out/tools/"
cp -l .build/images/{coredns,ingress,pause}.tar "$out/images/"
cp -r deploy/systemd "$out/systemd"
echo "$out"
