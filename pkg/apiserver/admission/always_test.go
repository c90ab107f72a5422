// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
)

// TestAlwaysDeny: every operation is refused, in both phases. A server that refuses its
// own writes does not become ready, so there is none here.
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
