// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package namespace

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// TestExtended checks that the controller waits only for extension API servers that serve
// namespaced objects.
func TestExtended(t *testing.T) {
	of := func(group, version, name string) resource {
		return resource{schema.GroupVersionResource{Group: group, Version: version, Resource: name}, true}
	}
	service := func(name string) metav1.PartialObjectMetadata {
		return metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name}}
	}
	pods, flunders := of("", "v1", "pods"), of("wardle.example.com", "v1", "flunders")
	for name, c := range map[string]struct {
		all      []resource
		services []metav1.PartialObjectMetadata
		want     bool
	}{
		"no service":      {[]resource{pods, flunders}, nil, false},
		"nothing to keep": {[]resource{pods}, []metav1.PartialObjectMetadata{service("v1beta1.metrics.k8s.io")}, false},
		"another version": {[]resource{pods, flunders},
			[]metav1.PartialObjectMetadata{service("v2.wardle.example.com")}, false},
		"keeps objects": {[]resource{pods, flunders},
			[]metav1.PartialObjectMetadata{service("v1beta1.metrics.k8s.io"), service("v1.wardle.example.com")}, true},
	} {
		if got := extended(c.all, c.services); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
