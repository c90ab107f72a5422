// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package flowcontrol_test

import (
	"slices"
	"testing"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apiserver/pkg/apis/flowcontrol/bootstrap"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/flowcontrol"
	"keelson.dev/keelson/pkg/api/rowtest"
)

// TestValidate sets the defaults of new objects, validates them, and compares the errors.
func TestValidate(t *testing.T) {
	t.Parallel()
	const rule = `"resourceRules":[{"verbs":["get"],"apiGroups":[""],"resources":["pods"],"namespaces":["*"]}]`
	for name, tc := range map[string]struct {
		resource, name, object string
		want                   []string
	}{
		"a schema": {"flowschemas", "a", `{"spec":{"priorityLevelConfiguration":{"name":"l"},` +
			`"rules":[{"subjects":[{"kind":"User","user":{"name":"u"}}],` + rule + `}]}}`, nil},
		"only exempt comes first": {"flowschemas", "a",
			`{"spec":{"matchingPrecedence":1,"priorityLevelConfiguration":{"name":"l"}}}`, []string{
				"spec.matchingPrecedence: Invalid value: 1: only the schema named 'exempt' may have matchingPrecedence 1",
			}},
		"a subject has one part": {"flowschemas", "a", `{"spec":{"priorityLevelConfiguration":{"name":"l"},` +
			`"rules":[{"subjects":[{"kind":"User","group":{"name":"u"}}],` + rule + `}]}}`, []string{
			"spec.rules[0].subjects[0].user: Required value: user is required when subject kind is 'User'",
			"spec.rules[0].subjects[0].group: Forbidden: group is forbidden when subject kind is not 'Group'",
		}},
		"wildcards end paths": {"flowschemas", "a", `{"spec":{"priorityLevelConfiguration":{"name":"l"},` +
			`"rules":[{"subjects":[{"kind":"Group","group":{"name":"g"}}],` +
			`"nonResourceRules":[{"verbs":["*"],"nonResourceURLs":["/a*","/a/*"]}]}]}}`, []string{
			`spec.rules[0].nonResourceRules[0].nonResourceURLs[0]: Invalid value: "/a*": wildcard can only do suffix matching`,
		}},
		"too many combinations of queues": {"prioritylevelconfigurations", "a",
			`{"spec":{"type":"Limited","limited":{"limitResponse":{"type":"Queue",` +
				`"queuing":{"queues":1000000,"handSize":8}}}}}`, []string{
				"spec.limited.limitResponse.queuing.handSize: Invalid value: 8: required entropy bits of " +
					"deckSize 1000000 and handSize 8 should not be greater than 60",
			}},
		"only exempt is exempt": {"prioritylevelconfigurations", "a", `{"spec":{"type":"Exempt"}}`, []string{
			"spec.type: Invalid value: \"Exempt\": must be 'Exempt' if and only if `name` is 'exempt'",
		}},
		"what every server has is fixed": {"prioritylevelconfigurations", "catch-all",
			`{"spec":{"type":"Limited","limited":{"nominalConcurrencyShares":6,"limitResponse":{"type":"Reject"}}}}`, []string{
				`spec: Invalid value: {"type":"Limited","limited":{"nominalConcurrencyShares":6,` +
					`"limitResponse":{"type":"Reject"},"lendablePercent":0}}: spec of 'catch-all' must equal the fixed value`,
			}},
		"the share of exempt is free": {"prioritylevelconfigurations", "exempt",
			`{"spec":{"type":"Exempt","exempt":{"nominalConcurrencyShares":7}}}`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			row := rowtest.Row(t, flowcontrol.Rows(), tc.resource)
			rowtest.Check(t, row.Validate(t.Context(), rowtest.Decode(t, row, tc.name, tc.object)), tc.want)
		})
	}
}

// TestBootstrapObjects checks that the built-in objects are valid after their defaults are set.
// Validation rejects a mandatory object that differs from the built-in one, so this also shows that the
// defaults do not change these objects.
func TestBootstrapObjects(t *testing.T) {
	t.Parallel()
	validate := func(name string, obj, fixed resource.Object) {
		row := rowtest.Row(t, flowcontrol.Rows(), name)
		row.Default(obj)
		if errs := row.Validate(t.Context(), obj); len(errs) > 0 {
			t.Errorf("%s %s: %v", name, fixed.GetName(), errs)
		}
	}
	for _, s := range slices.Concat(bootstrap.MandatoryFlowSchemas, bootstrap.SuggestedFlowSchemas) {
		validate("flowschemas", s.DeepCopy(), s)
	}
	for _, l := range slices.Concat(bootstrap.MandatoryPriorityLevelConfigurations,
		bootstrap.SuggestedPriorityLevelConfigurations) {
		validate("prioritylevelconfigurations", l.DeepCopy(), l)
	}
	broken := bootstrap.MandatoryFlowSchemas[0].DeepCopy()
	broken.Spec.DistinguisherMethod = &flowcontrolv1.FlowDistinguisherMethod{
		Type: flowcontrolv1.FlowDistinguisherMethodByUserType}
	if errs := rowtest.Row(t, flowcontrol.Rows(), "flowschemas").Validate(t.Context(), broken); len(errs) != 1 {
		t.Errorf("a changed %s was accepted: %v", broken.Name, errs)
	}
}
