// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package intake

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// podOf returns a pod like those of a controller.
func podOf(name, uid, node string) *v1.Pod {
	requests := v1.ResourceList{v1.ResourceCPU: resource.MustParse("80m"), v1.ResourceMemory: resource.MustParse("128Mi")}
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: name, Namespace: "team", UID: types.UID(uid), ResourceVersion: "7", Generation: 3,
		Labels:      map[string]string{"app": "web", "pod-template-hash": "7d4b9c6f5d"},
		Annotations: map[string]string{"kept": "a", "other": "b", metav1.InitialEventsAnnotationKey: "true"},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web",
			UID: "o", Controller: new(bool)}},
		ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m", FieldsV1: &metav1.FieldsV1{Raw: []byte("{}")}}},
	}}
	p.Spec.NodeName, p.Spec.SchedulerName, p.Spec.ServiceAccountName = node, v1.DefaultSchedulerName, "default"
	p.Spec.NodeSelector = map[string]string{"disk": "ssd"}
	p.Spec.Tolerations = []v1.Toleration{{Key: "k", Operator: v1.TolerationOpExists}}
	for _, name := range []string{"web", "metrics"} {
		p.Spec.Containers = append(p.Spec.Containers, v1.Container{
			Name: name, Image: name + ":2", Args: []string{"--listen"}, Ports: []v1.ContainerPort{{ContainerPort: 80}},
			Resources:    v1.ResourceRequirements{Requests: requests},
			VolumeMounts: []v1.VolumeMount{{Name: "token-" + uid, MountPath: "/var/run"}},
		})
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, v1.ContainerStatus{
			Name: name, Ready: true, AllocatedResources: requests, Resources: &v1.ResourceRequirements{Requests: requests},
		})
	}
	p.Spec.Volumes = []v1.Volume{
		{Name: "token-" + uid, VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{}}}}
	p.Status.Phase, p.Status.PodIP, p.Status.StartTime = v1.PodRunning, "192.0.2.7", &metav1.Time{}
	p.Status.Conditions = []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue},
		{Type: v1.DisruptionTarget, Status: v1.ConditionTrue}}
	return p
}

// wanted returns the result that is expected when the pod of podOf is decoded by a reader that
// keeps the annotation "kept".
func wanted(name, uid, node string) *v1.Pod {
	p := podOf(name, uid, node)
	p.Annotations, p.ManagedFields = map[string]string{"kept": "a", metav1.InitialEventsAnnotationKey: "true"}, nil
	p.Spec.ServiceAccountName, p.Spec.Volumes = "", nil
	for i := range p.Spec.Containers {
		c := &p.Spec.Containers[i]
		c.Args, c.Ports, c.VolumeMounts = nil, nil, nil
	}
	p.Status.PodIP, p.Status.ContainerStatuses = "", nil
	if node != "" {
		p.Status.Conditions = p.Status.Conditions[1:]
	}
	return p
}

func read(t testing.TB, r *Reader, p *v1.Pod) *v1.Pod {
	t.Helper()
	raw, err := p.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	out, err := r.Pod(raw)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func newReader(t testing.TB, annotations ...string) *Reader {
	t.Helper()
	r, err := NewReader(annotations...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestShare checks that decoded pods share the parts that are equal, and do not share parts that
// differ.
func TestShare(t *testing.T) {
	r := newReader(t, "kept")
	volume := func(p *v1.Pod, claim string) *v1.Pod {
		p.Spec.Volumes = append(p.Spec.Volumes, v1.Volume{Name: "data", VolumeSource: v1.VolumeSource{
			PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
		}})
		return p
	}
	change := func(p *v1.Pod, f func(*v1.Pod)) *v1.Pod { f(p); return p }
	rename := func(p *v1.Pod) { p.Spec.Hostname = "other" }
	port := func(p *v1.Pod) {
		p.Spec.Containers[1].Ports = []v1.ContainerPort{{HostPort: 80, ContainerPort: 80}}
	}
	unlabel := func(p *v1.Pod) { p.Labels, p.OwnerReferences, p.Annotations = nil, nil, nil }
	pairs := []struct{ in, want *v1.Pod }{
		{podOf("a", "1", "n1"), wanted("a", "1", "n1")},
		{podOf("b", "2", "n2"), wanted("b", "2", "n2")},
		{podOf("c", "3", ""), wanted("c", "3", "")},
		{volume(podOf("d", "4", "n1"), "x"), volume(wanted("d", "4", "n1"), "x")},
		{volume(podOf("e", "5", "n1"), "y"), volume(wanted("e", "5", "n1"), "y")},
		{change(podOf("f", "6", "n1"), rename), change(wanted("f", "6", "n1"), rename)},
		{change(podOf("g", "7", "n1"), unlabel), change(wanted("g", "7", "n1"), unlabel)},
		{change(podOf("h", "8", "n1"), port), change(wanted("h", "8", "n1"), port)},
	}
	var have []*v1.Pod
	for _, p := range pairs {
		have = append(have, read(t, r, p.in))
	}
	for i, p := range pairs {
		if !equality.Semantic.DeepEqual(p.want, have[i]) {
			t.Errorf("pod %d is\n%+v, want\n%+v", i, have[i], p.want)
		}
	}
	for i := 1; i < 7; i++ {
		if &have[0].Spec.Containers[0] != &have[i].Spec.Containers[0] {
			t.Errorf("pod %d does not share its containers", i)
		}
	}
	if &have[7].Spec.Containers[0] == &have[0].Spec.Containers[0] {
		t.Error("different containers are shared")
	}
}

// TestShareIsBounded checks that the cache of shared parts stays limited if all pods are different.
func TestShareIsBounded(t *testing.T) {
	r := newReader(t)
	for i := range maxShared {
		p := &v1.Pod{}
		p.Name, p.Spec.NodeName, p.Labels = fmt.Sprint(i), fmt.Sprint("n", i), map[string]string{"i": fmt.Sprint(i)}
		if got := read(t, r, p); got.Spec.NodeName != fmt.Sprint("n", i) || got.Labels["i"] != fmt.Sprint(i) {
			t.Fatalf("pod %d is %+v", i, got)
		}
	}
	if n := len(r.words) + len(r.labels) + len(r.owners) + len(r.specs) + len(r.has); n > maxShared+5 {
		t.Errorf("%d parts are kept", n)
	}
}

// TestVolumes checks that volumes of all kinds are kept, except for kinds that no plugin reads.
func TestVolumes(t *testing.T) {
	r := newReader(t)
	for f := range reflect.TypeFor[v1.VolumeSource]().Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		v := v1.Volume{Name: "v"}
		reflect.ValueOf(&v.VolumeSource).Elem().FieldByIndex(f.Index).Set(reflect.New(f.Type.Elem()))
		p := &v1.Pod{}
		p.Spec.Volumes = []v1.Volume{{Name: "e", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}}, v}
		want := 1
		if slices.Contains([]string{"configMap", "downwardAPI", "emptyDir", "hostPath", "projected", "secret"}, name) {
			want = 0
		}
		if got := read(t, r, p).Spec.Volumes; len(got) != want || want == 1 && !equality.Semantic.DeepEqual(got[0], v) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// FuzzMalformed checks that malformed pods cause errors, but no panics.
func FuzzMalformed(f *testing.F) {
	raw, err := podOf("a", "1", "n").Marshal()
	if err != nil {
		f.Fatal(err)
	}
	for n := 0; n < len(raw); n += 7 {
		f.Add(raw[:n])
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		var whole v1.Pod
		got, err := newReader(t).Pod(raw)
		if good := whole.Unmarshal(raw) == nil; good && err == nil && got.Name != whole.Name {
			t.Errorf("%q, want %q", got.Name, whole.Name)
		}
	})
}

func BenchmarkPod(b *testing.B) {
	raw, err := podOf("a", "1", "n").Marshal()
	if err != nil {
		b.Fatal(err)
	}
	r := newReader(b)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := r.Pod(raw); err != nil {
			b.Fatal(err)
		}
	}
}
