// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// TestDefaultPullPolicy checks that the default pull policy depends on the image's tag, and that a
// policy is not changed if it is set.
func TestDefaultPullPolicy(t *testing.T) {
	for _, test := range []struct {
		image  string
		policy corev1.PullPolicy
		want   corev1.PullPolicy
	}{
		{image: "web", want: corev1.PullAlways},
		{image: "web:latest", want: corev1.PullAlways},
		{image: "registry.example.com:5000/web", want: corev1.PullAlways},
		{image: "registry.example.com:5000/web:1.0", want: corev1.PullIfNotPresent},
		{image: "web@sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855", want: corev1.PullIfNotPresent},
		{image: "not an image", want: corev1.PullIfNotPresent},
		{image: "web:latest", policy: corev1.PullNever, want: corev1.PullNever},
		{image: "web:1.0", policy: corev1.PullAlways, want: corev1.PullAlways},
	} {
		got := test.policy
		if defaultPullPolicy(&got, test.image); got != test.want {
			t.Errorf("%s with %q: %q, want %q", test.image, test.policy, got, test.want)
		}
	}
}
