// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/yaml"
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

// TestDefaultPodResources checks which pod-level requests and limits are added to those of a pod.
func TestDefaultPodResources(t *testing.T) {
	const both = `{requests: {cpu: 1, memory: 1Mi}, limits: {cpu: 2, memory: 2Mi}}`
	for name, tc := range map[string]struct{ own, containers, want string }{
		"none":          {`null`, `[{name: a, resources: ` + both + `}]`, `null`},
		"empty":         {`{}`, `[{name: a, resources: ` + both + `}]`, `{}`},
		"only requests": {`{requests: {cpu: 3}}`, `[{name: a}]`, `{requests: {cpu: 3}}`},
		"requests of containers": {`{requests: {cpu: 3}}`, `[{name: a, resources: {requests: {memory: 1Mi}}}]`,
			`{requests: {cpu: 3, memory: 1Mi}}`},
		"requests of limits": {`{limits: {cpu: 3}}`, `[{name: a}]`, `{limits: {cpu: 3}, requests: {cpu: 3}}`},
		"limits of all containers": {`{requests: {cpu: 2}}`,
			`[{name: a, resources: ` + both + `}, {name: b, resources: ` + both + `}]`,
			`{requests: {cpu: 2, memory: 2Mi}, limits: {cpu: 4, memory: 4Mi}}`},
		"limits of some containers": {`{requests: {cpu: 2}}`,
			`[{name: a, resources: ` + both + `}, {name: b, resources: {limits: {cpu: 1}}}]`,
			`{requests: {cpu: 2, memory: 1Mi}, limits: {cpu: 3}}`},
		"requests above the limits": {`{requests: {cpu: 5}}`, `[{name: a, resources: {limits: {cpu: 1}}}]`,
			`{requests: {cpu: 5}, limits: {cpu: 5}}`},
		"set limits stay": {`{limits: {cpu: 7}, requests: {cpu: 1}}`, `[{name: a, resources: {limits: {cpu: 1}}}]`,
			`{limits: {cpu: 7}, requests: {cpu: 1}}`},
		"huge pages": {`{requests: {cpu: 1}}`, `[{name: a, resources: {limits: {hugepages-2Mi: 4Mi}}}, {name: b}]`,
			`{requests: {cpu: 1, hugepages-2Mi: 4Mi}, limits: {hugepages-2Mi: 4Mi}}`},
		"other resources": {`{requests: {cpu: 1}}`,
			`[{name: a, resources: {requests: {example.com/a: 1}, limits: {example.com/a: 1}}}]`, `{requests: {cpu: 1}}`},
	} {
		t.Run(name, func(t *testing.T) {
			pod, want := &corev1.Pod{}, &corev1.PodSpec{}
			for spec, text := range map[*corev1.PodSpec]string{
				&pod.Spec: `{resources: ` + tc.own + `, containers: ` + tc.containers + `}`,
				want:      `{resources: ` + tc.want + `}`,
			} {
				if err := yaml.UnmarshalStrict([]byte(text), spec); err != nil {
					t.Fatal(err)
				}
			}
			DefaultPodResources(pod)
			if !equality.Semantic.DeepEqual(pod.Spec.Resources, want.Resources) {
				t.Errorf("%+v, want %+v", pod.Spec.Resources, want.Resources)
			}
		})
	}
}
