// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"strings"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
)

// matcher is a predicate made ready: what a selector says about the name and the
// namespace is found once, and empty selectors cost nothing.
type matcher struct {
	namespace string
	name      string
	labels    labels.Selector // nil: everything
	fields    fields.Selector // nil: everything
}

func newMatcher(p Predicate) matcher {
	m := matcher{namespace: p.Namespace, name: p.Name}
	if p.Labels != nil && !p.Labels.Empty() {
		m.labels = p.Labels
	}
	if p.Fields != nil && !p.Fields.Empty() {
		m.fields = p.Fields
		if ns, ok := p.Fields.RequiresExactMatch("metadata.namespace"); ok && m.namespace == "" {
			m.namespace = ns
		}
		if name, ok := p.Fields.RequiresExactMatch("metadata.name"); ok && m.name == "" {
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

// key is the only key that can match, if the matcher says so much. Of a
// cluster-wide resource the name is the key.
func (m *matcher) key() (string, bool) {
	return m.namespace + "/" + m.name, m.namespace != "" && m.name != ""
}

func (m *matcher) matches(r *Record) bool {
	return (m.namespace == "" || strings.HasPrefix(r.Key, m.namespace) && len(r.Key) > len(m.namespace) && r.Key[len(m.namespace)] == '/') &&
		(m.name == "" || nameOf(r.Key) == m.name) &&
		(m.labels == nil || m.labels.Matches(r.Labels)) &&
		(m.fields == nil || m.fields.Matches(r.Attrs.Fields))
}

// filter appends those of records that match.
func (m *matcher) filter(dst, records []*Record) []*Record {
	if !m.selective() {
		return append(dst, records...) // found by their keys
	}
	for _, r := range records {
		if m.matches(r) {
			dst = append(dst, r)
		}
	}
	return dst
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
