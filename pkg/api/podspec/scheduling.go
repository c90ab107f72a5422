// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"keelson.dev/apiserver/naming"
	"keelson.dev/keelson/pkg/api/report"
)

const (
	required   = "requiredDuringSchedulingIgnoredDuringExecution"
	preferred  = "preferredDuringSchedulingIgnoredDuringExecution"
	weightText = "must be in the range 1-100"
	maxWeight  = 100
)

func (c *check) checkAffinity(path *field.Path) {
	a := c.spec.Affinity
	if a == nil {
		return
	}
	if n := a.NodeAffinity; n != nil {
		at := path.Child("nodeAffinity")
		if n.RequiredDuringSchedulingIgnoredDuringExecution != nil {
			c.Add(ValidateNodeSelector(n.RequiredDuringSchedulingIgnoredDuringExecution, at.Child(required))...)
		}
		for i := range n.PreferredDuringSchedulingIgnoredDuringExecution {
			term, here := &n.PreferredDuringSchedulingIgnoredDuringExecution[i], at.Child(preferred).Index(i)
			c.checkWeight(term.Weight, here.Child("weight"))
			checkNodeTerm(&c.Report, &term.Preference, false, here.Child("preference"))
		}
	}
	if p := a.PodAffinity; p != nil {
		c.checkPodTerms(p.RequiredDuringSchedulingIgnoredDuringExecution,
			p.PreferredDuringSchedulingIgnoredDuringExecution, path.Child("podAffinity"))
	}
	if p := a.PodAntiAffinity; p != nil {
		c.checkPodTerms(p.RequiredDuringSchedulingIgnoredDuringExecution,
			p.PreferredDuringSchedulingIgnoredDuringExecution, path.Child("podAntiAffinity"))
	}
}

func (c *check) checkWeight(weight int32, path *field.Path) {
	if weight <= 0 || weight > maxWeight {
		c.Invalid(path, weight, weightText)
	}
}

// ValidateNodeSelector validates the terms of a node selector.
func ValidateNodeSelector(s *corev1.NodeSelector, path *field.Path) field.ErrorList {
	var r report.Report
	at := path.Child("nodeSelectorTerms")
	if len(s.NodeSelectorTerms) == 0 {
		r.Required(at, "must have at least one node selector term")
	}
	for i := range s.NodeSelectorTerms {
		checkNodeTerm(&r, &s.NodeSelectorTerms[i], true, at.Index(i))
	}
	return r.Errors
}

// checkNodeTerm validates a node selector term. It checks label values only if values is true. In
// preferred terms they are not checked, because an invalid value has no effect there.
func checkNodeTerm(r *report.Report, term *corev1.NodeSelectorTerm, values bool, path *field.Path) {
	for i := range term.MatchExpressions {
		checkNodeRequirement(r, &term.MatchExpressions[i], values, path.Child("matchExpressions").Index(i))
	}
	for i := range term.MatchFields {
		checkNodeField(r, &term.MatchFields[i], path.Child("matchFields").Index(i))
	}
}

func checkNodeRequirement(r *report.Report, q *corev1.NodeSelectorRequirement, values bool, at *field.Path) {
	switch q.Operator {
	case corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn:
		if len(q.Values) == 0 {
			r.Required(at.Child("values"), "must be specified when `operator` is 'In' or 'NotIn'")
		}
	case corev1.NodeSelectorOpExists, corev1.NodeSelectorOpDoesNotExist:
		if len(q.Values) > 0 {
			r.Forbidden(at.Child("values"), "may not be specified when `operator` is 'Exists' or 'DoesNotExist'")
		}
	case corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt:
		if len(q.Values) != 1 {
			r.Required(at.Child("values"), "must be specified single value when `operator` is 'Lt' or 'Gt'")
		}
	default:
		r.Invalid(at.Child("operator"), q.Operator, "not a valid selector operator")
	}
	r.LabelName(at.Child("key"), q.Key)
	if !values {
		return
	}
	for i, value := range q.Values {
		r.Each(at.Child("values").Index(i), value, naming.IsValidLabelValue(value))
	}
}

func checkNodeField(r *report.Report, q *corev1.NodeSelectorRequirement, at *field.Path) {
	if q.Operator != corev1.NodeSelectorOpIn && q.Operator != corev1.NodeSelectorOpNotIn {
		r.Invalid(at.Child("operator"), q.Operator, "not a valid selector operator")
	} else if len(q.Values) != 1 {
		r.Required(at.Child("values"), "must be only one value when `operator` is 'In' or 'NotIn' for node field selector")
	}
	if q.Key != metav1.ObjectNameField {
		r.Invalid(at.Child("key"), q.Key, "not a valid field selector key")
		return
	}
	for i, value := range q.Values {
		r.Each(at.Child("values").Index(i), value, naming.NameIsDNSSubdomain(value, false))
	}
}

func (c *check) checkPodTerms(must []corev1.PodAffinityTerm, should []corev1.WeightedPodAffinityTerm,
	path *field.Path) {
	for i := range must {
		c.checkPodTerm(&must[i], path.Child(required).Index(i))
	}
	for i := range should {
		at := path.Child(preferred).Index(i)
		c.checkWeight(should[i].Weight, at.Child("weight"))
		c.checkPodTerm(&should[i].PodAffinityTerm, at.Child("podAffinityTerm"))
	}
}

func (c *check) checkPodTerm(term *corev1.PodAffinityTerm, at *field.Path) {
	c.Selector(at.Child("labelSelector"), term.LabelSelector)
	c.Selector(at.Child("namespaceSelector"), term.NamespaceSelector)
	for _, name := range term.Namespaces {
		c.Each(at.Child("namespace"), name, naming.NameIsDNSLabel(name, false))
	}
	c.checkLabelKeys(term.MatchLabelKeys, term.MismatchLabelKeys, term.LabelSelector, at)
	if term.TopologyKey == "" {
		c.Required(at.Child("topologyKey"), "can not be empty")
	}
	c.LabelName(at.Child("topologyKey"), term.TopologyKey)
}

// checkLabelKeys validates the label keys match and mismatch, whose requirements the server has
// already merged into the selector s. If s has two requirements with a key of match, the client has
// set one of them itself, which is an error.
func (c *check) checkLabelKeys(match, mismatch []string, s *metav1.LabelSelector, at *field.Path) {
	for _, list := range []struct {
		name string
		keys []string
	}{{"matchLabelKeys", match}, {"mismatchLabelKeys", mismatch}} {
		if len(list.keys) > 0 && s == nil {
			c.Forbidden(at.Child(list.name), "must not be specified when labelSelector is not set")
			continue
		}
		for i, key := range list.keys {
			c.LabelName(at.Child(list.name).Index(i), key)
		}
	}
	if s != nil {
		index := map[string]int{}
		for i, key := range match {
			index[key] = i
		}
		seen := sets.KeySet(s.MatchLabels)
		for _, expression := range s.MatchExpressions {
			if i, ok := index[expression.Key]; ok && seen.Has(expression.Key) {
				c.Invalid(at.Index(i), expression.Key, "exists in both matchLabelKeys and labelSelector")
			}
			seen.Insert(expression.Key)
		}
	}
	others := sets.New(mismatch...)
	for i, key := range match {
		if others.Has(key) {
			c.Invalid(at.Child("matchLabelKeys").Index(i), key, "exists in both matchLabelKeys and mismatchLabelKeys")
		}
	}
}

func (c *check) checkSpread(path *field.Path) {
	constraints := c.spec.TopologySpreadConstraints
	for i := range constraints {
		s, at := &constraints[i], path.Index(i)
		c.Positive(at.Child("maxSkew"), int64(s.MaxSkew))
		if s.TopologyKey == "" {
			c.Required(at.Child("topologyKey"), "can not be empty")
		}
		report.OneOf(&c.Report, at.Child("whenUnsatisfiable"), s.WhenUnsatisfiable, corev1.DoNotSchedule,
			corev1.ScheduleAnyway)
		for _, other := range constraints[i+1:] {
			if other.TopologyKey == s.TopologyKey && other.WhenUnsatisfiable == s.WhenUnsatisfiable {
				c.Duplicate(at.Child("{topologyKey, whenUnsatisfiable}"),
					fmt.Sprintf("{%v, %v}", s.TopologyKey, s.WhenUnsatisfiable))
				break
			}
		}
		if n := s.MinDomains; n != nil {
			c.Positive(at.Child("minDomains"), int64(*n))
			if s.WhenUnsatisfiable != corev1.DoNotSchedule {
				c.Invalid(at.Child("minDomains"), n,
					fmt.Sprintf("can only use minDomains if whenUnsatisfiable=%s, not %s", corev1.DoNotSchedule, s.WhenUnsatisfiable))
			}
		}
		if p := s.NodeAffinityPolicy; p != nil {
			report.OneOf(&c.Report, at.Child("nodeAffinityPolicy"), *p, corev1.NodeInclusionPolicyHonor,
				corev1.NodeInclusionPolicyIgnore)
		}
		if p := s.NodeTaintsPolicy; p != nil {
			report.OneOf(&c.Report, at.Child("nodeTaintsPolicy"), *p, corev1.NodeInclusionPolicyHonor,
				corev1.NodeInclusionPolicyIgnore)
		}
		c.checkLabelKeys(s.MatchLabelKeys, nil, s.LabelSelector, at)
		c.Selector(at.Child("labelSelector"), s.LabelSelector)
	}
}

// ValidateTolerations validates tolerations.
func ValidateTolerations(tolerations []corev1.Toleration, path *field.Path) field.ErrorList {
	var r report.Report
	for i := range tolerations {
		t, at := &tolerations[i], path.Index(i)
		if t.Key != "" {
			r.LabelName(at.Child("key"), t.Key)
		} else if t.Operator != corev1.TolerationOpExists {
			r.Invalid(at.Child("operator"), t.Operator,
				"operator must be Exists when `key` is empty, which means \"match all values and all keys\"")
		}
		if t.TolerationSeconds != nil && t.Effect != corev1.TaintEffectNoExecute {
			r.Invalid(at.Child("effect"), t.Effect, "effect must be 'NoExecute' when `tolerationSeconds` is set")
		}
		checkTolerationValue(&r, t, at.Child("operator"))
		if t.Effect != "" {
			ValidateTaintEffect(&r, t.Effect, at.Child("effect"))
		}
	}
	return r.Errors
}

func checkTolerationValue(r *report.Report, t *corev1.Toleration, at *field.Path) {
	switch t.Operator {
	case corev1.TolerationOpEqual, "":
		if reasons := naming.IsValidLabelValue(t.Value); len(reasons) > 0 {
			r.Invalid(at, t.Value, strings.Join(reasons, ";"))
		}
	case corev1.TolerationOpExists:
		if t.Value != "" {
			r.Invalid(at, t.Value, "value must be empty when `operator` is 'Exists'")
		}
	case corev1.TolerationOpLt, corev1.TolerationOpGt:
		// As in Kubernetes, the message lists Lt and Gt as supported, although their feature gate
		// is off by default.
		r.Add(field.NotSupported(at, t.Operator, []corev1.TolerationOperator{
			corev1.TolerationOpEqual, corev1.TolerationOpExists, corev1.TolerationOpLt, corev1.TolerationOpGt,
		}))
	default:
		report.OneOf(r, at, t.Operator, corev1.TolerationOpEqual, corev1.TolerationOpExists)
	}
}

// ValidateTaintEffect validates the effect of a taint.
func ValidateTaintEffect(r *report.Report, effect corev1.TaintEffect, path *field.Path) {
	report.OneOf(r, path, effect, corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule,
		corev1.TaintEffectNoExecute)
}

// MergeLabelKeys merges the matchLabelKeys and mismatchLabelKeys of a new pod's affinity terms and
// spread constraints into their selectors. For each key, it adds a requirement with the value that
// the pod has for this label.
func MergeLabelKeys(spec *corev1.PodSpec, labels map[string]string) {
	if a := spec.Affinity; a != nil {
		if a.PodAffinity != nil {
			mergeTerms(a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution,
				a.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution, labels)
		}
		if a.PodAntiAffinity != nil {
			mergeTerms(a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution,
				a.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution, labels)
		}
	}
	for i := range spec.TopologySpreadConstraints {
		c := &spec.TopologySpreadConstraints[i]
		require(c.LabelSelector, c.MatchLabelKeys, metav1.LabelSelectorOpIn, labels)
	}
}

func mergeTerms(required []corev1.PodAffinityTerm, preferred []corev1.WeightedPodAffinityTerm,
	labels map[string]string) {
	for i := range preferred {
		mergeTerm(&preferred[i].PodAffinityTerm, labels)
	}
	for i := range required {
		mergeTerm(&required[i], labels)
	}
}

func mergeTerm(t *corev1.PodAffinityTerm, labels map[string]string) {
	require(t.LabelSelector, t.MatchLabelKeys, metav1.LabelSelectorOpIn, labels)
	require(t.LabelSelector, t.MismatchLabelKeys, metav1.LabelSelectorOpNotIn, labels)
}

// require adds a requirement for each of the keys that is in labels. It leaves a nil selector as it
// is, because a nil selector matches nothing.
func require(s *metav1.LabelSelector, keys []string, operator metav1.LabelSelectorOperator, labels map[string]string) {
	if s == nil {
		return
	}
	for _, key := range keys {
		if value, ok := labels[key]; ok {
			s.MatchExpressions = append(s.MatchExpressions,
				metav1.LabelSelectorRequirement{Key: key, Operator: operator, Values: []string{value}})
		}
	}
}

// OldNodeLabel returns the warning for a deprecated node label, and whether the label is
// deprecated. The warning names the label that replaces it, if there is one.
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

// WarnOfNodeTerm warns about deprecated labels in a node selector term. If values is true, it also
// warns about invalid label values.
func WarnOfNodeTerm(term *corev1.NodeSelectorTerm, values bool, path *field.Path) []string {
	var c cautions
	for i, e := range term.MatchExpressions {
		at := path.Child("matchExpressions").Index(i)
		if message, old := OldNodeLabel(e.Key); old {
			c.addf(at.Child("key"), "%s is %s", e.Key, message)
		}
		for j, value := range e.Values {
			if !values {
				break
			}
			for _, reason := range naming.IsValidLabelValue(value) {
				c.addf(at.Child("values").Index(j), "%s is invalid, %s", value, reason)
			}
		}
	}
	return c
}

// WarnOfNodeSelector warns about deprecated labels in a label selector that selects nodes.
func WarnOfNodeSelector(selector *metav1.LabelSelector, path *field.Path) []string {
	if selector == nil {
		return nil
	}
	var c cautions
	for i, e := range selector.MatchExpressions {
		if message, old := OldNodeLabel(e.Key); old {
			c.addf(path.Child("matchExpressions").Index(i).Child("key"), "%s is %s", e.Key, message)
		}
	}
	for _, key := range report.Keys(selector.MatchLabels) {
		if message, old := OldNodeLabel(key); old {
			c.addf(path.Child("matchLabels").Child(key), "%s", message)
		}
	}
	return c
}
