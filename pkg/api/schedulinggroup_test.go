// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api"
	"keelson.dev/keelson/pkg/api/podspec"
)

// TestSchedulingGroup checks that pods and all kinds with pod templates keep a scheduling group only
// if the feature is on, or if the stored object has one.
func TestSchedulingGroup(t *testing.T) {
	t.Parallel()
	group := func(row *resource.Row, name string) resource.Object {
		obj := row.New()
		if rc, ok := obj.(*corev1.ReplicationController); ok {
			rc.Spec.Template = &corev1.PodTemplateSpec{}
		}
		if name != "" {
			podspec.Of(obj).SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: &name}
		}
		return obj
	}
	for _, on := range []bool{false, true} {
		kinds := 0
		enabled := func(feature string) bool { return on && feature == "GenericWorkload" }
		for _, row := range api.Rows(api.Deps{Enabled: enabled}) {
			if !podspec.Has(row.New()) {
				continue
			}
			kinds++
			created, added, changed := group(row, "a"), group(row, "a"), group(row, "b")
			row.PrepareCreate(t.Context(), created)
			row.PrepareUpdate(t.Context(), added, group(row, ""))
			row.PrepareUpdate(t.Context(), changed, group(row, "a"))
			for what, got := range map[string]bool{
				"created": podspec.Of(created).SchedulingGroup != nil, "added": podspec.Of(added).SchedulingGroup != nil,
			} {
				if got != on {
					t.Errorf("%s, feature %t: the group that was %s is kept: %t", row.Resource, on, what, got)
				}
			}
			if s := podspec.Of(changed).SchedulingGroup; s == nil || *s.PodGroupName != "b" {
				t.Errorf("%s, feature %t: changed to %+v, want b", row.Resource, on, s)
			}
		}
		if kinds != 9 {
			t.Errorf("%d kinds with pods, want 9", kinds)
		}
	}
}
