// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package admissionregistration declares what a cluster's owner adds to
// admission: webhooks and policies.
package admissionregistration

import (
	"keelson.dev/apiserver/registry"
	"keelson.dev/apiserver/resource"
)

// Rows returns the rows of the group, in discovery order.
func Rows() []*resource.Row {
	j := newJudge()
	return []*resource.Row{
		storedAsBeta(mutatingAdmissionPolicyRow(j)),
		storedAsBeta(mutatingAdmissionPolicyBindingRow()),
		mutatingWebhookConfigurationRow(j),
		validatingAdmissionPolicyRow(j),
		validatingAdmissionPolicyBindingRow(),
		validatingWebhookConfigurationRow(j),
	}
}

// storedAsBeta stores a kind under the name of its beta version, as Kubernetes
// does until the release before can read the final one. The two versions have
// the same fields; both are read.
func storedAsBeta(row *resource.Row) *resource.Row {
	stored := *row
	stored.Version = "v1beta1"
	stored.Versions = []resource.Version{{Name: "v1beta1"}, {Name: "v1", New: row.New}}
	row.Codec, row.StoredAs = registry.Codec(&stored), stored.GroupVersionKind()
	return row
}
