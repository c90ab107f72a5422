// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeauth

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/randfill"

	"keelson.dev/apiserver/registry"
	"keelson.dev/apiserver/resource"
	"keelson.dev/apiserver/transcode"
	"keelson.dev/keelson/pkg/api"
)

// TestPods checks which objects nodes can reach after pods are bound, deleted or replaced by mirror
// pods.
func TestPods(t *testing.T) {
	p := func(name, node, secretName string) *corev1.Pod {
		out := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
		out.Spec.NodeName = node
		out.Spec.Volumes = []corev1.Volume{
			{VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: secretName}}}}
		return out
	}
	g := NewGraph()
	g.readWith(contents)
	check := func(step, node string, o object, want bool) {
		t.Helper()
		if got := g.reaches(node, o); got != want {
			t.Errorf("%s: node %q reaches %v: %t", step, node, o, got)
		}
	}
	s, a := object{secret, "ns", "s"}, object{pod, "ns", "a"}
	g.pod(record(p("a", "", "s")))
	check("unbound", "", a, false)
	check("unbound", "n1", s, false)
	g.pod(record(p("a", "n1", "s")))
	g.pod(record(p("b", "n1", "s")))
	check("bound", "n1", a, true)
	check("bound", "n1", s, true)
	check("bound", "n2", s, false)
	check("bound", "n2", a, false)
	g.deletePod(record(p("a", "n1", "s")))
	check("one is gone", "n1", a, false)
	check("one is gone", "n1", s, true)
	mirror := p("b", "n1", "s")
	mirror.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"}
	g.pod(record(mirror))
	check("mirror", "n1", s, false)
	check("mirror", "n1", object{pod, "ns", "b"}, true)

	// A pod on n1 was deleted and a pod with the same name created on n2, but the watch missed the
	// deletion.
	for step, ask := range map[string]bool{"unread": false, "read": true} {
		g.pod(record(p("c", "n1", "t")))
		if ask {
			check(step, "n1", object{secret, "ns", "t"}, true)
		}
		g.pod(record(p("c", "n2", "t")))
		g.retainPods(map[string]string{"ns/c": "n2"})
		check(step, "n1", object{secret, "ns", "t"}, false)
		check(step, "n2", object{secret, "ns", "t"}, true)
	}

	g.SetAttachment(&storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "va"},
		Spec: storagev1.VolumeAttachmentSpec{NodeName: "n1"}})
	check("attachment", "n1", object{attachment, "", "va"}, true)
	check("attachment", "n2", object{attachment, "", "va"}, false)
}

// TestPodPaths checks that the graph reads the same references from a pod if only its PodPaths are
// decoded as from the whole pod.
func TestPodPaths(t *testing.T) {
	at := slices.IndexFunc(api.Rows(api.Deps{}), func(r *resource.Row) bool {
		return r.Group == "" &&
			r.Resource == "pods"
	})
	row := api.Rows(api.Deps{})[at]
	part, codec := registry.Part(row, transcode.NewTypes(), PodPaths()...), registry.Codec(row)
	fill := randfill.NewWithSeed(1).NilChance(0.3).NumElements(1, 3).Funcs(
		func(q *apiresource.Quantity, _ randfill.Continue) { *q = apiresource.MustParse("1") },
		func(v *intstr.IntOrString, _ randfill.Continue) { *v = intstr.FromInt32(1) },
		func(tm *metav1.Time, _ randfill.Continue) { *tm = metav1.Unix(1, 0) },
		func(v *metav1.FieldsV1, _ randfill.Continue) { v.Raw = []byte("{}") },
	)
	refs := 0
	for range 100 {
		p := &corev1.Pod{}
		fill.Fill(p)
		data, err := codec.Encode(p)
		if err != nil {
			t.Fatal(err)
		}
		obj, ok := part(data)
		if !ok {
			t.Fatal("not decoded")
		}
		whole, partly, self := NewGraph(), NewGraph(), object{pod, p.Namespace, p.Name}
		whole.setPod(self, p)
		partly.setPod(self, obj.(*corev1.Pod))
		want, got := whole.direct[self], partly.direct[self]
		if want.node != got.node || !slices.Equal(want.refs, got.refs) {
			t.Fatalf("%v, want %v", got, want)
		}
		refs += len(want.refs)
	}
	if refs < 1000 {
		t.Errorf("only %d references", refs)
	}
}
