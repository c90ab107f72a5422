// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package volumebinder

import (
	"fmt"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"
)

// naive reports whether a claim may be bound to a volume, by the rules in Kubernetes'
// documentation.
func naive(claim *v1.PersistentVolumeClaim, v *v1.PersistentVolume) bool {
	for _, m := range claim.Spec.AccessModes {
		if !slices.Contains(v.Spec.AccessModes, m) {
			return false
		}
	}
	if v.DeletionTimestamp != nil || *v.Spec.VolumeMode != *claim.Spec.VolumeMode {
		return false
	}
	return size(v) >= claim.Spec.Resources.Requests.Storage().Value()
}

func size(v *v1.PersistentVolume) int64 { return v.Spec.Capacity.Storage().Value() }

func reserved(claim *v1.PersistentVolumeClaim, v *v1.PersistentVolume) bool {
	ref := v.Spec.ClaimRef
	return ref != nil && ref.Name == claim.Name && (ref.UID == "" || ref.UID == claim.UID)
}

// free reports whether a volume has no claim, is in the phase Available, and has the class and
// volume mode that the claim requests.
func free(claim *v1.PersistentVolumeClaim, v *v1.PersistentVolume) bool {
	if v.Spec.ClaimRef != nil || v.Status.Phase != v1.VolumeAvailable ||
		v.Spec.StorageClassName != *claim.Spec.StorageClassName {
		return false
	}
	return claim.Spec.Selector == nil || v.Labels["kind"] == claim.Spec.Selector.MatchLabels["kind"]
}

func drawModes(t *rapid.T) []v1.PersistentVolumeAccessMode {
	all := []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce, v1.ReadOnlyMany, v1.ReadWriteMany}
	return rapid.SliceOfNDistinct(rapid.SampledFrom(all), 1, 3, rapid.ID[v1.PersistentVolumeAccessMode]).Draw(t, "modes")
}

func gib(t *rapid.T) v1.ResourceList {
	return v1.ResourceList{v1.ResourceStorage: *resource.NewQuantity(rapid.Int64Range(1, 5).Draw(t, "size")<<30,
		resource.BinarySI)}
}

func drawVolume(t *rapid.T, name string) *v1.PersistentVolume {
	mode := rapid.SampledFrom([]v1.PersistentVolumeMode{v1.PersistentVolumeFilesystem,
		v1.PersistentVolumeFilesystem, v1.PersistentVolumeBlock}).Draw(t, "mode")
	v := &v1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name,
			Labels: map[string]string{"kind": rapid.SampledFrom([]string{"a", "b"}).Draw(t, "label")}},
		Spec: v1.PersistentVolumeSpec{
			AccessModes: drawModes(t), Capacity: gib(t), VolumeMode: &mode,
			StorageClassName: rapid.SampledFrom([]string{"", "fast"}).Draw(t, "class"),
		},
		Status: v1.PersistentVolumeStatus{
			Phase: rapid.SampledFrom([]v1.PersistentVolumePhase{v1.VolumeAvailable, v1.VolumeAvailable,
				v1.VolumePending}).Draw(t, "phase")},
	}
	if rapid.IntRange(0, 9).Draw(t, "going") == 0 {
		v.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
	}
	switch rapid.IntRange(0, 9).Draw(t, "owner") {
	case 0:
		v.Spec.ClaimRef = &v1.ObjectReference{Namespace: "ns", Name: "mine"}
	case 1:
		v.Spec.ClaimRef = &v1.ObjectReference{Namespace: "ns", Name: "mine", UID: "former"}
	case 2:
		v.Spec.ClaimRef = &v1.ObjectReference{Namespace: "ns", Name: "other"}
	}
	return v
}

func TestBestAgainstNaive(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		class, mode := rapid.SampledFrom([]string{"", "fast"}).Draw(t, "class"), v1.PersistentVolumeFilesystem
		claim := &v1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "mine", UID: "u"},
			Spec: v1.PersistentVolumeClaimSpec{
				AccessModes: drawModes(t), StorageClassName: &class, VolumeMode: &mode,
				Resources: v1.VolumeResourceRequirements{Requests: gib(t)},
			},
		}
		if rapid.Bool().Draw(t, "selects") {
			claim.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"kind": "a"}}
		}
		delayed := rapid.Bool().Draw(t, "delayed")
		var volumes []*v1.PersistentVolume
		for i := range rapid.IntRange(0, 12).Draw(t, "volumes") {
			volumes = append(volumes, drawVolume(t, fmt.Sprint("v", i)))
		}
		got, err := best(claim, volumes, delayed)
		if err != nil {
			t.Fatal(err)
		}
		var kept, open []*v1.PersistentVolume
		for _, v := range volumes {
			switch {
			case !naive(claim, v):
			case reserved(claim, v):
				kept = append(kept, v)
			case !delayed && free(claim, v):
				open = append(open, v)
			}
		}
		switch {
		case len(kept) > 0:
			if got == nil || !slices.Contains(kept, got) {
				t.Fatalf("got %v, though %v is reserved", got, kept[0].Name)
			}
		case len(open) == 0:
			if got != nil {
				t.Fatalf("got %v, though there is none", got.Name)
			}
		default:
			if got == nil || !slices.Contains(open, got) {
				t.Fatalf("got %v, of %d", got, len(open))
			}
			for _, v := range open {
				if accessModes(v) < accessModes(got) || accessModes(v) == accessModes(got) && size(v) < size(got) {
					t.Fatalf("got %s, though %s is better", got.Name, v.Name)
				}
			}
		}
	})
}
