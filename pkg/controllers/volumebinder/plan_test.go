// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package volumebinder

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/storage/volume"
)

func storage(text string) v1.ResourceList {
	return v1.ResourceList{v1.ResourceStorage: resource.MustParse(text)}
}

func claim(change func(*v1.PersistentVolumeClaim)) *v1.PersistentVolumeClaim {
	none := ""
	c := &v1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c", UID: "u"},
		Spec: v1.PersistentVolumeClaimSpec{
			AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce}, StorageClassName: &none,
			Resources: v1.VolumeResourceRequirements{Requests: storage("1Gi")},
		},
	}
	if change != nil {
		change(c)
	}
	return c
}

func vol(change func(*v1.PersistentVolume)) *v1.PersistentVolume {
	v := &v1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "v"},
		Spec: v1.PersistentVolumeSpec{
			AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce}, Capacity: storage("1Gi"),
			PersistentVolumeReclaimPolicy: v1.PersistentVolumeReclaimRetain,
		},
		Status: v1.PersistentVolumeStatus{Phase: v1.VolumeAvailable},
	}
	if change != nil {
		change(v)
	}
	return v
}

func of(uid types.UID) func(*v1.PersistentVolume) {
	return func(v *v1.PersistentVolume) {
		v.Spec.ClaimRef = &v1.ObjectReference{Namespace: "ns", Name: "c", UID: uid}
	}
}

func TestPlanClaim(t *testing.T) {
	named := func(c *v1.PersistentVolumeClaim) { c.Spec.VolumeName = "v" }
	bound := func(c *v1.PersistentVolumeClaim) {
		c.Spec.VolumeName = "v"
		metav1.SetMetaDataAnnotation(&c.ObjectMeta, volume.AnnBindCompleted, "yes")
	}
	classed := func(c *v1.PersistentVolumeClaim) { name := "fast"; c.Spec.StorageClassName = &name }
	class := func(provisioner string) *storagev1.StorageClass {
		return &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "fast"}, Provisioner: provisioner}
	}
	huge := vol(func(v *v1.PersistentVolume) { v.Spec.Capacity = storage("16E") })
	small := vol(func(v *v1.PersistentVolume) { v.Spec.Capacity = storage("1Mi") })
	for name, tc := range map[string]struct {
		claim  *v1.PersistentVolumeClaim
		facts  claimFacts
		want   claimPlan
		reason string
	}{
		"a match":        {claim(nil), claimFacts{found: vol(nil)}, claimPlan{bind: vol(nil)}, ""},
		"none, no class": {claim(nil), claimFacts{}, claimPlan{phase: v1.ClaimPending}, "FailedBinding"},
		"none, and wants no class": {claim(nil), claimFacts{standard: class("p")},
			claimPlan{phase: v1.ClaimPending}, "FailedBinding"},
		"the standard class": {
			claim(func(c *v1.PersistentVolumeClaim) { c.Spec.StorageClassName = nil }),
			claimFacts{standard: class("p")}, claimPlan{class: "fast"}, "",
		},
		"provisioned": {claim(classed), claimFacts{class: class("example.com/p")},
			claimPlan{provisioner: "example.com/p"}, "ExternalProvisioning"},
		"provisioned by heirs": {claim(classed), claimFacts{class: class("kubernetes.io/aws-ebs")},
			claimPlan{provisioner: "ebs.csi.aws.com"}, "ExternalProvisioning"},
		"provisioned by nobody": {claim(classed), claimFacts{class: class(volume.NotSupportedProvisioner)},
			claimPlan{}, "ProvisioningFailed"},
		"not provisioned": {claim(classed), claimFacts{class: class("example.com/p"), fixed: true},
			claimPlan{phase: v1.ClaimPending}, ""},
		"no such class": {claim(classed), claimFacts{}, claimPlan{}, "ProvisioningFailed"},
		"delayed": {claim(classed), claimFacts{class: class("p"), delayed: true},
			claimPlan{phase: v1.ClaimPending}, "WaitForFirstConsumer"},
		"delayed, with a pod": {claim(classed),
			claimFacts{class: class("p"), delayed: true, pods: []string{"a"}},
			claimPlan{phase: v1.ClaimPending}, "WaitForPodScheduled"},
		"delayed until now": {claim(func(c *v1.PersistentVolumeClaim) {
			classed(c)
			metav1.SetMetaDataAnnotation(&c.ObjectMeta, volume.AnnSelectedNode, "n")
		}), claimFacts{class: class("p"), delayed: true}, claimPlan{provisioner: "p"}, "ExternalProvisioning"},
		"asks for one":           {claim(named), claimFacts{found: vol(nil)}, claimPlan{bind: vol(nil)}, ""},
		"asks for none there is": {claim(named), claimFacts{}, claimPlan{phase: v1.ClaimPending}, ""},
		"asks for too small one": {claim(named), claimFacts{found: small}, claimPlan{phase: v1.ClaimPending},
			"VolumeMismatch"},
		"asks for a huge one": {claim(named), claimFacts{found: huge}, claimPlan{bind: huge}, ""},
		"asks for its own":    {claim(named), claimFacts{found: vol(of(""))}, claimPlan{bind: vol(nil)}, ""},
		"asks for another's": {claim(named), claimFacts{found: vol(of("other"))},
			claimPlan{phase: v1.ClaimPending}, "FailedBinding"},
		"bound":                  {claim(bound), claimFacts{found: vol(of("u"))}, claimPlan{bind: vol(nil)}, ""},
		"bound, volume does not": {claim(bound), claimFacts{found: vol(nil)}, claimPlan{bind: vol(nil)}, ""},
		"bound to nothing":       {claim(bound), claimFacts{}, claimPlan{phase: v1.ClaimLost}, "ClaimLost"},
		"bound to another's": {claim(bound), claimFacts{found: vol(of("other"))},
			claimPlan{phase: v1.ClaimLost}, "ClaimMisbound"},
		"bound without a name": {
			claim(func(c *v1.PersistentVolumeClaim) { bound(c); c.Spec.VolumeName = "" }), claimFacts{},
			claimPlan{phase: v1.ClaimLost}, "ClaimLost"},
	} {
		t.Run(name, func(t *testing.T) {
			got := planClaim(tc.claim, tc.facts)
			if (got.bind == nil) != (tc.want.bind == nil) || got.class != tc.want.class ||
				got.provisioner != tc.want.provisioner || got.phase != tc.want.phase || got.event.reason != tc.reason {
				t.Errorf("got %+v, want %+v and %s", got, tc.want, tc.reason)
			}
		})
	}
}

func TestPlanVolume(t *testing.T) {
	with := func(changes ...func(*v1.PersistentVolume)) *v1.PersistentVolume {
		return vol(func(v *v1.PersistentVolume) {
			for _, change := range changes {
				change(v)
			}
		})
	}
	policy := func(p v1.PersistentVolumeReclaimPolicy) func(*v1.PersistentVolume) {
		return func(v *v1.PersistentVolume) { v.Spec.PersistentVolumeReclaimPolicy = p }
	}
	made := func(by string) func(*v1.PersistentVolume) {
		return func(v *v1.PersistentVolume) {
			metav1.SetMetaDataAnnotation(&v.ObjectMeta, volume.AnnDynamicallyProvisioned, by)
		}
	}
	failed := func(v *v1.PersistentVolume) { v.Status.Phase = v1.VolumeFailed }
	deleted := policy(v1.PersistentVolumeReclaimDelete)
	block := func(v *v1.PersistentVolume) { m := v1.PersistentVolumeBlock; v.Spec.VolumeMode = &m }
	named := func(name string) *v1.PersistentVolumeClaim {
		return claim(func(c *v1.PersistentVolumeClaim) { c.Spec.VolumeName = name })
	}
	for name, tc := range map[string]struct {
		volume *v1.PersistentVolume
		claim  *v1.PersistentVolumeClaim
		want   volumePlan
		reason string
	}{
		"nobody's":                    {with(), nil, volumePlan{phase: v1.VolumeAvailable}, ""},
		"reserved":                    {with(of("")), nil, volumePlan{phase: v1.VolumeAvailable}, ""},
		"bound":                       {with(of("u")), named("v"), volumePlan{phase: v1.VolumeBound}, ""},
		"half bound":                  {with(of("u")), named(""), volumePlan{wake: true}, ""},
		"half bound, of another kind": {with(of("u"), block), named(""), volumePlan{}, "VolumeMismatch"},
		"not chosen":                  {with(of("u")), named("w"), volumePlan{unbind: true}, ""},
		"made, and not chosen": {with(of("u"), deleted, made("example.com/p")), named("w"),
			volumePlan{phase: v1.VolumeReleased}, ""},
		"released": {with(of("u")), nil, volumePlan{phase: v1.VolumeReleased}, ""},
		"released, its maker deletes": {with(of("u"), deleted, made("example.com/p")), nil,
			volumePlan{phase: v1.VolumeReleased}, ""},
		"released, of a driver": {
			with(of("u"), deleted,
				func(v *v1.PersistentVolume) { v.Spec.CSI = &v1.CSIPersistentVolumeSource{} }), nil,
			volumePlan{phase: v1.VolumeReleased}, "",
		},
		"released, nobody deletes": {with(of("u"), deleted), nil, volumePlan{phase: v1.VolumeFailed}, "VolumeFailedDelete"},
		"released, nobody recycles": {with(of("u"), policy(v1.PersistentVolumeReclaimRecycle)), nil,
			volumePlan{phase: v1.VolumeFailed}, "VolumeFailedRecycle"},
		"failed stays": {with(of("u"), failed), nil, volumePlan{}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := planVolume(tc.volume, tc.claim)
			if got.phase != tc.want.phase || got.unbind != tc.want.unbind || got.wake != tc.want.wake ||
				got.event.reason != tc.reason {
				t.Errorf("got %+v, want %+v and %s", got, tc.want, tc.reason)
			}
		})
	}
}

func TestStandard(t *testing.T) {
	class := func(name string, created int64, standard bool) *storagev1.StorageClass {
		c := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.Unix(created, 0)}}
		if standard {
			c.Annotations = map[string]string{"storageclass.kubernetes.io/is-default-class": "true"}
		}
		return c
	}
	got := standard([]*storagev1.StorageClass{class("old", 1, true), class("b", 2, true), class("a", 2, true),
		class("no", 3, false)})
	if got == nil || got.Name != "a" {
		t.Errorf("got %v", got)
	}
	if got := standard([]*storagev1.StorageClass{class("no", 3, false)}); got != nil {
		t.Errorf("got %v", got)
	}
}

func TestClaimStatus(t *testing.T) {
	gold := "gold"
	v := vol(func(v *v1.PersistentVolume) {
		v.Spec.Capacity, v.Spec.VolumeAttributesClassName = storage("5Gi"), &gold
	})
	pending := claim(func(c *v1.PersistentVolumeClaim) { c.Status.Phase = v1.ClaimPending })
	got := claimStatus(pending, v1.ClaimBound, v)
	if got.Capacity.Storage().String() != "5Gi" || *got.CurrentVolumeAttributesClassName != gold ||
		len(got.AccessModes) != 1 {
		t.Errorf("bound: %+v", got)
	}
	grown := claim(func(c *v1.PersistentVolumeClaim) { c.Status.Phase, c.Status.Capacity = v1.ClaimBound, storage("1Gi") })
	if got := claimStatus(grown, v1.ClaimBound, v); got.Capacity.Storage().String() != "1Gi" {
		t.Errorf("the size of a bound claim is not ours: %+v", got)
	}
	v.Annotations = map[string]string{preResize: "4Gi"}
	if got := claimStatus(pending, v1.ClaimBound, v); got.Capacity.Storage().String() != "4Gi" {
		t.Errorf("grown while it was bound: %+v", got)
	}
	if got := claimStatus(grown, v1.ClaimLost, nil); got.Capacity != nil || got.Phase != v1.ClaimLost {
		t.Errorf("lost: %+v", got)
	}
}
