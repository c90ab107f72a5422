// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package admission_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/keelson/pkg/apiserver/testserver"
)

// createEvents creates an event through each of the two API groups that serve events. It returns
// the texts of the two events, or the first error.
func createEvents(ctx context.Context, s *testserver.Server, name string) ([]string, error) {
	about, dryRun := corev1.ObjectReference{Kind: "Pod", Namespace: "default", Name: name},
		metav1.CreateOptions{DryRun: []string{"All"}}
	meta := metav1.ObjectMeta{Name: name, Namespace: "default"}
	older, err := s.Client.CoreV1().Events("default").Create(ctx, &corev1.Event{ObjectMeta: meta, InvolvedObject: about,
		Reason: "Tested"}, dryRun)
	if err != nil {
		return nil, err
	}
	newer, err := s.Client.EventsV1().Events("default").Create(ctx, &eventsv1.Event{ObjectMeta: meta, Regarding: about,
		Reason: "Tested", Type: corev1.EventTypeNormal, Action: "Test", ReportingController: "example.com/test",
		ReportingInstance: "i", EventTime: metav1.NowMicro()}, dryRun)
	if err != nil {
		return nil, err
	}
	return []string{older.Message, newer.Note}, nil
}

// TestWebhooksOfEquivalentGroups checks that a webhook with a rule for one API group that serves
// events also receives, and can change, the events that a client creates through the other group. It
// receives them in the form of the group in its rule.
func TestWebhooksOfEquivalentGroups(t *testing.T) {
	s, h := testserver.Start(t, testserver.Options{}), newHooks(t)
	groups := map[string]string{"": "message", "events.k8s.io": "note"}
	var v []admissionregistrationv1.ValidatingWebhook
	var m []admissionregistrationv1.MutatingWebhook
	for group, field := range groups {
		h.on("check-"+field, allow)
		h.on("exact-"+field, allow)
		// The webhook of the second group appends to the text that the one of the first has set.
		h.on("change-"+field, func(r admissionv1.AdmissionRequest) admissionv1.AdmissionResponse {
			text := field
			if strings.Contains(string(r.Object.Raw), `"`+field+`":"`) {
				text = "both"
			}
			return patch(`[{"op":"add","path":"/` + field + `","value":"` + text + `"}]`)(r)
		})
		check := validating(h, "check-"+field, "events", admissionregistrationv1.Create)
		check.Rules[0].APIGroups = []string{group}
		exact, only := validating(h, "exact-"+field, "events", admissionregistrationv1.Create),
			admissionregistrationv1.Exact
		exact.MatchPolicy, exact.Rules[0].APIGroups = &only, []string{group}
		change := mutating(h, "change-"+field, "events")
		change.Rules[0].APIGroups = []string{group}
		v, m = append(v, check, exact), append(m, change)
	}
	install(t, s, v, m)
	eventually(t, "both webhooks change the events of both groups", func(ctx context.Context) bool {
		for _, field := range groups {
			h.take("check-" + field)
			h.take("exact-" + field)
		}
		texts, err := createEvents(ctx, s, "a")
		return err == nil && slices.Equal(texts, []string{"both", "both"})
	})
	for group, field := range groups {
		seen := h.take("check-" + field)
		if len(seen) != 2 {
			t.Fatalf("the webhook for group %q was called %d times, want 2", group, len(seen))
		}
		for i, request := range []string{"", "events.k8s.io"} {
			r := seen[i]
			if r.Kind.Group != group || r.Resource.Group != group || r.RequestKind.Group != request ||
				r.RequestResource.Group != request || !strings.Contains(string(r.Object.Raw), `"`+field+`":"both"`) {
				t.Errorf("the webhook for group %q received %+v %s", group, r, r.Object.Raw)
			}
		}
		if n := len(h.take("exact-" + field)); n != 1 {
			t.Errorf("the webhook for exactly the group %q was called %d times, want 1", group, n)
		}
	}
}

// TestPoliciesOfEquivalentGroups checks that policies with a rule for one API group that serves
// events apply to both groups.
func TestPoliciesOfEquivalentGroups(t *testing.T) {
	s := testserver.Start(t, testserver.Options{})
	api := s.Client.AdmissionregistrationV1()
	meta := metav1.ObjectMeta{Name: "newer"}
	if _, err := api.ValidatingAdmissionPolicies().Create(t.Context(), &admissionregistrationv1.ValidatingAdmissionPolicy{
		ObjectMeta: meta, Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: constraints("events.k8s.io", "events"),
			Validations: []admissionregistrationv1.Validation{
				{Expression: "object.regarding.name != 'wrong' && object.note == 'changed'"}},
		}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := api.ValidatingAdmissionPolicyBindings().Create(t.Context(),
		&admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: meta,
			Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: "newer",
				ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}},
		}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := api.MutatingAdmissionPolicies().Create(t.Context(), &admissionregistrationv1.MutatingAdmissionPolicy{
		ObjectMeta: meta, Spec: admissionregistrationv1.MutatingAdmissionPolicySpec{
			MatchConstraints:   constraints("events.k8s.io", "events"),
			ReinvocationPolicy: admissionregistrationv1.NeverReinvocationPolicy,
			Mutations: []admissionregistrationv1.Mutation{{PatchType: admissionregistrationv1.PatchTypeApplyConfiguration,
				ApplyConfiguration: &admissionregistrationv1.ApplyConfiguration{Expression: "Object{note: 'changed'}"}}},
		}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := api.MutatingAdmissionPolicyBindings().Create(t.Context(),
		&admissionregistrationv1.MutatingAdmissionPolicyBinding{ObjectMeta: meta,
			Spec: admissionregistrationv1.MutatingAdmissionPolicyBindingSpec{PolicyName: "newer"},
		}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the policies apply to both groups", func(ctx context.Context) bool {
		_, err := createEvents(ctx, s, "wrong")
		texts, other := createEvents(ctx, s, "a")
		return apierrors.IsInvalid(err) && other == nil && slices.Equal(texts, []string{"changed", "changed"})
	})
}
