// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"context"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"keelson.dev/keelson/pkg/api/podspec"
)

func warnStorageClass(_ context.Context, sc, _ *storagev1.StorageClass) []string {
	var warnings []string
	for i, term := range sc.AllowedTopologies {
		for j, e := range term.MatchLabelExpressions {
			if message, old := podspec.OldNodeLabel(e.Key); old {
				at := field.NewPath("allowedTopologies").Index(i).Child("matchLabelExpressions").Index(j).Child("key")
				warnings = append(warnings, at.String()+": "+message)
			}
		}
	}
	return warnings
}

func warnCSIStorageCapacity(_ context.Context, c, _ *storagev1.CSIStorageCapacity) []string {
	return podspec.WarnOfNodeSelector(c.NodeTopology, field.NewPath("nodeTopology"))
}

// warnCSIDriver tells of tokens that are handed out where everybody may read them.
func warnCSIDriver(_ context.Context, d, old *storagev1.CSIDriver) []string {
	if len(d.Spec.TokenRequests) == 0 || d.Spec.ServiceAccountTokenInSecrets != nil {
		return nil
	}
	if old != nil && equality.Semantic.DeepEqual(old.Spec.TokenRequests, d.Spec.TokenRequests) {
		return nil
	}
	return []string{"spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to true to prevent possible logging of tokens in volume attributes"}
}
