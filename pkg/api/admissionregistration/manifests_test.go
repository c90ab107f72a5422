// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package admissionregistration_test

import (
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"keelson.dev/keelson/pkg/api/admissionregistration"
)

// TestManifestRules checks that objects from files get defaults, and that invalid ones have errors.
func TestManifestRules(t *testing.T) {
	rules := admissionregistration.NewManifestRules()
	named := metav1.ObjectMeta{Name: "a.static.k8s.io"}
	for name, tc := range map[string]struct {
		obj  runtime.Object
		want string
	}{
		"webhooks": {&admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: named}, ""},
		"name": {&admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "A"}},
			`MutatingWebhookConfiguration "A": metadata.name: Invalid value: "A": a lowercase RFC 1123 subdomain must consist ` +
				`of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character ` +
				`(e.g. 'example.com', regex used for validation is ` +
				`'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')`},
		"binding without a policy": {&admissionregistrationv1.MutatingAdmissionPolicyBinding{ObjectMeta: named},
			`MutatingAdmissionPolicyBinding "a.static.k8s.io": spec.policyName: Required value`},
		"other kind": {&corev1.Pod{}, "unsupported resource type *v1.Pod"},
	} {
		t.Run(name, func(t *testing.T) {
			got := ""
			if err := rules.Apply(tc.obj); err != nil {
				got = err.Error()
			}
			if got != tc.want {
				t.Errorf("%s\nwant %s", got, tc.want)
			}
		})
	}
	hooks := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: named,
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{Name: "w"}}}
	if err := rules.Apply(hooks); err == nil || hooks.Webhooks[0].TimeoutSeconds == nil {
		t.Errorf("webhook without fields: %+v, %v", hooks.Webhooks[0], err)
	}
}
