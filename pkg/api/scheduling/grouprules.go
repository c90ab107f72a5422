// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduling

import (
	"fmt"
	"strings"

	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"keelson.dev/apiserver/equal"
	"keelson.dev/keelson/pkg/api/report"
)

// check validates workloads and pod groups. As in Kubernetes, an update is only validated for what
// it changes: fields that cannot change are validated only on create.
type check struct{ report.Report }

// fixed reports a field that an update changes although it cannot change.
func fixed[T any](c *check, path *field.Path, value, old T) {
	if !equal.Values(value, old) {
		c.Invalid(path, nil, "field is immutable")
	}
}

// forbidChange reports a changed field of a feature that is off. Only an object that another server
// has stored can have the field.
func (c *check) forbidChange(path *field.Path, set, same bool) {
	if set && !same {
		c.Forbidden(path, "")
	}
}

// member is a field of a union.
type member struct {
	name string
	set  bool
}

// oneOf requires that exactly one member of a union is set.
func (c *check) oneOf(path *field.Path, members ...member) {
	var all, set []string
	for _, m := range members {
		all = append(all, "`"+m.name+"`")
		if m.set {
			set = append(set, m.name)
		}
	}
	switch len(set) {
	case 0:
		c.Invalid(path, "", "must specify one of: "+strings.Join(all, ", "))
	case 1:
	default:
		c.Invalid(path, fmt.Sprintf("{%s}", strings.Join(set, ", ")),
			"must specify exactly one of: "+strings.Join(all, ", "))
	}
}

// segmentName requires a name that fits into a segment of a URL path.
func (c *check) segmentName(path *field.Path, name string) {
	if name == "" {
		c.Required(path, "")
		return
	}
	c.Each(path, name, content.IsPathSegmentName(name))
}

func (c *check) checkPolicy(path *field.Path, p *schedulingv1beta1.PodGroupSchedulingPolicy) {
	c.oneOf(path, member{"basic", p.Basic != nil}, member{"gang", p.Gang != nil})
	if p.Gang != nil {
		c.checkGang(path.Child("gang", "minCount"), p.Gang.MinCount)
	}
}

func (c *check) checkGang(path *field.Path, count int32) {
	switch {
	case count == 0:
		c.Required(path, "")
	case count < 1:
		c.Invalid(path, count, content.MinError(1))
	}
}

// checkPolicyChange validates an update of a policy. An update may change only the size of a gang.
func (c *check) checkPolicyChange(path *field.Path, p, old *schedulingv1beta1.PodGroupSchedulingPolicy) {
	if (p.Basic == nil) != (old.Basic == nil) || (p.Gang == nil) != (old.Gang == nil) {
		c.oneOf(path, member{"basic", p.Basic != nil}, member{"gang", p.Gang != nil})
	}
	fixed(c, path.Child("basic"), p.Basic, old.Basic)
	at := path.Child("gang")
	switch {
	case p.Gang == nil && old.Gang == nil:
	case old.Gang == nil:
		c.Invalid(at, nil, "field cannot be set once created")
	case p.Gang == nil:
		c.Invalid(at, nil, "field cannot be cleared once set")
	case p.Gang.MinCount != old.Gang.MinCount:
		c.checkGang(at.Child("minCount"), p.Gang.MinCount)
	}
}

func (c *check) checkDisruption(path *field.Path, m *schedulingv1beta1.DisruptionMode) {
	c.oneOf(path, member{"single", m.Single != nil}, member{"all", m.All != nil})
}

func (c *check) checkPriority(path *field.Path, class string, priority *int32) {
	if class != "" {
		c.Subdomain(path.Child("priorityClassName"), class)
	}
	if priority != nil && *priority > highestForUsers {
		c.Invalid(path.Child("priority"), *priority, content.MaxError(highestForUsers))
	}
}
