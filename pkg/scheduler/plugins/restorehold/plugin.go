// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package restorehold keeps held pods from being scheduled: pods of StatefulSets after a restore of the
// cluster, until all nodes have reported. A configuration cannot disable it. The controller with the same
// name writes into the pods for which nodes they wait.
package restorehold

import (
	v1 "k8s.io/api/core/v1"

	"keelson.dev/keelson/pkg/restorehold"
	"keelson.dev/scheduling"
)

// Name is the plugin's name in logs and metrics.
const Name = "RestoreHold"

const reason = "waiting until all nodes have reported after the restore of the cluster"

// Gate returns why a pod must not be scheduled yet, or nil.
func Gate(pod *v1.Pod) *scheduling.Status {
	if !restorehold.IsHeld(pod) {
		return nil
	}
	return &scheduling.Status{Code: scheduling.Unresolvable, Plugin: Name, Reasons: []string{reason}}
}
