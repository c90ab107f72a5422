// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package namespace

import (
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestWithoutTwins(t *testing.T) {
	of := func(group, name string) resource {
		return resource{schema.GroupVersionResource{Group: group, Version: "v1", Resource: name}, true}
	}
	secrets, events, newer, foreign := of("", "secrets"), of("", "events"), of("events.k8s.io", "events"),
		of("example.com", "events")
	for name, c := range map[string]struct{ all, want []resource }{
		"both":           {[]resource{events, secrets, foreign, newer}, []resource{secrets, foreign, newer}},
		"the older form": {[]resource{events, secrets, foreign}, []resource{events, secrets, foreign}},
		"the newer form": {[]resource{secrets, newer}, []resource{secrets, newer}},
		"none":           {nil, nil},
	} {
		if got := withoutTwins(c.all); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
