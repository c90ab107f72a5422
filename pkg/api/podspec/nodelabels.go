// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"keelson.dev/apiserver/naming"
	"keelson.dev/keelson/pkg/api/report"
)

// OldNodeLabel answers what is to be used instead of a label of nodes that is
// out of date.
func OldNodeLabel(key string) (string, bool) {
	message := ""
	switch key {
	case "beta.kubernetes.io/arch":
		message = `deprecated since v1.14; use "kubernetes.io/arch" instead`
	case "beta.kubernetes.io/os":
		message = `deprecated since v1.14; use "kubernetes.io/os" instead`
	case "failure-domain.beta.kubernetes.io/region":
		message = `deprecated since v1.17; use "topology.kubernetes.io/region" instead`
	case "failure-domain.beta.kubernetes.io/zone":
		message = `deprecated since v1.17; use "topology.kubernetes.io/zone" instead`
	case "beta.kubernetes.io/instance-type":
		message = `deprecated since v1.17; use "node.kubernetes.io/instance-type" instead`
	case "app.kubernetes.io/created-by":
		message = `deprecated since v1.9`
	case "scheduler.alpha.kubernetes.io/preferAvoidPods":
		message = `deprecated since v1.22; use Taints and Tolerations instead`
	case "node-role.kubernetes.io/master":
		message = `use "node-role.kubernetes.io/control-plane" instead`
	}
	return message, message != ""
}

// WarnOfNodeTerm tells of old labels in a term that selects nodes, and with
// values of what cannot be a label's value.
func WarnOfNodeTerm(term *corev1.NodeSelectorTerm, values bool, path *field.Path) []string {
	var c cautions
	for i, e := range term.MatchExpressions {
		at := path.Child("matchExpressions").Index(i)
		if message, old := OldNodeLabel(e.Key); old {
			c.say(at.Child("key"), "%s is %s", e.Key, message)
		}
		for j, value := range e.Values {
			if !values {
				break
			}
			for _, reason := range naming.IsValidLabelValue(value) {
				c.say(at.Child("values").Index(j), "%s is invalid, %s", value, reason)
			}
		}
	}
	return c
}

// WarnOfNodeSelector tells of old labels in a selector of nodes.
func WarnOfNodeSelector(selector *metav1.LabelSelector, path *field.Path) []string {
	if selector == nil {
		return nil
	}
	var c cautions
	for i, e := range selector.MatchExpressions {
		if message, old := OldNodeLabel(e.Key); old {
			c.say(path.Child("matchExpressions").Index(i).Child("key"), "%s is %s", e.Key, message)
		}
	}
	for _, key := range report.Keys(selector.MatchLabels) {
		if message, old := OldNodeLabel(key); old {
			c.say(path.Child("matchLabels").Child(key), "%s", message)
		}
	}
	return c
}
