// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"keelson.dev/api/scheduling/v1alpha1"
	"keelson.dev/keelson/pkg/apiserver/testserver"
)

// bindingRules returns admission rules that match only pods/binding.
func bindingRules() admissionregistrationv1.RuleWithOperations {
	return admissionregistrationv1.RuleWithOperations{
		Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
		Rule: admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"},
			Resources: []string{"pods/binding"}},
	}
}

// TestBatchesAreAdmitted checks that each binding of a batch passes the webhooks and policies for
// pods/binding, as if it were a request of its own. Pods whose bindings are rejected are not bound,
// and the other pods are.
func TestBatchesAreAdmitted(t *testing.T) {
	var mu sync.Mutex
	seen := map[string]string{} // node by pod
	hook := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review admissionv1.AdmissionReview
		var binding corev1.Binding
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil ||
			json.Unmarshal(review.Request.Object.Raw, &binding) != nil {
			http.Error(w, "no binding", http.StatusBadRequest)
			return
		}
		mu.Lock()
		seen[review.Request.Name] = binding.Target.Name
		mu.Unlock()
		review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID,
			Allowed: binding.Target.Name != "by-hook", Result: &metav1.Status{Message: "the hook forbids it"}}
		review.Request = nil
		_ = json.NewEncoder(w).Encode(review)
	}))
	t.Cleanup(hook.Close)
	s := testserver.Start(t, testserver.Options{})
	mustCreateAccount(t, s)
	ctx := t.Context()
	api := s.Client.AdmissionregistrationV1()
	meta := metav1.ObjectMeta{Name: "bindings.example.com"}
	if _, err := api.ValidatingAdmissionPolicies().Create(ctx, &admissionregistrationv1.ValidatingAdmissionPolicy{
		ObjectMeta: meta, Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionregistrationv1.MatchResources{
				ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: bindingRules()}}},
			Validations: []admissionregistrationv1.Validation{
				{Expression: "object.target.name != 'by-policy'", Message: "the policy forbids it"}},
		}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := api.ValidatingAdmissionPolicyBindings().Create(ctx,
		&admissionregistrationv1.ValidatingAdmissionPolicyBinding{
			ObjectMeta: meta, Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
				PolicyName: meta.Name, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}},
		}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := api.ValidatingWebhookConfigurations().Create(ctx, &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: meta, Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: meta.Name, Rules: []admissionregistrationv1.RuleWithOperations{bindingRules()},
			AdmissionReviewVersions: []string{"v1"},
			SideEffects:             ptr.To(admissionregistrationv1.SideEffectClassNone), TimeoutSeconds: ptr.To(int32(30)),
			ClientConfig: admissionregistrationv1.WebhookClientConfig{
				URL: ptr.To(hook.URL), CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: hook.Certificate().Raw}),
			},
		}}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	send := func(to map[string]string) map[string]v1alpha1.Result {
		t.Helper()
		batch := v1alpha1.BindingBatch{}
		var names []string
		for name, node := range to {
			names = append(names, name)
			batch.Bindings = append(batch.Bindings, v1alpha1.Binding{Namespace: "default", Name: name, Node: node})
		}
		body, err := json.Marshal(batch)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := s.Client.CoreV1().RESTClient().Post().AbsPath("/apis/"+v1alpha1.Group+"/"+
			v1alpha1.Version+"/bindingbatches").
			SetHeader("Content-Type", "application/json").Body(body).DoRaw(ctx)
		if err != nil {
			t.Fatal(err)
		}
		var got v1alpha1.BindingBatch
		if err := json.Unmarshal(answer, &got); err != nil || len(got.Results) != len(names) {
			t.Fatalf("%s: %v", answer, err)
		}
		out := map[string]v1alpha1.Result{}
		for i, name := range names {
			out[name] = got.Results[i]
		}
		return out
	}
	// Wait until the server uses both the hook and the policy. Each attempt needs pods of its own.
	tries := 0
	poll(t, "the hook and the policy are in force", func(context.Context) bool {
		tries++
		a, b := fmt.Sprintf("a-%d", tries), fmt.Sprintf("b-%d", tries)
		for _, name := range []string{a, b} {
			if _, err := s.Client.CoreV1().Pods("default").Create(ctx, pod(name, ""), metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		got := send(map[string]string{a: "by-hook", b: "by-policy"})
		return got[a].Code != http.StatusCreated && got[b].Code != http.StatusCreated
	})
	to := map[string]string{"hook": "by-hook", "policy": "by-policy", "free": "n1"}
	for name := range to {
		if _, err := s.Client.CoreV1().Pods("default").Create(ctx, pod(name, ""), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	got := send(to)
	for name, message := range map[string]string{
		"hook": `admission webhook "bindings.example.com" denied the request: the hook forbids it`,
		"policy": `pods "policy" is forbidden: ValidatingAdmissionPolicy 'bindings.example.com' with ` +
			`binding 'bindings.example.com' denied request: the policy forbids it`,
	} {
		if r := got[name]; r.Code < 400 || r.Message != message {
			t.Errorf("%s: %+v", name, r)
		}
	}
	if r := got["free"]; r.Code != http.StatusCreated {
		t.Errorf("free: %+v", r)
	}
	for name, node := range to {
		p, err := s.Client.CoreV1().Pods("default").Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if want := map[bool]string{true: "n1"}[name == "free"]; p.Spec.NodeName != want {
			t.Errorf("%s is on %q, want %q", name, p.Spec.NodeName, want)
		}
		mu.Lock()
		// The hook does not see bindings that the policy rejects, because policies are evaluated
		// first.
		if name != "policy" && seen[name] != node {
			t.Errorf("the hook has seen %s on %q", name, seen[name])
		}
		mu.Unlock()
	}
}
