// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"testing"

	v1 "k8s.io/api/core/v1"
)

// TestAccessMode checks that the mode with which most pods can use a volume is returned.
func TestAccessMode(t *testing.T) {
	volume := func(modes ...v1.PersistentVolumeAccessMode) *v1.PersistentVolume {
		return &v1.PersistentVolume{Spec: v1.PersistentVolumeSpec{AccessModes: modes}}
	}
	for want, pv := range map[string]*v1.PersistentVolume{
		"inline": nil,
		"RWX":    volume(v1.ReadWriteOnce, v1.ReadOnlyMany, v1.ReadWriteMany),
		"ROX":    volume(v1.ReadWriteOnce, v1.ReadOnlyMany),
		"RWO":    volume(v1.ReadWriteOnce),
		"RWOP":   volume(v1.ReadWriteOncePod),
		"":       volume(),
	} {
		if got := AccessMode(pv); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
