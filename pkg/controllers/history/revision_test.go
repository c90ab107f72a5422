// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package history

import (
	"encoding/json"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes/scheme"
)

func sample() *v1.PodTemplateSpec {
	return &v1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"z": "1", "a": "<&>"}},
		Spec: v1.PodSpec{
			TerminationGracePeriodSeconds: new(int64(30)), ActiveDeadlineSeconds: new(int64(1) << 60),
			Containers: []v1.Container{{
				Name: "c", Image: "i", Ports: []v1.ContainerPort{{ContainerPort: 80}},
				Resources: v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("100m")}},
				LivenessProbe: &v1.Probe{
					ProbeHandler: v1.ProbeHandler{HTTPGet: &v1.HTTPGetAction{Port: intstr.FromString("http")}}},
			}},
		},
	}
}

// TestData checks that Data returns the same bytes as Kubernetes writes.
func TestData(t *testing.T) {
	template := sample()
	got, err := Data(template)
	if err != nil {
		t.Fatal(err)
	}
	set := &appsv1.StatefulSet{Spec: appsv1.StatefulSetSpec{Template: *template}}
	encoded, err := runtime.Encode(scheme.Codecs.LegacyCodec(appsv1.SchemeGroupVersion), set)
	if err != nil {
		t.Fatal(err)
	}
	var fields map[string]any
	if err := json.Unmarshal(encoded, &fields); err != nil {
		t.Fatal(err)
	}
	inner := fields["spec"].(map[string]any)["template"].(map[string]any)
	inner["$patch"] = "replace"
	want, err := json.Marshal(map[string]any{"spec": map[string]any{"template": inner}})
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(want) {
		t.Errorf("data:\n%s\nwant:\n%s", got, want)
	}
	template.Spec.ActiveDeadlineSeconds = nil // leave this field out, because its values may not fit a JSON number
	if got, err = Data(template); err != nil {
		t.Fatal(err)
	}
	back, err := Template(&appsv1.ControllerRevision{Data: runtime.RawExtension{Raw: got}})
	if err != nil || !equality.Semantic.DeepEqual(back, template) {
		t.Errorf("back: %+v, %v", back, err)
	}
}

func TestNew(t *testing.T) {
	owner := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: strings.Repeat("n", 240), Namespace: "ns",
		UID: "u", Annotations: map[string]string{"k": "v"}}}
	kind := appsv1.SchemeGroupVersion.WithKind("DaemonSet")
	newRevision := func(collisions int32) *appsv1.ControllerRevision {
		r, err := New(owner, kind, "hash", sample(), 7, collisions)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	a, b := newRevision(0), newRevision(1)
	if a.Name == b.Name || !Equal(a, b) || newRevision(0).Name != a.Name {
		t.Errorf("names: %s, %s", a.Name, b.Name)
	}
	if len(a.Name) > 253 || a.Namespace != "ns" || a.Labels["z"] != "1" ||
		!strings.HasSuffix(a.Name, "-"+a.Labels["hash"]) || a.Annotations["k"] != "v" || a.Revision != 7 ||
		metav1.GetControllerOf(a).UID != "u" {
		t.Errorf("revision: %+v", a)
	}
	other := sample()
	other.Spec.Containers[0].Image = "j"
	c, err := New(owner, kind, "hash", other, 8, 0)
	if err != nil || Equal(a, c) || c.Name == a.Name {
		t.Errorf("another template: %v, %v", c.Name, err)
	}
	b.Revision = 9
	sorted := []*appsv1.ControllerRevision{b, c, a}
	Sort(sorted)
	if sorted[0] != a || sorted[2] != b || Next(sorted) != 10 || Next(nil) != 1 || Find(sorted, a) != b ||
		Find(sorted, c) != c || Find(nil, a) != nil {
		t.Errorf("order: %v", sorted)
	}
}
