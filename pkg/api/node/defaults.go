// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	nodev1 "k8s.io/api/node/v1"

	"keelson.dev/keelson/pkg/api/podspec"
)

func defaultRuntimeClass(c *nodev1.RuntimeClass) {
	if c.Overhead != nil {
		podspec.Milli(c.Overhead.PodFixed)
	}
}
