// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"

	nodev1 "k8s.io/api/node/v1"

	"keelson.dev/keelson/pkg/api/podspec"
	"keelson.dev/keelson/pkg/api/report"
)

func warnRuntimeClass(_ context.Context, rc, _ *nodev1.RuntimeClass) []string {
	if rc.Scheduling == nil {
		return nil
	}
	var warnings []string
	for _, key := range report.Keys(rc.Scheduling.NodeSelector) {
		if message, old := podspec.OldNodeLabel(key); old {
			warnings = append(warnings, "scheduling.nodeSelector: "+message)
		}
	}
	return warnings
}
