// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package admission_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/keelson/pkg/apiserver/config"
	"keelson.dev/keelson/pkg/apiserver/testserver"
)

const validatingManifests = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: secrets.static.k8s.io}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}
    - {apiGroups: [admissionregistration.k8s.io], apiVersions: ["*"], operations: [CREATE], resources: ["*"]}
  validations:
  - {expression: "!object.metadata.name.startsWith('bad')", message: no bad names}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: secrets.static.k8s.io}
spec: {policyName: secrets.static.k8s.io, validationActions: [Deny]}
`

const mutatingManifests = `
apiVersion: v1
kind: List
items:
- apiVersion: admissionregistration.k8s.io/v1
  kind: MutatingAdmissionPolicy
  metadata: {name: label.static.k8s.io}
  spec:
    reinvocationPolicy: Never
    matchConstraints:
      resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}]
    mutations:
    - patchType: ApplyConfiguration
      applyConfiguration: {expression: 'Object{metadata: Object.metadata{labels: Object.metadata.labels{static: "yes"}}}'}
- apiVersion: admissionregistration.k8s.io/v1
  kind: MutatingAdmissionPolicyBinding
  metadata: {name: label.static.k8s.io}
  spec: {policyName: label.static.k8s.io}
`

// manifestConfig writes manifests and an AdmissionConfiguration that names their directory, and returns the
// path of the configuration.
func manifestConfig(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	text := "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins:\n"
	for plugin, manifests := range files {
		own := filepath.Join(dir, plugin)
		if err := os.Mkdir(own, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(own, "a.yaml"), []byte(manifests), 0o600); err != nil {
			t.Fatal(err)
		}
		kind := plugin + "Configuration"
		if strings.HasSuffix(plugin, "Webhook") {
			kind = "WebhookAdmissionConfiguration"
		}
		text += fmt.Sprintf("- name: %s\n  configuration: {apiVersion: apiserver.config.k8s.io/v1, kind: %s, "+
			"staticManifestsDir: %s}\n", plugin, kind, own)
	}
	path := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestManifests checks that policies from files are in force when the server is ready, also for objects that
// policies of the API do not apply to.
func TestManifests(t *testing.T) {
	file := manifestConfig(t, map[string]string{
		"ValidatingAdmissionPolicy": validatingManifests, "MutatingAdmissionPolicy": mutatingManifests,
		"ValidatingAdmissionWebhook": `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: unreachable.static.k8s.io}
webhooks:
- name: unreachable.example.com
  admissionReviewVersions: [v1]
  sideEffects: None
  clientConfig: {url: "https://127.0.0.1:1/"}
  rules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [limitranges]}]
`,
	})
	s := testserver.Start(t, testserver.Options{Configure: func(c *config.Config) { c.AdmissionConfig = file }})
	maps := s.Client.CoreV1().ConfigMaps("default")
	named := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name} }
	good, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: named("good")}, metav1.CreateOptions{})
	if err != nil || good.Labels["static"] != "yes" {
		t.Errorf("labels %v, %v", good.Labels, err)
	}
	if _, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: named("bad")}, metav1.CreateOptions{}); err ==
		nil || !strings.Contains(err.Error(), "no bad names") {
		t.Errorf("policy for config maps: %v", err)
	}
	if _, err := s.Client.CoreV1().LimitRanges("default").Create(t.Context(), &corev1.LimitRange{ObjectMeta: named("l")},
		metav1.CreateOptions{}); !apierrors.IsInternalError(err) ||
		!strings.Contains(err.Error(), `failed calling webhook "unreachable.example.com"`) {
		t.Errorf("webhook: %v", err)
	}
	policies := s.Client.AdmissionregistrationV1().ValidatingAdmissionPolicies()
	policy := &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: named("bad"),
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{MatchConstraints: constraints("", "pods"),
			Validations: []admissionregistrationv1.Validation{{Expression: "true"}}}}
	if _, err := policies.Create(t.Context(), policy, metav1.CreateOptions{}); err == nil ||
		!strings.Contains(err.Error(), "no bad names") {
		t.Errorf("policy for policies: %v", err)
	}
	policy.Name = "good.static.k8s.io"
	if _, err := policies.Create(t.Context(), policy, metav1.CreateOptions{}); !apierrors.IsInvalid(err) ||
		!strings.Contains(err.Error(), `metadata.name: Invalid value: "good.static.k8s.io": names ending with `+
			`".static.k8s.io" are reserved for static manifest-based configurations and cannot be managed via the API`) {
		t.Errorf("reserved name: %v", err)
	}
	list, err := policies.List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 0 {
		t.Errorf("the API has %d policies, %v", len(list.Items), err)
	}
}
