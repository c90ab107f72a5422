// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
)

// TestAlwaysDeny checks that AlwaysDeny rejects every operation, both in the mutating and in the
// validating phase. It calls the plugin directly, because a server that rejects its own writes
// never becomes ready.
func TestAlwaysDeny(t *testing.T) {
	var p alwaysDeny
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
	const want = `nodes "n" is forbidden: admission control is denying all modifications`
	for _, op := range []admission.Operation{admission.Create, admission.Update, admission.Delete, admission.Connect} {
		a := admission.NewAttributesRecord(node, nil, corev1.SchemeGroupVersion.WithKind("Node"), "", "n",
			corev1.SchemeGroupVersion.WithResource("nodes"), "", op, nil, false, nil)
		if !p.Handles(op) {
			t.Errorf("%s passes by", op)
		}
		for _, err := range []error{p.Admit(t.Context(), a, nil), p.Validate(t.Context(), a, nil)} {
			if err == nil || err.Error() != want {
				t.Errorf("%s: got %v, want %s", op, err, want)
			}
		}
	}
}

// TestAlwaysPull checks that AlwaysPullImages sets the pull policy of all containers of a new pod,
// and rejects another policy that a later plugin has set. For an update, it does so only if the
// update adds images.
func TestAlwaysPull(t *testing.T) {
	p, err := newAlwaysPull(Deps{})
	if err != nil {
		t.Fatal(err)
	}
	of := func(image string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: corev1.PodSpec{
			InitContainers: []corev1.Container{{Image: "i", ImagePullPolicy: corev1.PullNever}},
			Containers: []corev1.Container{{Image: image, ImagePullPolicy: corev1.PullIfNotPresent},
				{Image: "b", ImagePullPolicy: corev1.PullAlways}},
			Volumes: []corev1.Volume{{}, {VolumeSource: corev1.VolumeSource{
				Image: &corev1.ImageVolumeSource{Reference: "v", PullPolicy: corev1.PullIfNotPresent},
			}}},
		}}
	}
	const forbidden, want = `pods "p" is forbidden: spec.`, `: supported values: "Always"`
	all := "[" + forbidden + `initContainers[0].imagePullPolicy: Unsupported value: "Never"` + want + ", " +
		forbidden + `containers[0].imagePullPolicy: Unsupported value: "IfNotPresent"` + want + ", " +
		forbidden + `volumes[1].image.pullPolicy: Unsupported value: "IfNotPresent"` + want + "]"
	for _, tc := range []struct {
		op   admission.Operation
		old  runtime.Object
		sub  string
		want string
	}{
		{admission.Create, nil, "", all},
		{admission.Update, of("a"), "", ""},
		{admission.Update, of("c"), "", all},
		{admission.Update, of("c"), "ephemeralcontainers", ""},
	} {
		pod := of("a")
		a := admission.NewAttributesRecord(pod, tc.old, corev1.SchemeGroupVersion.WithKind("Pod"), "", "p",
			corev1.SchemeGroupVersion.WithResource("pods"), tc.sub, tc.op, nil, false, nil)
		err := p.(admission.ValidationInterface).Validate(t.Context(), a, nil)
		if got := fmt.Sprint(err); got != tc.want && (err != nil || tc.want != "") {
			t.Errorf("%s %s: got %s, want %s", tc.op, tc.sub, got, tc.want)
		}
		if err := p.(admission.MutationInterface).Admit(t.Context(), a, nil); err != nil {
			t.Fatal(err)
		}
		policy := corev1.PullIfNotPresent
		if tc.want != "" {
			policy = corev1.PullAlways
		}
		if pod.Spec.Containers[0].ImagePullPolicy != policy || pod.Spec.Volumes[1].Image.PullPolicy != policy {
			t.Errorf("%s %s: got %+v, want %s", tc.op, tc.sub, pod.Spec, policy)
		}
	}
}
