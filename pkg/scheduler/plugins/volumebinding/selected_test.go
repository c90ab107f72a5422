// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package volumebinding

import (
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/storage/volume"
	"k8s.io/utils/ptr"

	"keelson.dev/scheduling"
)

// world is a view of claims and volumes that all have the same storage class.
type world struct {
	scheduling.View
	scheduling.VolumeView
	claims  map[string]*v1.PersistentVolumeClaim
	volumes []*v1.PersistentVolume
}

func (w world) Volumes() scheduling.VolumeView                                    { return w }
func (w world) Claim(_, name string) *v1.PersistentVolumeClaim                    { return w.claims[name] }
func (w world) AvailableVolumes(string) []*v1.PersistentVolume                    { return w.volumes }
func (w world) Capacities(string, string) ([]*storagev1.CSIStorageCapacity, bool) { return nil, false }
func (w world) Class(string) *storagev1.StorageClass {
	return &storagev1.StorageClass{Provisioner: "example.com/p",
		VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer)}
}

func waiting(name, selected string) *v1.PersistentVolumeClaim {
	c := &v1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)},
		Spec: v1.PersistentVolumeClaimSpec{
			AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
			Resources:   v1.VolumeResourceRequirements{Requests: v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Gi")}},
		},
	}
	if selected != "" {
		metav1.SetMetaDataAnnotation(&c.ObjectMeta, volume.AnnSelectedNode, selected)
	}
	return c
}

// TestPlan checks the plan on node a for a pod whose claims have the binding mode
// WaitForFirstConsumer.
func TestPlan(t *testing.T) {
	free := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "free"}, Spec: v1.PersistentVolumeSpec{
		Capacity:    v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Gi")},
		AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
	}, Status: v1.PersistentVolumeStatus{Phase: v1.VolumeAvailable}}
	ephemeral := v1.VolumeSource{Ephemeral: &v1.EphemeralVolumeSource{}}
	named := func(name string) v1.VolumeSource {
		return v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: name}}
	}
	for name, tc := range map[string]struct {
		claims  []*v1.PersistentVolumeClaim
		volumes []*v1.PersistentVolume
		pod     []v1.VolumeSource
		// bind and provision have the claims in the expected plan. If no plan is expected, reason
		// is why.
		bind, provision []string
		reason          string
	}{
		"nothing selected": {claims: []*v1.PersistentVolumeClaim{waiting("c", "")},
			pod: []v1.VolumeSource{named("c")}, provision: []string{"c"}},
		"selected": {claims: []*v1.PersistentVolumeClaim{waiting("c", "a")},
			pod: []v1.VolumeSource{named("c")}, provision: []string{"c"}},
		"another node is selected": {claims: []*v1.PersistentVolumeClaim{waiting("c", "b")},
			pod: []v1.VolumeSource{named("c")}, reason: "node(s) didn't find available persistent volumes to bind"},
		"a volume is free": {claims: []*v1.PersistentVolumeClaim{waiting("c", "")},
			volumes: []*v1.PersistentVolume{free}, pod: []v1.VolumeSource{named("c")}, bind: []string{"c"}},
		"selected, and a volume is free": {claims: []*v1.PersistentVolumeClaim{waiting("c", "a")},
			volumes: []*v1.PersistentVolume{free}, pod: []v1.VolumeSource{named("c")}, provision: []string{"c"}},
		"another node is selected, and a volume is free": {
			claims: []*v1.PersistentVolumeClaim{waiting("c", "b")}, volumes: []*v1.PersistentVolume{free},
			pod:    []v1.VolumeSource{named("c")},
			reason: "node(s) didn't find available persistent volumes to bind",
		},
		"another node is selected for one of two": {
			claims: []*v1.PersistentVolumeClaim{waiting("c", ""), waiting("d", "b")},
			pod:    []v1.VolumeSource{named("c"), named("d")},
			reason: "node(s) didn't find available persistent volumes to bind",
		},
		"one claim twice": {claims: []*v1.PersistentVolumeClaim{waiting("c", "")},
			pod: []v1.VolumeSource{named("c"), named("c")}, provision: []string{"c"}},
		"not the pod's ephemeral claim": {
			claims: []*v1.PersistentVolumeClaim{waiting("p-v0", "")}, pod: []v1.VolumeSource{ephemeral},
			reason: "PVC default/p-v0 was not created for pod default/p (pod is not owner)",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := world{claims: map[string]*v1.PersistentVolumeClaim{}, volumes: tc.volumes}
			for _, c := range tc.claims {
				c.Namespace = "default"
				w.claims[c.Name] = c
			}
			pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p", UID: "p"}}
			for i, s := range tc.pod {
				pod.Spec.Volumes = append(pod.Spec.Volumes, v1.Volume{Name: "v" + string(rune('0'+i)), VolumeSource: s})
			}
			f, st := Compile(w, &scheduling.Pod{Pod: pod})
			node := &scheduling.Node{Node: &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}}}
			if st == nil {
				st = f.Check(node)
			}
			if tc.reason != "" {
				if st == nil || !slices.Equal(st.Reasons, []string{tc.reason}) {
					t.Fatalf("got %v, want %q", st, tc.reason)
				}
				return
			}
			if st != nil {
				t.Fatal(st)
			}
			var bind, provision []string
			p := f.Plan(node)
			for _, m := range p.Bind {
				bind = append(bind, m.Claim.Name)
			}
			for _, c := range p.Provision {
				provision = append(provision, c.Name)
			}
			if !slices.Equal(bind, tc.bind) || !slices.Equal(provision, tc.provision) {
				t.Errorf("bind %v and provision %v, want %v and %v", bind, provision, tc.bind, tc.provision)
			}
		})
	}
}
