// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package policystatus

import (
	"context"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/keelson/pkg/apiserver/testserver"
	"keelson.dev/keelson/pkg/controllers/controller"
	"keelson.dev/keelson/pkg/controllers/controllertest"
)

func TestServer(t *testing.T) {
	s := testserver.Start(t, testserver.Options{})
	controllertest.RunAs(t, s, "validatingadmissionpolicy-status-controller", controller.Options{}, New)
	policies := s.Client.AdmissionregistrationV1().ValidatingAdmissionPolicies()
	for name, tc := range map[string]struct{ expression, warning string }{
		"good":  {"object.spec.replicas > 1", ""},
		"wrong": {"object.spec.replicas > '1'", "found no matching overload for '_>_' applied to '(int, string)'"},
		"none":  {"object.spec.hats > 1", "undefined field 'hats'"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := policies.Create(t.Context(), &admissionregistrationv1.ValidatingAdmissionPolicy{
				ObjectMeta: metav1.ObjectMeta{Name: name},
				Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
					Validations: []admissionregistrationv1.Validation{{Expression: tc.expression}},
					MatchConstraints: &admissionregistrationv1.MatchResources{
						ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
							RuleWithOperations: admissionregistrationv1.RuleWithOperations{
								Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
								Rule: admissionregistrationv1.Rule{APIGroups: []string{"apps"},
									APIVersions: []string{"v1"}, Resources: []string{"deployments"}},
							},
						}}},
				},
			}, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			controllertest.Eventually(t, "status", func(ctx context.Context) (any, bool) {
				p, err := policies.Get(ctx, name, metav1.GetOptions{})
				if err != nil || p.Status.ObservedGeneration != p.Generation || p.Status.TypeChecking == nil {
					return p, false
				}
				w := p.Status.TypeChecking.ExpressionWarnings
				if tc.warning == "" {
					return p, len(w) == 0
				}
				return p, len(w) == 1 && w[0].FieldRef == "spec.validations[0].expression" &&
					strings.Contains(w[0].Warning, tc.warning)
			})
		})
	}
}
