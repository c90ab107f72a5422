#!/usr/bin/env bash
# Copyright The Keelson Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Tests the rules for Prometheus and the dashboard. It unpacks Debian's package of Prometheus, which has
# promtool, below .build/monitoring.
set -euo pipefail

case ${1:-} in
-h | --help)
	echo "usage: hack/monitoring/test.sh [GO TEST FLAGS...]"
	exit
	;;
esac
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
mkdir -p .build/monitoring
hack/debian.sh .build/monitoring/root prometheus
go test -count=1 "$@" ./test/monitoring
