// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package volumebinding

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/scheduling"
)

// published is a VolumeView with the capacities that a CSI driver publishes.
type published struct {
	scheduling.VolumeView
	list    []*storagev1.CSIStorageCapacity
	limited bool
}

func (p published) Capacities(string, string) ([]*storagev1.CSIStorageCapacity, bool) {
	return p.list, p.limited
}

func TestFits(t *testing.T) {
	size := func(s string) *resource.Quantity {
		q := resource.MustParse(s)
		return &q
	}
	zone := func(name string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchLabels: map[string]string{"zone": name}}
	}
	claim := &v1.PersistentVolumeClaim{
		Spec: v1.PersistentVolumeClaimSpec{
			Resources: v1.VolumeResourceRequirements{Requests: v1.ResourceList{v1.ResourceStorage: *size("2Gi")}}}}
	node := &scheduling.Node{
		Node: &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{"zone": "a"}}}}
	for name, tc := range map[string]struct {
		view published
		want bool
	}{
		"driver publishes none": {published{}, true},
		"no capacity at all":    {published{limited: true}, false},
		"enough here": {published{limited: true,
			list: []*storagev1.CSIStorageCapacity{{NodeTopology: zone("a"), Capacity: size("2Gi")}}}, true},
		"enough elsewhere": {published{limited: true,
			list: []*storagev1.CSIStorageCapacity{{NodeTopology: zone("b"), Capacity: size("2Gi")}}}, false},
		"too little here": {published{limited: true,
			list: []*storagev1.CSIStorageCapacity{{NodeTopology: zone("a"), Capacity: size("1Gi")}}}, false},
		"maximum volume size too small": {published{limited: true,
			list: []*storagev1.CSIStorageCapacity{{NodeTopology: zone("a"), Capacity: size("9Gi"),
				MaximumVolumeSize: size("1Gi")}}}, false},
		"more than 64 bits": {published{limited: true,
			list: []*storagev1.CSIStorageCapacity{{NodeTopology: zone("a"), Capacity: size("16E")}}}, true},
		"no topology": {published{limited: true,
			list: []*storagev1.CSIStorageCapacity{{Capacity: size("2Gi")}}}, false},
		"no amount": {published{limited: true,
			list: []*storagev1.CSIStorageCapacity{{NodeTopology: zone("a")}}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			f := &Filter{view: tc.view}
			if _, got := f.fits(claim, &storagev1.StorageClass{}, node); got != tc.want {
				t.Errorf("fits: %v, want %v", got, tc.want)
			}
		})
	}
}
