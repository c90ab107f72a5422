// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduling

import (
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"

	"keelson.dev/keelson/pkg/api/unset"
)

func defaultPriorityClass(c *schedulingv1.PriorityClass) {
	unset.Point(&c.PreemptionPolicy, corev1.PreemptLowerPriority)
}
