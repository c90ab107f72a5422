// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
)

// matcher is a prepared Predicate. newMatcher takes the required name and namespace from the field
// selector, and drops selectors that select everything, so that these cost nothing.
type matcher struct {
	listed    string          // namespace of the predicate, not of its field selector
	namespace string          // required namespace; empty for all
	name      string          // required name; empty for all
	labels    labels.Selector // nil if it selects all labels
	fields    fields.Selector // nil if it selects all fields
}

func newMatcher(p Predicate) matcher {
	m := matcher{listed: p.Namespace, namespace: p.Namespace, name: p.Name}
	if p.Labels != nil && !p.Labels.Empty() {
		m.labels = p.Labels
	}
	if p.Fields != nil && !p.Fields.Empty() {
		m.fields = p.Fields
		if ns, ok := p.Fields.RequiresExactMatch(namespaceField); ok && m.namespace == "" {
			m.namespace = ns
		}
		if name, ok := p.Fields.RequiresExactMatch(nameField); ok && m.name == "" {
			m.name = name
		}
	}
	return m
}

// selective reports whether some records with the matcher's prefix may not match.
func (m *matcher) selective() bool { return m.name != "" || m.labels != nil || m.fields != nil }

// prefix returns the common prefix of all matching keys.
func (m *matcher) prefix() string {
	if m.namespace == "" {
		return ""
	}
	return m.namespace + "/"
}

// root returns the prefix that the keys in continue tokens are relative to. As in Kubernetes, it
// contains the namespace of the request, but not one that only the field selector requires. So a
// client may begin a list at a Kubernetes server and continue it here, or the reverse.
func (m *matcher) root() string {
	if m.listed == "" {
		return ""
	}
	return m.listed + "/"
}

// key returns the only key that can match if both the namespace and the name are required.
// Otherwise, and for cluster-wide resources, it returns false.
func (m *matcher) key() (string, bool) {
	return m.namespace + "/" + m.name, m.namespace != "" && m.name != ""
}

// isOnlyMatch reports whether r, which matches, is the only record that can match: the name is
// required, and the resource is cluster-wide.
func (m *matcher) isOnlyMatch(r *Record) bool { return m.name != "" && r.Key == m.name }

// matches reports whether r matches. A record that cannot be decoded matches if its namespace and
// name do, so that its readers get an error.
func (m *matcher) matches(r *Record) bool {
	return (m.namespace == "" || strings.HasPrefix(r.Key, m.namespace) && len(r.Key) > len(m.namespace) &&
		r.Key[len(m.namespace)] == '/') &&
		(m.name == "" || nameOf(r.Key) == m.name) &&
		(r.broken || (m.labels == nil || m.labels.Matches(r.Labels)) &&
			(m.fields == nil || m.fields.Matches(selectable{r})))
}

// selectable implements fields.Fields for a record. It takes the name and the namespace from the
// key.
type selectable struct{ *Record }

// Get implements fields.Fields.
func (r selectable) Get(field string) string {
	switch field {
	case nameField:
		return nameOf(r.Key)
	case namespaceField:
		return namespaceOf(r.Key)
	default:
		return r.Attrs.Fields[field]
	}
}

// Has implements fields.Fields.
func (r selectable) Has(field string) bool {
	_, ok := r.Attrs.Fields[field]
	return ok || field == nameField || field == namespaceField && namespaceOf(r.Key) != ""
}

// filter appends the matching records to dst. All records must have the matcher's prefix. The
// argument seen caches the results of the label selector during one list.
func (m *matcher) filter(dst, records []*Record, seen labelMatches) []*Record {
	if !m.selective() {
		return append(dst, records...)
	}
	for _, r := range records {
		if m.selects(r, seen) {
			dst = append(dst, r)
		}
	}
	return dst
}

// selects reports whether the record r matches. r must have the matcher's prefix.
func (m *matcher) selects(r *Record, seen labelMatches) bool {
	return (m.name == "" || nameOf(r.Key) == m.name) &&
		(r.broken || (m.labels == nil || seen.matches(m.labels, r.Labels)) &&
			(m.fields == nil || m.fields.Matches(selectable{r})))
}

// labelMatches caches whether a selector matches a label set, by the address of the set. Many
// records share the same few sets (see attrSets).
type labelMatches map[uintptr]bool

func (v labelMatches) matches(selector labels.Selector, set labels.Set) bool {
	id := reflect.ValueOf(set).Pointer()
	match, known := v[id]
	if !known {
		match = selector.Matches(set)
		v[id] = match
	}
	return match
}

// indexed returns the first index field for which the matcher requires a value.
func (m *matcher) indexed(indexFields []string) (field, value string, ok bool) {
	if m.fields == nil {
		return "", "", false
	}
	for _, f := range indexFields {
		if v, ok := m.fields.RequiresExactMatch(f); ok {
			return f, v, true
		}
	}
	return "", "", false
}
