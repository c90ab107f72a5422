// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package volumebinding

import (
	"strconv"
	"testing"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	configv1 "k8s.io/kube-scheduler/config/v1"
	"k8s.io/utils/ptr"

	"keelson.dev/keelson/pkg/scheduler/plugins/utilization"
	"keelson.dev/scheduling"
)

// storages is a view of claims of several classes, with volumes and capacities.
type storages struct {
	world
	capacities map[string][]*storagev1.CSIStorageCapacity
}

func (s storages) Volumes() scheduling.VolumeView { return s }

func (s storages) Class(name string) *storagev1.StorageClass {
	return &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: "example.com/p",
		VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer)}
}

func (s storages) Capacities(_, class string) ([]*storagev1.CSIStorageCapacity, bool) {
	return s.capacities[class], s.capacities[class] != nil
}

func (s storages) AvailableVolumes(class string) (out []*v1.PersistentVolume) {
	for _, pv := range s.volumes {
		if pv.Spec.StorageClassName == class {
			out = append(out, pv)
		}
	}
	return out
}

// TestScore scores a node with the default shape: the less is used, the better.
func TestScore(t *testing.T) {
	capacity := func(size string) []*storagev1.CSIStorageCapacity {
		return []*storagev1.CSIStorageCapacity{{NodeTopology: &metav1.LabelSelector{},
			Capacity: ptr.To(resource.MustParse(size))}}
	}
	claims := func(classes ...string) (out []*v1.PersistentVolumeClaim) {
		for i, class := range classes {
			c := waiting("c"+strconv.Itoa(i), "")
			c.Spec.StorageClassName = &class
			out = append(out, c)
		}
		return out
	}
	volume := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}, Spec: v1.PersistentVolumeSpec{
		Capacity:    v1.ResourceList{v1.ResourceStorage: resource.MustParse("5Gi")},
		AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce}, StorageClassName: "a",
	}, Status: v1.PersistentVolumeStatus{Phase: v1.VolumeAvailable}}
	for name, tc := range map[string]struct {
		claims     []*v1.PersistentVolumeClaim // of 1Gi each
		volumes    []*v1.PersistentVolume
		capacities map[string][]*storagev1.CSIStorageCapacity
		none       bool // the pod has no scorer
		want       int64
	}{
		"driver publishes none": {claims: claims("a"), none: true},
		"one claim": {claims: claims("a"), want: 90,
			capacities: map[string][]*storagev1.CSIStorageCapacity{"a": capacity("10Gi")}},
		"two claims of a class": {claims: claims("a", "a"), want: 80,
			capacities: map[string][]*storagev1.CSIStorageCapacity{"a": capacity("10Gi")}},
		"two classes": {claims: claims("a", "b"), want: 70, // the mean of 90 and 50
			capacities: map[string][]*storagev1.CSIStorageCapacity{"a": capacity("10Gi"), "b": capacity("2Gi")}},
		"class without capacities": {claims: claims("a", "b"), want: 90,
			capacities: map[string][]*storagev1.CSIStorageCapacity{"a": capacity("10Gi")}},
		"more than there is": {claims: claims("a", "a"), want: 0,
			capacities: map[string][]*storagev1.CSIStorageCapacity{"a": capacity("1Gi")}},
		"only a maximum": {claims: claims("a"), want: 0, capacities: map[string][]*storagev1.CSIStorageCapacity{
			"a": {{NodeTopology: &metav1.LabelSelector{}, MaximumVolumeSize: ptr.To(resource.MustParse("1Gi"))}}}},
		"volume": {claims: claims("a"), volumes: []*v1.PersistentVolume{volume}, want: 80},
		"volume beside capacity": {claims: claims("a", "b"), volumes: []*v1.PersistentVolume{volume}, want: 80,
			capacities: map[string][]*storagev1.CSIStorageCapacity{"b": capacity("2Gi")}},
	} {
		t.Run(name, func(t *testing.T) {
			view := storages{world{claims: map[string]*v1.PersistentVolumeClaim{}, volumes: tc.volumes}, tc.capacities}
			pod := &v1.Pod{}
			for _, c := range tc.claims {
				view.claims[c.Name] = c
				pod.Spec.Volumes = append(pod.Spec.Volumes, v1.Volume{Name: c.Name, VolumeSource: v1.VolumeSource{
					PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: c.Name}}})
			}
			shape, _ := utilization.NewShape([]configv1.UtilizationShapePoint{
				{Utilization: 0, Score: 10}, {Utilization: 100, Score: 0}}, nil)
			s := CompileScore(shape)(view, &scheduling.Pod{Pod: pod})
			if (s.Score == nil) != tc.none {
				t.Fatalf("scorer: %v", s.Score != nil)
			}
			node := &scheduling.Node{Node: &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}}}
			if s.Score != nil && s.Score(node) != tc.want {
				t.Errorf("score: %d, want %d", s.Score(node), tc.want)
			}
		})
	}
}
