// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
)

// matcher is a predicate made ready: what a selector says about the name and the
// namespace is found once, and empty selectors cost nothing.
type matcher struct {
	listed    string // the namespace that is asked for by itself, and not by a selector
	namespace string
	name      string
	labels    labels.Selector // nil: everything
	fields    fields.Selector // nil: everything
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

// selective reports whether the matcher looks at objects, and not only at a
// stretch of keys.
func (m *matcher) selective() bool { return m.name != "" || m.labels != nil || m.fields != nil }

// prefix is what all matching keys begin with.
func (m *matcher) prefix() string {
	if m.namespace == "" {
		return ""
	}
	return m.namespace + "/"
}

// root is what the keys in continue tokens are below: Kubernetes finds a namespace in a
// selector among all of them, and a list may be continued at a server of either kind.
func (m *matcher) root() string {
	if m.listed == "" {
		return ""
	}
	return m.listed + "/"
}

// key is the only key that can match, if the matcher says so much. Of a
// cluster-wide resource the name is the key.
func (m *matcher) key() (string, bool) {
	return m.namespace + "/" + m.name, m.namespace != "" && m.name != ""
}

// only reports whether r, which matches, is the one record that can: that of a name
// where there are no namespaces.
func (m *matcher) only(r *Record) bool { return m.name != "" && r.Key == m.name }

// matches reports whether r is to be seen. Whether one that cannot be decoded would be,
// nobody knows: its reader gets an error.
func (m *matcher) matches(r *Record) bool {
	return (m.namespace == "" || strings.HasPrefix(r.Key, m.namespace) && len(r.Key) > len(m.namespace) && r.Key[len(m.namespace)] == '/') &&
		(m.name == "" || nameOf(r.Key) == m.name) &&
		(r.broken || (m.labels == nil || m.labels.Matches(r.Labels)) &&
			(m.fields == nil || m.fields.Matches(selectable{r})))
}

// selectable is a record's fields as selectors see them: the key has the name and
// the namespace.
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

// filter appends those of records that match, which have been found by the prefix
// of their keys. seen has what is known of sets of labels, which many records share.
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

// selects reports whether a record of the matcher's prefix matches.
func (m *matcher) selects(r *Record, seen labelMatches) bool {
	return (m.name == "" || nameOf(r.Key) == m.name) && (r.broken || (m.labels == nil || seen.matches(m.labels, r.Labels)) &&
		(m.fields == nil || m.fields.Matches(selectable{r})))
}

// labelMatches says which sets of labels one selector matches, by the sets' identity:
// they are kept once, and a list meets the same few again and again.
type labelMatches map[uintptr]bool

func (v labelMatches) matches(selector labels.Selector, set labels.Set) bool {
	id := reflect.ValueOf(set).Pointer()
	verdict, known := v[id]
	if !known {
		verdict = selector.Matches(set)
		v[id] = verdict
	}
	return verdict
}

// indexed returns the first of the index fields that the matcher fixes.
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
