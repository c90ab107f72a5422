// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package hosts

import (
	"maps"
	"testing"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/utils/ptr"
)

func ingress(class, annotation string, hosts ...string) *networkingv1.Ingress {
	out := &networkingv1.Ingress{Spec: networkingv1.IngressSpec{IngressClassName: ptr.To(class)}}
	for _, host := range hosts {
		out.Spec.Rules = append(out.Spec.Rules, networkingv1.IngressRule{Host: host})
	}
	if annotation != "" {
		out.Annotations = map[string]string{Since: annotation}
	}
	return out
}

func TestRecord(t *testing.T) {
	now, once := time.Unix(1000, 0).UTC(), time.Unix(500, 0).UTC()
	const lie, recorded = `{"a":"1970-01-01T00:00:00Z","b":"1970-01-01T00:00:00Z"}`, `{"a":"1970-01-01T00:08:20Z"}`
	for name, tc := range map[string]struct {
		ing, old *networkingv1.Ingress
		want     map[string]time.Time
	}{
		"Created":      {ingress("c", lie, "a", "b"), nil, nil},
		"Unchanged":    {ingress("c", lie, "a"), ingress("c", "", "a"), nil},
		"TakesOn":      {ingress("c", lie, "a", "b"), ingress("c", "", "a"), map[string]time.Time{"b": now}},
		"Keeps":        {ingress("c", "", "a", "b"), ingress("c", recorded, "a", "b"), map[string]time.Time{"a": once}},
		"Drops":        {ingress("c", "", "b"), ingress("c", recorded, "a", "b"), nil},
		"TakesOnAgain": {ingress("c", lie, "a"), ingress("c", "", "b"), map[string]time.Time{"a": now}},
		"AnotherClass": {ingress("c", lie, "a", "b"), ingress("d", recorded, "a", "b"),
			map[string]time.Time{"a": now, "b": now}},
		"NoHostIsAHost":  {ingress("c", "", "a", ""), ingress("c", "", "a"), map[string]time.Time{"": now}},
		"SpelledAnother": {ingress("c", "", "A."), ingress("c", "", "a"), nil},
		"BrokenBefore":   {ingress("c", "", "a"), ingress("c", "{", "a"), nil},
	} {
		t.Run(name, func(t *testing.T) {
			if err := Record(tc.ing, tc.old, now); err != nil {
				t.Fatal(err)
			}
			if got := Times(tc.ing); !maps.Equal(got, tc.want) {
				t.Errorf("%v, want %v", got, tc.want)
			}
			if _, ok := tc.ing.Annotations[Since]; ok != (tc.want != nil) {
				t.Error("the annotation is empty")
			}
		})
	}
}
