// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"testing"

	v1 "k8s.io/api/core/v1"
)

// TestTemplateHash checks that a hash depends on the template's content and on the number of
// collisions, but not on the memory addresses in its pointers.
func TestTemplateHash(t *testing.T) {
	template := func(image string) *v1.PodTemplateSpec {
		seconds := int64(30)
		return &v1.PodTemplateSpec{Spec: v1.PodSpec{
			TerminationGracePeriodSeconds: &seconds, NodeSelector: map[string]string{"a": "1", "b": "2"},
			Containers: []v1.Container{{Name: "c", Image: image}},
		}}
	}
	zero, one := int32(0), int32(1)
	seen := map[string]bool{}
	for _, h := range []string{TemplateHash(template("i"), nil), TemplateHash(template("j"), nil),
		TemplateHash(template("i"), &zero), TemplateHash(template("i"), &one)} {
		seen[h] = true
	}
	if len(seen) != 4 {
		t.Errorf("not all differ: %v", seen)
	}
	if a, b := TemplateHash(template("i"), &one), TemplateHash(template("i"), &one); a != b {
		t.Errorf("%s and %s for the same template", a, b)
	}
}
