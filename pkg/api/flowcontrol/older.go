// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package flowcontrol

import (
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	flowcontrolv1beta1 "k8s.io/api/flowcontrol/v1beta1"
	flowcontrolv1beta2 "k8s.io/api/flowcontrol/v1beta2"

	"keelson.dev/apiserver/resource"
)

// olderPriorityLevels call the shares of a level assured.
func olderPriorityLevels() []resource.StoredForm {
	return []resource.StoredForm{
		resource.NewStoredForm(flowcontrolv1beta1.SchemeGroupVersion.WithKind("PriorityLevelConfiguration"), func(in *flowcontrolv1beta1.PriorityLevelConfiguration, out *flowcontrolv1.PriorityLevelConfiguration) {
			if in.Spec.Limited != nil {
				takeShares(out, in.Spec.Limited.AssuredConcurrencyShares)
			}
		}),
		resource.NewStoredForm(flowcontrolv1beta2.SchemeGroupVersion.WithKind("PriorityLevelConfiguration"), func(in *flowcontrolv1beta2.PriorityLevelConfiguration, out *flowcontrolv1.PriorityLevelConfiguration) {
			if in.Spec.Limited != nil {
				takeShares(out, in.Spec.Limited.AssuredConcurrencyShares)
			}
		}),
	}
}

// takeShares leaves out none: the older versions have a default in its place.
func takeShares(level *flowcontrolv1.PriorityLevelConfiguration, shares int32) {
	if shares != 0 {
		level.Spec.Limited.NominalConcurrencyShares = &shares
	}
}
