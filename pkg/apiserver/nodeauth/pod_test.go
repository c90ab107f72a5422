// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeauth

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestPods follows what two pods make their nodes reach.
func TestPods(t *testing.T) {
	p := func(name, node, secretName string) *corev1.Pod {
		out := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
		out.Spec.NodeName = node
		out.Spec.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: secretName}}}}
		return out
	}
	g := NewGraph()
	check := func(step, node string, o object, want bool) {
		t.Helper()
		if got := g.reaches(node, o); got != want {
			t.Errorf("%s: node %q reaches %v: %t", step, node, o, got)
		}
	}
	s, a := object{secret, "ns", "s"}, object{pod, "ns", "a"}
	g.SetPod(p("a", "", "s"))
	check("unbound", "", a, false)
	check("unbound", "n1", s, false)
	g.SetPod(p("a", "n1", "s"))
	g.SetPod(p("b", "n1", "s"))
	check("bound", "n1", a, true)
	check("bound", "n1", s, true)
	check("bound", "n2", s, false)
	check("bound", "n2", a, false)
	g.deletePod(a)
	check("one is gone", "n1", a, false)
	check("one is gone", "n1", s, true)
	mirror := p("b", "n1", "s")
	mirror.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"}
	g.SetPod(mirror)
	check("mirror", "n1", s, false)
	check("mirror", "n1", object{pod, "ns", "b"}, true)

	g.SetAttachment(&storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "va"}, Spec: storagev1.VolumeAttachmentSpec{NodeName: "n1"}})
	check("attachment", "n1", object{attachment, "", "va"}, true)
	check("attachment", "n2", object{attachment, "", "va"}, false)
}
