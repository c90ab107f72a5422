// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package reviews

import (
	"context"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

func TestOrderOfFaults(t *testing.T) {
	res := &authorizationv1.ResourceAttributes{FieldSelector: &authorizationv1.FieldSelectorAttributes{}}
	for name, tc := range map[string]struct {
		spec authorizationv1.SubjectAccessReviewSpec
		want string
	}{
		"nobody, a selector that selects nothing": {
			authorizationv1.SubjectAccessReviewSpec{ResourceAttributes: res},
			`.authorization.k8s.io "" is invalid: [spec.user: Invalid value: "": at least one of user or ` +
				`group must be specified, ` +
				`spec.resourceAttributes.fieldSelector.requirements: Required value: when ` +
				`spec.resourceAttributes.fieldSelector is specified, requirements or rawSelector is required]`,
		},
		"both kinds of attributes": {
			authorizationv1.SubjectAccessReviewSpec{User: "u", ResourceAttributes: &authorizationv1.ResourceAttributes{},
				NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: "/x"}},
			`.authorization.k8s.io "" is invalid: spec: Invalid value: {"path":"/x"}: exactly one of ` +
				`nonResourceAttributes or resourceAttributes must be specified`,
		},
		"nobody, nothing": {
			authorizationv1.SubjectAccessReviewSpec{},
			`.authorization.k8s.io "" is invalid: [spec: Invalid value: null: exactly ` +
				`one of nonResourceAttributes or resourceAttributes must be specified, ` +
				`spec.user: Invalid value: "": at least one of user or group must be specified]`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			valid := func(context.Context, runtime.Object) error { return nil }
			_, err := (&Access{}).subject(t.Context(), nil, &authorizationv1.SubjectAccessReview{Spec: tc.spec}, valid, nil)
			if err == nil || err.Error() != tc.want {
				t.Errorf("got  %v\nwant %s", err, tc.want)
			}
		})
	}
}
