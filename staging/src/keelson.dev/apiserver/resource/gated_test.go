// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package resource_test

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"keelson.dev/apiserver/resource"
)

// TestDropGated checks that a create, an update and a view clear the fields of a feature that is off,
// unless the stored object has one of them, and that the row's own functions run afterwards.
func TestDropGated(t *testing.T) {
	t.Parallel()
	const field, list = "field", "list"
	object := func(set string) *corev1.Pod {
		pod := &corev1.Pod{}
		switch set {
		case field:
			pod.Spec.DNSConfig = &corev1.PodDNSConfig{}
		case list:
			pod.Spec.ReadinessGates = []corev1.PodReadinessGate{{}}
		}
		return pod
	}
	has := func(obj resource.Object, set string) bool {
		spec := obj.(*corev1.Pod).Spec
		if set == field {
			return spec.DNSConfig != nil
		}
		return len(spec.ReadinessGates) > 0
	}
	for _, set := range []string{field, list} {
		for _, on := range []bool{false, true} {
			prepared := 0
			prepare := func(_ context.Context, pod, _ *corev1.Pod) {
				if prepared++; !on && has(pod, set) {
					t.Errorf("%s: the row's function runs before the field is cleared", set)
				}
			}
			row := resource.Of[corev1.PodList](resource.Kind[*corev1.Pod]{
				Gated: []resource.Gated[*corev1.Pod]{
					resource.GatedField(field, func(p *corev1.Pod) **corev1.PodDNSConfig { return &p.Spec.DNSConfig }),
					resource.GatedList(list, func(p *corev1.Pod) *[]corev1.PodReadinessGate { return &p.Spec.ReadinessGates }),
				},
				PrepareCreate: func(ctx context.Context, p *corev1.Pod) { prepare(ctx, p, nil) },
				Subresources: []resource.Sub[*corev1.Pod]{
					{Subresource: resource.Subresource{Name: "status", View: true}, PrepareUpdate: prepare},
					{Subresource: resource.Subresource{Name: "log"}},
				},
			})
			resource.DropGated(row, func(feature string) bool { return on == (feature == set) })
			created, updated, viewed, kept := object(set), object(set), object(set), object(set)
			row.PrepareCreate(t.Context(), created)
			row.PrepareUpdate(t.Context(), updated, object(""))
			status := row.Subresource("status")
			status.PrepareUpdate(t.Context(), viewed, object(""))
			for name, obj := range map[string]*corev1.Pod{"create": created, "update": updated, "view": viewed} {
				if has(obj, set) != on {
					t.Errorf("%s, feature %t: a %s keeps it: %t", set, on, name, !on)
				}
			}
			if row.PrepareUpdate(t.Context(), kept, object(set)); !has(kept, set) {
				t.Errorf("%s, feature %t: a field that the stored object has is cleared", set, on)
			}
			if prepared != 2 || row.Subresource("log").PrepareUpdate != nil {
				t.Errorf("%s: %d calls of the row's functions, want 2", set, prepared)
			}
		}
	}
}
