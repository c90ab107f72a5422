// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"maps"
	"reflect"
	"slices"
)

// comparison finds the differences between two objects of a kind: the fields that were added or
// changed, and the fields that were removed.
type comparison struct {
	changed, removed builder

	odd bool // structured-merge-diff has to compare the objects instead
}

// of compares two objects of the kind that root describes. It returns false if
// structured-merge-diff has to compare them. The sets are valid until reset.
func (c *comparison) of(root *node, old, obj any) (changed, removed set, ok bool) {
	l, r := reflect.ValueOf(old), reflect.ValueOf(obj)
	if l.Type() != r.Type() || l.Kind() != reflect.Pointer || l.Type().Elem() != root.goer || l.IsNil() || r.IsNil() {
		return nil, nil, false
	}
	c.structures(root, operand{l.Elem(), present}, operand{r.Elem(), present})
	return c.changed.end(0), c.removed.end(0), !c.odd
}

// reset prepares the comparison for the next two objects.
func (c *comparison) reset() {
	c.changed.reset()
	c.removed.reset()
	c.odd = false
}

// outcome says how the value at a path differs between the two objects, apart from the paths below
// it.
type outcome uint8

const (
	same outcome = iota
	changed
	removed
)

// step compares the values at one path element of a struct, map or list, and adds the path to
// changed or removed if they differ.
func (c *comparison) step(element string, n *node, l, r operand) {
	here, gone := c.changed.begin(), c.removed.begin()
	v := c.compare(n, l, r)
	c.changed.close(element, here, v == changed)
	c.removed.close(element, gone, v == removed)
}

// compare compares the values of a field in two objects. At least one of the objects has the field.
func (c *comparison) compare(n *node, l, r operand) outcome {
	var filled bool
	switch n.shape {
	case structure:
		filled = c.structures(n, l, r)
	case dictionary:
		filled = c.dictionaries(n, l, r)
	case list:
		filled = c.lists(n, l, r)
	}
	switch {
	case l.state == absent:
		return changed
	case r.state == absent:
		return removed
	case filled:
	case l.state != r.state: // one is null, the other empty
		return changed
	case n.shape == leaf && l.state == present && !n.same(l.v, r.v):
		return changed
	}
	return same
}

// structures compares structs field by field. filled reports whether at least one field is present
// in one of them.
func (c *comparison) structures(n *node, l, r operand) (filled bool) {
	for i := range n.fields {
		f := &n.fields[i]
		var x, y operand
		if l.state == present {
			x = f.of(l.v)
		}
		if r.state == present {
			y = f.of(r.v)
		}
		if x.state == absent && y.state == absent {
			continue
		}
		filled = true
		c.step(f.element, f.node, x, y)
	}
	return filled
}

func (c *comparison) dictionaries(n *node, l, r operand) (filled bool) {
	if n.texts {
		return c.texts(l, r)
	}
	names := make([]string, 0, 16)
	if l.state == present {
		for it := l.v.MapRange(); it.Next(); {
			names = append(names, it.Key().String())
		}
	}
	if r.state == present {
		for it := r.v.MapRange(); it.Next(); {
			if l.state != present || !l.v.MapIndex(it.Key()).IsValid() {
				names = append(names, it.Key().String())
			}
		}
	}
	slices.Sort(names)
	for _, name := range names {
		key := reflect.ValueOf(name).Convert(n.goer.Key())
		c.step(c.nameOf(name), n.below, n.entryOf(l, key), n.entryOf(r, key))
	}
	return len(names) > 0
}

// texts compares maps of strings, such as labels, without reflection.
func (c *comparison) texts(l, r operand) (filled bool) {
	var old, now map[string]string
	if l.state == present {
		old, _ = l.v.Interface().(map[string]string)
	}
	if r.state == present {
		now, _ = r.v.Interface().(map[string]string)
	}
	if len(old) > 0 && maps.Equal(old, now) {
		return true
	}
	names := slices.AppendSeq(make([]string, 0, len(old)+len(now)), maps.Keys(now))
	for name := range old {
		if _, both := now[name]; !both {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		x, before := old[name]
		y, after := now[name]
		switch {
		case !after:
			c.removed.close(c.nameOf(name), c.removed.begin(), true)
		case !before || x != y:
			c.changed.close(c.nameOf(name), c.changed.begin(), true)
		}
	}
	return len(names) > 0
}

// nameOf returns the path element for a key of a map.
func (c *comparison) nameOf(name string) string {
	for i := range len(name) {
		if name[i] < ' ' || name[i] > '~' {
			c.odd = true
		}
	}
	return "f:" + name
}

// entryOf returns the value of a map for a key. It is absent if the map does not have the key, and
// null if the value is a nil slice or map.
func (n *node) entryOf(m operand, key reflect.Value) operand {
	if m.state != present {
		return operand{}
	}
	v := m.v.MapIndex(key)
	if !v.IsValid() {
		return operand{}
	}
	return n.below.operand(v)
}

// operand returns v, a value in a map or an element of a list, as an operand. It is null if v is a
// nil map or slice.
func (n *node) operand(v reflect.Value) operand {
	if k := v.Kind(); !n.opaque && (k == reflect.Map || k == reflect.Slice) && v.IsNil() {
		return operand{v, null}
	}
	return operand{v, present}
}

// lists compares the elements of two lists that have the same keys.
func (c *comparison) lists(n *node, l, r operand) (filled bool) {
	if c.sameLists(n, l, r) {
		return true
	}
	old, now := c.elements(n, l), c.elements(n, r)
	for len(old) > 0 || len(now) > 0 {
		var x, y operand
		var element string
		order := 0
		switch {
		case len(old) == 0:
			order = 1
		case len(now) == 0:
			order = -1
		default:
			order = compareElements(old[0].name, now[0].name)
		}
		if order <= 0 {
			element, x, old = old[0].name, old[0].operand, old[1:]
		}
		if order >= 0 {
			element, y, now = now[0].name, now[0].operand, now[1:]
		}
		filled = true
		c.step(element, n.below, x, y)
	}
	return filled
}

// sameLists reports whether two non-empty lists have equal elements in the same order. It is faster
// than lists because it does not compute path elements.
func (c *comparison) sameLists(n *node, l, r operand) bool {
	if l.state != present || r.state != present || l.v.Len() != r.v.Len() || l.v.Len() == 0 {
		return false
	}
	here, gone := c.changed.begin(), c.removed.begin()
	for i := range l.v.Len() {
		x, y := n.below.operand(l.v.Index(i)), n.below.operand(r.v.Index(i))
		if c.compare(n.below, x, y) != same || c.changed.begin() > here || c.removed.begin() > gone {
			c.changed.drop(here)
			c.removed.drop(gone)
			return false
		}
	}
	return true
}

// element is an element of a list. name is the element's part of field paths.
type element struct {
	name string
	operand
}

// elements returns the elements of a list, sorted by name.
func (c *comparison) elements(n *node, l operand) []element {
	if l.state != present || l.v.Len() == 0 {
		return nil
	}
	out := make([]element, l.v.Len())
	sorted := true
	for i := range out {
		v := l.v.Index(i)
		name, ok := n.elementOf(v)
		if !ok {
			c.odd = true
			return nil
		}
		out[i] = element{name, n.below.operand(v)}
		sorted = sorted && (i == 0 || compareElements(out[i-1].name, name) < 0)
	}
	if sorted {
		return out
	}
	slices.SortFunc(out, func(a, b element) int { return compareElements(a.name, b.name) })
	for i := 1; i < len(out); i++ {
		c.odd = c.odd || compareElements(out[i-1].name, out[i].name) == 0
	}
	return out
}
