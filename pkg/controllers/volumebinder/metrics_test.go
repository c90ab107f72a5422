// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package volumebinder

import (
	"maps"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"keelson.dev/keelson/pkg/controllers/controllertest"
)

// TestCounts checks the metrics with the numbers of volumes and claims.
func TestCounts(t *testing.T) {
	volumes := cache.NewIndexer(cache.MetaNamespaceKeyFunc, nil)
	claims := cache.NewIndexer(cache.MetaNamespaceKeyFunc, nil)
	for name, source := range map[string]v1.PersistentVolumeSource{
		"a": {CSI: &v1.CSIPersistentVolumeSource{Driver: "d"}}, "b": {CSI: &v1.CSIPersistentVolumeSource{Driver: "d"}},
		"c": {NFS: &v1.NFSVolumeSource{}}, "d": {FC: &v1.FCVolumeSource{}},
	} {
		v := &v1.PersistentVolume{Spec: v1.PersistentVolumeSpec{PersistentVolumeSource: source, StorageClassName: "fast"}}
		v.Name = name
		if name == "a" {
			v.Status.Phase, v.Spec.VolumeMode = v1.VolumeBound, ptr.To(v1.PersistentVolumeBlock)
		}
		if err := volumes.Add(v); err != nil {
			t.Fatal(err)
		}
	}
	for name, phase := range map[string]v1.PersistentVolumeClaimPhase{
		"a": v1.ClaimBound, "b": v1.ClaimPending, "c": v1.ClaimLost,
	} {
		claim := &v1.PersistentVolumeClaim{Spec: v1.PersistentVolumeClaimSpec{StorageClassName: ptr.To("fast")}}
		claim.Namespace, claim.Name, claim.Status.Phase = "n", name, phase
		if err := claims.Add(claim); err != nil {
			t.Fatal(err)
		}
	}
	r := prometheus.NewRegistry()
	r.MustRegister(newCounts(corelisters.NewPersistentVolumeLister(volumes),
		corelisters.NewPersistentVolumeClaimLister(claims)))
	want := map[string]float64{
		"pv_collector_total_pv_count{plugin_name=kubernetes.io/csi:d,volume_mode=Block}":          1,
		"pv_collector_total_pv_count{plugin_name=kubernetes.io/csi:d,volume_mode=Filesystem}":     1,
		"pv_collector_total_pv_count{plugin_name=kubernetes.io/nfs,volume_mode=Filesystem}":       1,
		"pv_collector_total_pv_count{plugin_name=N/A,volume_mode=Filesystem}":                     1,
		"pv_collector_bound_pv_count{storage_class=fast}":                                         1,
		"pv_collector_unbound_pv_count{storage_class=fast}":                                       3,
		"pv_collector_bound_pvc_count{namespace=n,storage_class=fast,volume_attributes_class=}":   1,
		"pv_collector_unbound_pvc_count{namespace=n,storage_class=fast,volume_attributes_class=}": 2,
	}
	if got := controllertest.Metrics(t, r); !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
