// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiregistration

import "k8s.io/apimachinery/pkg/api/validation/path"

func nameAPIService(name string, prefix bool) []string {
	return path.ValidatePathSegmentName(name, prefix)
}
