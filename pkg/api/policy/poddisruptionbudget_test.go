// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"testing"

	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/keelson/pkg/api/rowtest"
)

// TestReservedLabel checks that a selector that a client sends loses requirements about the label
// with which v1beta1 expressed selectors, unless it is the selector that matches no pod.
func TestReservedLabel(t *testing.T) {
	const reserved = `{"key":"pdb.kubernetes.io/deprecated-v1beta1-empty-selector-match","operator":`
	row := rowtest.Row(t, Rows(), "poddisruptionbudgets")
	budget := func(selector string) *policyv1.PodDisruptionBudget {
		return rowtest.Decode(t, row, "b", `{"spec":{"selector":`+selector+`}}`).(*policyv1.PodDisruptionBudget)
	}
	for name, tc := range map[string]struct{ old, selector, want string }{
		"none":         {"", `null`, "<none>"},
		"all":          {"", `{}`, "<none>"},
		"all, v1beta1": {"", `{"matchExpressions":[` + reserved + `"DoesNotExist"}]}`, "<none>"},
		"no pod": {"", `{"matchExpressions":[` + reserved + `"Exists"}]}`,
			"pdb.kubernetes.io/deprecated-v1beta1-empty-selector-match"},
		"with others": {"", `{"matchLabels":{"a":"b"},"matchExpressions":[` + reserved + `"Exists"}]}`, "a=b"},
		"changed": {`{"matchLabels":{"a":"b"}}`,
			`{"matchLabels":{"a":"c"},"matchExpressions":[` + reserved + `"Exists"}]}`, "a=c"},
		"unchanged": {`{"matchExpressions":[` + reserved + `"DoesNotExist"}]}`,
			`{"matchExpressions":[` + reserved + `"DoesNotExist"}]}`,
			"!pdb.kubernetes.io/deprecated-v1beta1-empty-selector-match"},
	} {
		t.Run(name, func(t *testing.T) {
			b := budget(tc.selector)
			if tc.old == "" {
				row.PrepareCreate(t.Context(), b)
			} else {
				row.PrepareUpdate(t.Context(), b, budget(tc.old))
			}
			if got := metav1.FormatLabelSelector(b.Spec.Selector); got != tc.want {
				t.Errorf("selector %q, want %q", got, tc.want)
			}
		})
	}
}
