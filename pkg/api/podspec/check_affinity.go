// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"fmt"

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
		c.checkPodTerms(p.RequiredDuringSchedulingIgnoredDuringExecution, p.PreferredDuringSchedulingIgnoredDuringExecution, path.Child("podAffinity"))
	}
	if p := a.PodAntiAffinity; p != nil {
		c.checkPodTerms(p.RequiredDuringSchedulingIgnoredDuringExecution, p.PreferredDuringSchedulingIgnoredDuringExecution, path.Child("podAntiAffinity"))
	}
}

func (c *check) checkWeight(weight int32, path *field.Path) {
	if weight <= 0 || weight > maxWeight {
		c.Invalid(path, weight, weightText)
	}
}

// ValidateNodeSelector judges terms that select nodes.
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

// checkNodeTerm judges values only where a wrong one would keep pods from nodes.
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

func (c *check) checkPodTerms(must []corev1.PodAffinityTerm, should []corev1.WeightedPodAffinityTerm, path *field.Path) {
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

// checkLabelKeys judges keys that are merged into a selector. That the selector
// already has one shows by the key being there once more after the merge.
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
		report.OneOf(&c.Report, at.Child("whenUnsatisfiable"), s.WhenUnsatisfiable, corev1.DoNotSchedule, corev1.ScheduleAnyway)
		for _, other := range constraints[i+1:] {
			if other.TopologyKey == s.TopologyKey && other.WhenUnsatisfiable == s.WhenUnsatisfiable {
				c.Duplicate(at.Child("{topologyKey, whenUnsatisfiable}"), fmt.Sprintf("{%v, %v}", s.TopologyKey, s.WhenUnsatisfiable))
				break
			}
		}
		if n := s.MinDomains; n != nil {
			c.Positive(at.Child("minDomains"), int64(*n))
			if s.WhenUnsatisfiable != corev1.DoNotSchedule {
				c.Invalid(at.Child("minDomains"), n, fmt.Sprintf("can only use minDomains if whenUnsatisfiable=%s, not %s", corev1.DoNotSchedule, s.WhenUnsatisfiable))
			}
		}
		if p := s.NodeAffinityPolicy; p != nil {
			report.OneOf(&c.Report, at.Child("nodeAffinityPolicy"), *p, corev1.NodeInclusionPolicyHonor, corev1.NodeInclusionPolicyIgnore)
		}
		if p := s.NodeTaintsPolicy; p != nil {
			report.OneOf(&c.Report, at.Child("nodeTaintsPolicy"), *p, corev1.NodeInclusionPolicyHonor, corev1.NodeInclusionPolicyIgnore)
		}
		c.checkLabelKeys(s.MatchLabelKeys, nil, s.LabelSelector, at)
		c.Selector(at.Child("labelSelector"), s.LabelSelector)
	}
}
