#!/usr/bin/env bash
# Copyright The Keelson Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Makes pkg/api/openapi/*.json.gz, the OpenAPI definitions of the built-in kinds, from the Go types
# and comments of k8s.io/api at the version that hack/openapi pins, and of keelson.dev/api in this
# tree. openapi-gen writes a Go package for this, which is deleted at the end.
set -euo pipefail

if [[ ${1:-} == --help ]]; then
	echo "usage: hack/generate-openapi.sh"
	exit 0
fi

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp "$root"/hack/openapi/* "$work"
cd "$work"
export GOWORK=off GOFLAGS=-mod=mod
go mod edit -replace="keelson.dev/api=$root/staging/src/keelson.dev/api"

packages=(
	k8s.io/apimachinery/pkg/apis/meta/v1
	k8s.io/apimachinery/pkg/runtime
	k8s.io/apimachinery/pkg/version
	k8s.io/apimachinery/pkg/util/intstr
	k8s.io/apimachinery/pkg/api/resource
	k8s.io/kube-aggregator/pkg/apis/apiregistration/v1
	k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1
	keelson.dev/api/scheduling/v1alpha1
)
for group in admissionregistration/v1 apidiscovery/v2 apiserverinternal/v1alpha1 apps/v1 authentication/v1 \
	authorization/v1 \
	autoscaling/v1 autoscaling/v2 batch/v1 certificates/v1 certificates/v1beta1 coordination/v1 core/v1 \
	discovery/v1 events/v1 flowcontrol/v1 networking/v1 node/v1 policy/v1 rbac/v1 resource/v1 resource/v1alpha3 \
	resource/v1beta1 resource/v1beta2 scheduling/v1 scheduling/v1alpha3 scheduling/v1beta1 storage/v1 \
	storagemigration/v1 storagemigration/v1beta1; do
	packages+=("k8s.io/api/$group")
done

printf '// Made by openapi-gen.\n' >header.txt
go run k8s.io/kube-openapi/cmd/openapi-gen \
	--output-file definitions.go --output-dir gen --output-pkg keelson.dev/keelson/hack/openapi/gen \
	--go-header-file header.txt --output-model-name-file "" --report-filename violations.txt "${packages[@]}"
go run . "$root/pkg/api/openapi"
