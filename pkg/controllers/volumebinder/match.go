// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package volumebinder

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/storage/volume"
	"k8s.io/utils/ptr"
)

// best returns the volume to which a claim should be bound, or nil if none matches. It prefers a
// volume that is reserved for the claim, then volumes with the fewest access modes, and among these
// the smallest one. If delayed is true, the scheduler selects the volume, so best returns only a
// volume that is reserved for the claim.
func best(claim *v1.PersistentVolumeClaim, volumes []*v1.PersistentVolume, delayed bool) (*v1.PersistentVolume, error) {
	var fit []*v1.PersistentVolume
	for _, v := range volumes {
		if volume.CheckAccessModes(claim, v) {
			fit = append(fit, v)
		}
	}
	slices.SortFunc(fit, func(a, b *v1.PersistentVolume) int { return cmp.Compare(a.Name, b.Name) })
	reserved, err := volume.FindMatchingVolume(claim, fit, nil, nil, true, true)
	if err != nil || reserved != nil || delayed {
		return reserved, wrapMatch(err)
	}
	for len(fit) > 0 {
		modes := accessModes(
			slices.MinFunc(fit, func(a, b *v1.PersistentVolume) int { return cmp.Compare(accessModes(a), accessModes(b)) }))
		var group, rest []*v1.PersistentVolume
		for _, v := range fit {
			if accessModes(v) == modes {
				group = append(group, v)
			} else {
				rest = append(rest, v)
			}
		}
		found, err := volume.FindMatchingVolume(claim, group, nil, nil, false, true)
		if err != nil || found != nil {
			return found, wrapMatch(err)
		}
		fit = rest
	}
	return nil, nil
}

func wrapMatch(err error) error {
	if err != nil {
		return fmt.Errorf("match: %w", err)
	}
	return nil
}

// accessModes returns the number of different access modes of a volume.
func accessModes(v *v1.PersistentVolume) int {
	modes := slices.Clone(v.Spec.AccessModes)
	slices.Sort(modes)
	return len(slices.Compact(modes))
}

// mismatch returns an error if a claim cannot be bound to the volume v, which it names. The error
// says why.
func mismatch(claim *v1.PersistentVolumeClaim, v *v1.PersistentVolume) error {
	asked, has := claim.Spec.Resources.Requests[v1.ResourceStorage], v.Spec.Capacity[v1.ResourceStorage]
	switch {
	case v.DeletionTimestamp != nil:
		return fmt.Errorf("the volume is marked for deletion %q", v.Name)
	case has.Cmp(asked) < 0:
		return errors.New("requested PV is too small")
	case volume.GetPersistentVolumeClass(v) != volume.GetPersistentVolumeClaimClass(claim):
		return errors.New("storageClassName does not match")
	case ptr.Deref(claim.Spec.VolumeAttributesClassName, "") != ptr.Deref(v.Spec.VolumeAttributesClassName, ""):
		return errors.New("volumeAttributesClassName does not match")
	case volume.CheckVolumeModeMismatches(&claim.Spec, &v.Spec):
		return errors.New("incompatible volumeMode")
	case !volume.CheckAccessModes(claim, v):
		return errors.New("incompatible accessMode")
	}
	return nil
}
