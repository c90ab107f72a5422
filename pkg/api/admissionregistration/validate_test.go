// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package admissionregistration_test

import (
	"fmt"
	"testing"

	"keelson.dev/keelson/pkg/api/admissionregistration"
	"keelson.dev/keelson/pkg/api/rowtest"
)

const (
	constraints = `"matchConstraints":{"resourceRules":[{"operations":["CREATE"],"apiGroups":["apps"],` +
		`"apiVersions":["v1"],"resources":["deployments"]}]}`
	client = `"name":"a.b.c","admissionReviewVersions":["v1"],"clientConfig":{"url":"https://x/y"}`
)

// TestValidate sets the defaults of new objects, validates them, and compares the errors.
func TestValidate(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		resource, object string
		want             []string
	}{
		"a webhook": {"validatingwebhookconfigurations", `{"webhooks":[{` + client + `,"sideEffects":"None"}]}`, nil},
		"a webhook says what it does beside its answer": {"mutatingwebhookconfigurations", `{"webhooks":[{` +
			client + `}]}`, []string{
			"webhooks[0].sideEffects: Required value: must specify one of None, NoneOnDryRun",
		}},
		"a webhook of no harm": {"validatingwebhookconfigurations", `{"webhooks":[{` + client +
			`,"sideEffects":"Some"}]}`, []string{
			`webhooks[0].sideEffects: Unsupported value: "Some": supported values: "None", "NoneOnDryRun"`,
		}},
		"a webhook's reinvocation": {"mutatingwebhookconfigurations", `{"webhooks":[{` + client +
			`,"sideEffects":"None","reinvocationPolicy":"Often"}]}`, []string{
			`webhooks[0].reinvocationPolicy: Unsupported value: "Often": supported values: "IfNeeded", "Never"`,
		}},
		"a webhook is somewhere": {"validatingwebhookconfigurations",
			`{"webhooks":[{"name":"a.b.c","sideEffects":"None","admissionReviewVersions":["v2"],"clientConfig":{}}]}`, []string{
				"webhooks[0].clientConfig: Required value: exactly one of url or service is required",
				`webhooks[0].admissionReviewVersions: Invalid value: ["v2"]: must include at least one of v1, v1beta1`,
			}},
		"webhooks have names of their own": {"validatingwebhookconfigurations", `{"webhooks":[{` + client +
			`,"sideEffects":"None"},{` + client + `,"sideEffects":"None"}]}`, []string{
			`webhooks[1].name: Duplicate value: "a.b.c"`,
		}},
		"wildcards stand alone": {"validatingwebhookconfigurations", `{"webhooks":[{` + client +
			`,"sideEffects":"None","rules":[{"operations":["*"],"apiGroups":["*","a"],"apiVersions":["v1"],` +
			`"resources":["pods/*","pods/log","*/scale","x/scale"]}]}]}`, []string{
			`webhooks[0].rules[0].apiGroups: Invalid value: ["*","a"]: if '*' is present, must not specify other API groups`,
			`webhooks[0].rules[0].resources[1]: Invalid value: "pods/log": if 'pods/*' is present, must not specify pods/log`,
			`webhooks[0].rules[0].resources[3]: Invalid value: "x/scale": if '*/scale' is present, must not specify x/scale`,
		}},
		"a condition compiles": {"validatingwebhookconfigurations", `{"webhooks":[{` + client +
			`,"sideEffects":"None","matchConditions":[{"name":"n","expression":"x"}]}]}`, []string{
			"webhooks[0].matchConditions[0].expression: Invalid value: \"x\": compilation failed: ERROR: " +
				"<input>:1:1: undeclared reference to 'x' (in container '')\n | x\n | ^",
		}},
		"a policy validates or annotates": {"validatingadmissionpolicies", `{"spec":{` + constraints + `}}`, []string{
			"spec.validations: Required value: validations or auditAnnotations must contain at least one item",
			"spec.auditAnnotations: Required value: validations or auditAnnotations must contain at least one item",
		}},
		"a validation says yes or no": {"validatingadmissionpolicies", `{"spec":{` + constraints +
			`,"validations":[{"expression":"1 + 1","reason":"Whim"}]}}`, []string{
			`spec.validations[0].expression: Invalid value: "1 + 1": must evaluate to bool but got int`,
			`spec.validations[0].reason: Unsupported value: "Whim": supported values: "Forbidden", ` +
				`"Invalid", "RequestEntityTooLarge"`,
		}},
		"variables refer to those before them": {"validatingadmissionpolicies", `{"spec":{` + constraints +
			`,"variables":[{"name":"a","expression":"1"},{"name":"b","expression":"variables.a + 1"}],` +
			`"validations":[{"expression":"variables.b > variables.a"}]}}`, nil},
		"parameters are of a kind": {"validatingadmissionpolicies", `{"spec":{` + constraints +
			`,"paramKind":{"apiVersion":"v1","kind":"a b"},"validations":[{"expression":"params.x == 1"}]}}`, []string{
			`spec.paramKind.kind: Invalid value: "a b": may have mixed case, but should otherwise match: a ` +
				`DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an ` +
				`alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or ` +
				`'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')`,
		}},
		"a binding does something": {"validatingadmissionpolicybindings",
			`{"spec":{"policyName":"p","paramRef":{"name":"a"}}}`, []string{
				"spec.paramRef.parameterNotFoundAction: Required value",
				"spec.validationActions: Required value: at least one validation action is required",
			}},
		"deletions are not mutated": {"mutatingadmissionpolicybindings",
			`{"spec":{"policyName":"p","matchResources":{"resourceRules":[{"operations":["DELETE"],` +
				`"apiGroups":[""],"apiVersions":["v1"],"resources":["pods"]}]}}}`, []string{
				`spec.matchResources.resourceRules.operations: Unsupported value: "DELETE": supported values: ` +
					`"*", "CONNECT", "CREATE", "UPDATE"`,
			}},
		"a mutation has its expression": {"mutatingadmissionpolicies", `{"spec":{` + constraints +
			`,"reinvocationPolicy":"Never","mutations":[{"patchType":"JSONPatch"},` +
			`{"patchType":"ApplyConfiguration","applyConfiguration":{"expression":"Object{spec: ` +
			`Object.spec{replicas: 3}}"}}]}}`, []string{
			"spec.mutations[0].jsonPatch: Required value: must be specified when patchType is JSONPatch",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			row := rowtest.Row(t, admissionregistration.Rows(nil), tc.resource)
			rowtest.Check(t, row.Validate(t.Context(), rowtest.Decode(t, row, "p", tc.object)), tc.want)
		})
	}
}

// TestValidateUpdate checks that an update may keep faults that the stored object has, but may not
// add others.
func TestValidateUpdate(t *testing.T) {
	t.Parallel()
	hook := func(more string) string { return fmt.Sprintf(`{"webhooks":[{%s%s}]}`, client, more) }
	for name, tc := range map[string]struct {
		old, now string
		want     int
	}{
		"side effects stay": {hook(`,"sideEffects":"Some"`), hook(`,"sideEffects":"Unknown"`), 0},
		"side effects come": {hook(`,"sideEffects":"None"`), hook(`,"sideEffects":"Some"`), 1},
		"conditions stay": {
			hook(`,"sideEffects":"None","matchConditions":[{"name":"a","expression":"x"}]`),
			hook(`,"sideEffects":"None","timeoutSeconds":3,"matchConditions":[{"name":"a","expression":"x"}]`), 0},
		"conditions change": {hook(`,"sideEffects":"None"`),
			hook(`,"sideEffects":"None","matchConditions":[{"name":"a","expression":"x"}]`), 1},
		"a selector stays broken": {hook(`,"sideEffects":"None",` +
			`"objectSelector":{"matchExpressions":[{"key":"a","operator":"In","values":["b c"]}]}`),
			hook(`,"sideEffects":"None","objectSelector":{"matchExpressions":[{"key":"a",` +
				`"operator":"In","values":["c d"]}]}`), 0},
		"a selector breaks": {hook(`,"sideEffects":"None"`),
			hook(`,"sideEffects":"None","objectSelector":{"matchExpressions":[{"key":"a","operator":"In",` +
				`"values":["c d"]}]}`), 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			row := rowtest.Row(t, admissionregistration.Rows(nil), "mutatingwebhookconfigurations")
			if got := row.ValidateUpdate(t.Context(), rowtest.Decode(t, row, "p", tc.now),
				rowtest.Decode(t, row, "p", tc.old)); len(got) != tc.want {
				t.Errorf("got %v, want %d errors", got, tc.want)
			}
		})
	}
}
