// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package admission_test

import (
	"context"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestWebhooksLeaveReviewsAlone checks that no webhook is called for reviews of identity and
// access, so that a webhook that does not answer cannot block them (kubernetes/kubernetes#140019).
func TestWebhooksLeaveReviewsAlone(t *testing.T) {
	s := pluginServer(t)
	rules := []admissionregistrationv1.RuleWithOperations{{
		Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.OperationAll},
		Rule: admissionregistrationv1.Rule{
			APIGroups: []string{"", "authentication.k8s.io", "authorization.k8s.io"}, APIVersions: []string{"*"},
			Resources: []string{"configmaps", "tokenreviews", "selfsubjectreviews", "subjectaccessreviews",
				"localsubjectaccessreviews", "selfsubjectaccessreviews", "selfsubjectrulesreviews"},
		},
	}}
	nowhere := admissionregistrationv1.WebhookClientConfig{URL: new("https://127.0.0.1:1/")}
	none := admissionregistrationv1.SideEffectClassNone
	admission := s.Client.AdmissionregistrationV1()
	if _, err := admission.ValidatingWebhookConfigurations().Create(t.Context(),
		&admissionregistrationv1.ValidatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: "v"},
			Webhooks: []admissionregistrationv1.ValidatingWebhook{{Name: "v.example.com", ClientConfig: nowhere,
				Rules: rules, SideEffects: &none, AdmissionReviewVersions: []string{"v1"}}},
		}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := admission.MutatingWebhookConfigurations().Create(t.Context(),
		&admissionregistrationv1.MutatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: "m"},
			Webhooks: []admissionregistrationv1.MutatingWebhook{{Name: "m.example.com", ClientConfig: nowhere,
				Rules: rules, SideEffects: &none, AdmissionReviewVersions: []string{"v1"}}},
		}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "webhooks in force", func(ctx context.Context) bool {
		_, err := s.Client.CoreV1().ConfigMaps("default").Create(ctx,
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "c-"}}, metav1.CreateOptions{})
		return err != nil
	})
	who, may := s.Client.AuthenticationV1(), s.Client.AuthorizationV1()
	attributes := &authorizationv1.ResourceAttributes{Namespace: "default", Verb: "get", Resource: "pods"}
	for name, ask := range map[string]func() error{
		"tokenreviews": func() error {
			_, err := who.TokenReviews().Create(t.Context(),
				&authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: "x"}}, metav1.CreateOptions{})
			return err
		},
		"selfsubjectreviews": func() error {
			_, err := who.SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
			return err
		},
		"subjectaccessreviews": func() error {
			_, err := may.SubjectAccessReviews().Create(t.Context(),
				&authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: "u",
					ResourceAttributes: attributes}}, metav1.CreateOptions{})
			return err
		},
		"selfsubjectaccessreviews": func() error {
			_, err := may.SelfSubjectAccessReviews().Create(t.Context(),
				&authorizationv1.SelfSubjectAccessReview{
					Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: attributes}}, metav1.CreateOptions{})
			return err
		},
		"selfsubjectrulesreviews": func() error {
			_, err := may.SelfSubjectRulesReviews().Create(t.Context(),
				&authorizationv1.SelfSubjectRulesReview{
					Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: "default"}}, metav1.CreateOptions{})
			return err
		},
	} {
		if err := ask(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
