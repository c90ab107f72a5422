#!/usr/bin/env bash
# Copyright The Keelson Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Fills a directory for controller-runtime's envtest: the API server, etcd and the command line under
# the names that envtest looks for.
set -euo pipefail

usage() {
	cat <<-'USAGE'
		usage: hack/envtest.sh

		Builds what has changed, links kube-apiserver, etcd and kubectl into .build/envtest, and prints the
		directory. It prints nothing else to stdout:

		  export KUBEBUILDER_ASSETS=$(hack/envtest.sh)
	USAGE
}

case ${1:-} in
-h | --help)
	usage
	exit
	;;
esac

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
"$root/hack/build.sh" >&2
"$root/hack/tools.sh" etcd >&2
assets=$root/.build/envtest
mkdir -p "$assets"
# Hard links, so that the directory can be copied elsewhere. A program that is built again gets a new
# file, so running tests keep theirs.
ln -f "$root/bin/apiserver" "$assets/kube-apiserver"
ln -f "$root/bin/tools/etcd" "$assets/etcd"
ln -f "$root/bin/kubectl" "$assets/kubectl"
echo "$assets"
