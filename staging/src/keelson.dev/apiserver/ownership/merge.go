// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/structured-merge-diff/v6/schema"
	"sigs.k8s.io/structured-merge-diff/v6/value"
)

// merging merges a configuration into an object. It walks three things in parallel: the document,
// the object (as operands), which it changes, and the configuration decoded into its Go type.
//
// It sets odd, so that structured-merge-diff has to make the merge, if the document has an empty
// list, or null where the schema has no scalar.
type merging struct {
	comparison
	owned     builder // every path of the configuration
	unsure    builder // changed paths whose value may be the old value again once it is stored
	reordered bool    // a list has elements in another order, or more elements
}

// fate says for a path, apart from the paths below it, whether the configuration owns it, whether
// its value changes, and whether the stored value is certain to change.
type fate struct{ owned, changed, certain bool }

// step calls merge for the path that ends with element. It adds the path to owned, changed and
// unsure, depending on the result of merge.
func (m *merging) step(element string, merge func() fate) {
	owned, changed, unsure := m.owned.begin(), m.changed.begin(), m.unsure.begin()
	f := merge()
	m.owned.close(element, owned, f.owned)
	m.changed.close(element, changed, f.changed)
	m.unsure.close(element, unsure, f.changed && !f.certain)
}

// structure merges the fields of a struct. The argument n describes the struct, into is the struct
// in the object, and the argument from is the struct in the decoded configuration.
func (m *merging) structure(n *node, fields map[string]any, into operand, from reflect.Value) {
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		f := n.field(name)
		if f == nil {
			m.odd = m.odd || !n.root || name != "apiVersion" && name != "kind"
			continue
		}
		var l operand
		var dst reflect.Value
		if into.state == present {
			l = f.of(into.v)
			dst = into.v.FieldByIndex(f.index)
		}
		m.step(f.element, func() fate { return m.value(f.node, fields[name], l, dst, from.FieldByIndex(f.index)) })
		if m.odd {
			return
		}
	}
}

// field returns the field with a JSON name, or nil.
func (n *node) field(name string) *field {
	i, ok := slices.BinarySearchFunc(n.fields, name,
		func(f field, name string) int { return strings.Compare(f.element[2:], name) })
	if !ok {
		return nil
	}
	return &n.fields[i]
}

// value merges one value. v is the value in the document, src is the value in the decoded
// configuration, and l is the object's value. dst is the field or element of the object to set; it
// is invalid inside a value that has been copied as a whole.
func (m *merging) value(n *node, v any, l operand, dst, src reflect.Value) fate {
	if n.shape == leaf {
		return m.leaf(n, v, l, dst, src)
	}
	if src.Kind() == reflect.Pointer {
		if src.IsNil() {
			m.odd = true
			return fate{}
		}
		src = src.Elem()
	}
	if l.state != present && dst.IsValid() {
		dst.Set(addressed(dst, src))
		dst = reflect.Value{}
	}
	switch v := v.(type) {
	case map[string]any:
		switch n.shape {
		case structure:
			m.structure(n, v, l, src)
		case dictionary:
			m.dictionary(n, v, l, src)
		default:
			m.odd = true
		}
		empty := len(v) == 0
		return fate{owned: empty, changed: l.state == absent || empty && l.state == null}
	case []any:
		m.odd = m.odd || n.shape != list || len(v) == 0
		if !m.odd {
			m.list(n, v, l, dst, src)
		}
		return fate{changed: l.state == absent}
	}
	m.odd = true
	return fate{}
}

// addressed returns src, or a pointer to src if dst is a pointer.
func addressed(dst, src reflect.Value) reflect.Value {
	if dst.Kind() == reflect.Pointer {
		return src.Addr()
	}
	return src
}

func (m *merging) leaf(n *node, v any, l operand, dst, src reflect.Value) fate {
	if !n.accepts(v) {
		m.odd = true
		return fate{}
	}
	if l.state == present && m.equals(n, l.v, v) || l.state == null && v == nil {
		return fate{owned: true}
	}
	certain := l.state == present && n.replaces(l.v, v)
	if dst.IsValid() {
		dst.Set(src)
	}
	return fate{owned: true, changed: true, certain: certain}
}

// replaces reports whether v, a value in the document that differs from the object's value, still
// differs from it after v has been defaulted, encoded and decoded. That is certain only if both are
// strings or integers and neither is empty or zero: defaults replace zero values, and values of
// other types can be written in several ways.
func (n *node) replaces(have reflect.Value, v any) bool {
	if n.opaque || n.whole || have.IsZero() {
		return false
	}
	switch v := v.(type) {
	case string:
		return have.Kind() == reflect.String && v != ""
	case int64:
		return have.CanInt() && v != 0
	}
	return false
}

// accepts reports whether v is of a type that the schema of the leaf n accepts.
func (n *node) accepts(v any) bool {
	switch v.(type) {
	case nil:
		return !n.whole
	case map[string]any, []any:
		return n.whole && n.check(v)
	case string:
		return n.scalar == schema.String || n.scalar == schema.Untyped
	case bool:
		return n.scalar == schema.Boolean || n.scalar == schema.Untyped
	case int64, float64:
		return n.scalar == schema.Numeric || n.scalar == schema.Untyped
	}
	return false
}

// equals reports whether an object's value equals v, a value of the document.
func (m *merging) equals(n *node, have reflect.Value, v any) bool {
	if !n.opaque && !n.whole {
		switch v := v.(type) {
		case string:
			if have.Kind() == reflect.String {
				return have.String() == v
			}
		case bool:
			return have.Kind() == reflect.Bool && have.Bool() == v
		case int64:
			if have.CanInt() {
				return have.Int() == v
			}
		}
	}
	x, err := value.NewValueReflect(pointer(have))
	if err != nil {
		m.odd = true
		return false
	}
	return value.Equals(x, value.NewValueInterface(v))
}

// dictionary merges the entries of a map. If their values are not leaves, it sets odd.
func (m *merging) dictionary(n *node, entries map[string]any, l operand, src reflect.Value) {
	if n.below.shape != leaf {
		m.odd = true
		return
	}
	for _, name := range slices.Sorted(maps.Keys(entries)) {
		key := reflect.ValueOf(name).Convert(n.goer.Key())
		val := src.MapIndex(key)
		if !val.IsValid() || m.odd {
			m.odd = true
			return
		}
		m.step(m.nameOf(name), func() fate { return m.leaf(n.below, entries[name], n.entryOf(l, key), reflect.Value{}, val) })
		if l.state == present {
			l.v.SetMapIndex(key, val)
		}
	}
}

// list merges the elements of a list with keys, or of a set. interleave determines their order.
func (m *merging) list(n *node, items []any, l operand, dst, src reflect.Value) {
	theirs := m.listed(n, l)
	mine := m.spelled(n, items)
	if m.odd || src.Len() != len(items) {
		m.odd = true
		return
	}
	merged := interleave(theirs, mine)
	fits := sameOrder(merged, len(theirs))
	if !fits && dst.IsValid() {
		whole := reflect.MakeSlice(n.goer, len(merged), len(merged))
		for i, at := range merged {
			if at.theirs >= 0 {
				whole.Index(i).Set(l.v.Index(at.theirs))
			} else {
				whole.Index(i).Set(src.Index(at.mine))
			}
		}
		dst = settable(dst)
		dst.Set(whole)
		l.v = whole
	}
	m.reordered = m.reordered || !fits
	byName := make([]int, len(merged))
	for i := range byName {
		byName[i] = i
	}
	slices.SortFunc(byName, func(a, b int) int { return compareElements(merged[a].name, merged[b].name) })
	for _, i := range byName {
		if at := merged[i]; at.mine >= 0 {
			was := n.item(l, at, i)
			m.step(at.name, func() fate {
				f := m.value(n.below, items[at.mine], was, was.v, src.Index(at.mine))
				f.owned = true
				return f
			})
		}
	}
}

// settable returns dst, or the slice that it points to.
func settable(dst reflect.Value) reflect.Value {
	if dst.Kind() == reflect.Pointer {
		return dst.Elem()
	}
	return dst
}

// item returns the operand for a merged element. It is absent if the object did not have the
// element.
func (n *node) item(l operand, at slot, i int) operand {
	if at.theirs < 0 {
		return operand{}
	}
	return n.below.operand(l.v.Index(i))
}

// listed returns the path element (such as "k:{...}") of each element of the object's list, in the
// list's order.
func (m *merging) listed(n *node, l operand) []string {
	if l.state != present {
		return nil
	}
	names := make([]string, l.v.Len())
	for i := range names {
		var ok bool
		if names[i], ok = n.elementOf(l.v.Index(i)); !ok {
			m.odd = true
		}
	}
	m.odd = m.odd || repeated(names)
	return names
}

// spelled returns the path element (such as "k:{...}") of each element of the configuration's list,
// in the list's order.
func (m *merging) spelled(n *node, items []any) []string {
	names := make([]string, len(items))
	for i, item := range items {
		var ok bool
		if names[i], ok = n.elementIn(item); !ok {
			m.odd = true
			return nil
		}
	}
	m.odd = m.odd || repeated(names)
	return names
}

// repeated reports whether two of the names are equal.
func repeated(names []string) bool {
	if len(names) < 2 {
		return false
	}
	sorted := slices.Clone(names)
	slices.SortFunc(sorted, compareElements)
	return len(slices.CompactFunc(sorted, func(a, b string) bool { return compareElements(a, b) == 0 })) < len(names)
}

// elementIn returns the path element for v, which is an element of a list in the decoded JSON
// document. (The function elementOf does the same for Go values.) It returns false if the package
// does not support such an element.
func (n *node) elementIn(v any) (string, bool) {
	if len(n.keys) == 0 {
		b, ok := appendPlain([]byte("v:"), v)
		return string(b), ok
	}
	fields, ok := v.(map[string]any)
	if !ok {
		return "", false
	}
	b := []byte("k:{")
	for i := range n.keys {
		k := &n.keys[i]
		start := len(b)
		if b[len(b)-1] != '{' {
			b = append(b, ',')
		}
		b = append(b, k.prefix...)
		if v, ok := fields[k.field.element[2:]]; ok {
			if b, ok = appendPlain(b, v); !ok {
				return "", false
			}
		} else if k.fallback != "" {
			b = append(b, k.fallback...)
		} else {
			b = b[:start]
		}
	}
	return string(append(b, '}')), b[len(b)-1] != '{'
}

// appendPlain appends v, a scalar of the document, as JSON. It returns false unless v is a plain
// string, a boolean, or an integer of at most maxDigits digits.
func appendPlain(dst []byte, v any) ([]byte, bool) {
	switch v := v.(type) {
	case string, bool:
		return appendScalar(dst, reflect.ValueOf(v))
	case int64:
		return appendScalar(dst, reflect.ValueOf(v))
	case float64:
		return strconv.AppendInt(dst, int64(v), 10), v == float64(int64(v)) && -1e15 < v && v < 1e15
	}
	return dst, false
}
