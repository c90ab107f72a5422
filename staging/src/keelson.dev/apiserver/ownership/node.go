// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	"sigs.k8s.io/structured-merge-diff/v6/schema"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
	"sigs.k8s.io/structured-merge-diff/v6/value"
)

// errUncompiled means that the package does not support the combination of schema and Go type of a
// kind.
var errUncompiled = errors.New("not compiled")

type shape uint8

const (
	leaf       shape = iota // owned as a whole: a scalar, or an atomic list or map
	structure               // a struct, field by field
	dictionary              // a map, entry by entry
	list                    // a list with keys, or a set: element by element
)

// node describes a value in objects of a kind: its schema and its Go type. It is immutable once
// compiled.
type node struct {
	shape shape
	goer  reflect.Type // the Go type; pointers are removed unless opaque is set
	// opaque reports whether the type has its own method for encoding JSON. Such a value may be
	// null in JSON although it is not nil.
	opaque bool

	// The following fields are for leaves.
	whole  bool                          // the leaf is a list or map that is owned as a whole
	scalar schema.Scalar                 // type that the schema accepts if it is a scalar
	check  func(v any) bool              // for whole: reports whether the schema accepts a value of a document
	same   func(a, b reflect.Value) bool // reports whether two present values are equal

	// The following fields are for other shapes. The comment on each field begins with the shapes
	// that use it.
	root   bool             // structure: the object itself
	texts  bool             // dictionary: a map[string]string
	fields []field          // structure, in order of names
	named  map[string]*node // structure
	below  *node            // dictionary, list
	keys   []key            // list with keys, in order of names
}

// field is a field of a struct.
type field struct {
	element   string // "f:name"
	index     []int
	omitEmpty bool
	omitZero  func(reflect.Value) bool
	node      *node
}

// key is a field that is a part of the key of a list's elements.
type key struct {
	prefix   string // `"name":`
	field    field
	fallback string // the default value as JSON; empty if there is none
}

// at returns the node for values at the given path element below n, or nil if there is none.
func (n *node) at(element string) *node {
	switch {
	case n == nil:
		return nil
	case n.shape == structure:
		return n.named[element[2:]]
	}
	return n.below
}

// Types compiles kinds and caches the results. Kinds share the nodes of types that they have in
// common. It is safe for concurrent use.
type Types struct {
	mu    sync.Mutex
	known map[place]*node
}

// NewTypes returns an empty Types.
func NewTypes() *Types { return &Types{known: make(map[place]*node)} }

// compile returns the root node for objects whose schema is that of v and whose Go type is t.
func (ts *Types) compile(v *typed.TypedValue, t reflect.Type) (*node, error) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	c := compiler{schema: v.Schema(), known: ts.known, fresh: make(map[place]*node)}
	root, err := c.node(v.TypeRef(), t)
	if err != nil {
		return nil, err
	}
	if root.shape != structure {
		return nil, errUncompiled
	}
	maps.Copy(ts.known, c.fresh)
	// Both objects of a comparison have the same kind and apiVersion, so these need not be
	// compared.
	top := *root
	top.root = true
	top.fields = slices.DeleteFunc(slices.Clone(root.fields), func(f field) bool {
		return f.element == "f:apiVersion" || f.element == "f:kind"
	})
	return &top, nil
}

type compiler struct {
	schema *schema.Schema
	known  map[place]*node // nodes of kinds that were compiled before
	fresh  map[place]*node // nodes of this kind, which may be incomplete
}

// place identifies a named type of a schema together with a Go type. It is the key under which the
// compiler finds nodes that it has already begun, because types may contain themselves.
type place struct {
	schema       *schema.Schema
	name         string
	relationship schema.ElementRelationship
	goer         reflect.Type
}

// node returns the node for values of Go type t, whose type in the schema is ref.
func (c *compiler) node(ref schema.TypeRef, t reflect.Type) (*node, error) {
	var p place
	if ref.NamedType != nil {
		p = place{schema: c.schema, name: *ref.NamedType, goer: t}
		if ref.ElementRelationship != nil {
			p.relationship = *ref.ElementRelationship
		}
		if n, ok := c.known[p]; ok {
			return n, nil
		}
		if n, ok := c.fresh[p]; ok {
			return n, nil
		}
	}
	n := &node{}
	if ref.NamedType != nil {
		c.fresh[p] = n
	}
	atom, ok := c.schema.Resolve(ref)
	if !ok {
		return nil, fmt.Errorf("%w: no type %s", errUncompiled, p.name)
	}
	if err := c.fill(n, atom, t); err != nil {
		return nil, err
	}
	if s := c.schema; n.whole {
		n.check = func(v any) bool {
			_, err := typed.AsTyped(value.NewValueInterface(v), s, ref)
			return err == nil
		}
	}
	return n, nil
}

func (c *compiler) fill(n *node, atom schema.Atom, t reflect.Type) error {
	n.opaque = value.TypeReflectEntryOf(t).CanConvertToUnstructured()
	if t.Kind() == reflect.Pointer && !n.opaque {
		t = t.Elem()
		if value.TypeReflectEntryOf(t).CanConvertToUnstructured() {
			return errUncompiled
		}
	}
	n.goer = t
	lists := atom.List != nil && atom.List.ElementRelationship != schema.Atomic
	maps := atom.Map != nil && atom.Map.ElementRelationship != schema.Atomic
	switch {
	case !lists && !maps:
		return n.fillLeaf(atom, t)
	case n.opaque || lists && maps || atom.Scalar != nil:
		return fmt.Errorf("%w: %s", errUncompiled, t)
	case maps && t.Kind() == reflect.Struct:
		return c.fillStructure(n, atom.Map, t)
	case maps && t.Kind() == reflect.Map && t.Key().Kind() == reflect.String && len(atom.Map.Fields) == 0:
		n.shape, n.texts = dictionary, t == reflect.TypeFor[map[string]string]()
		return c.fillBelow(n, atom.Map.ElementType, t)
	case lists && t.Kind() == reflect.Slice:
		n.shape = list
		if err := c.fillBelow(n, atom.List.ElementType, t); err != nil {
			return err
		}
		return c.fillKeys(n, atom.List)
	}
	return fmt.Errorf("%w: %s", errUncompiled, t)
}

// fillBelow compiles the elements of a list or map.
func (c *compiler) fillBelow(n *node, ref schema.TypeRef, t reflect.Type) (err error) {
	if t.Elem().Kind() == reflect.Pointer || t.Elem().Kind() == reflect.Interface {
		return fmt.Errorf("%w: %s may hold nil", errUncompiled, t)
	}
	n.below, err = c.node(ref, t.Elem())
	return err
}

func (n *node) fillLeaf(atom schema.Atom, t reflect.Type) error {
	n.whole = atom.List != nil || atom.Map != nil
	if atom.Scalar != nil {
		n.scalar = *atom.Scalar
	}
	switch t.Kind() {
	case reflect.Interface, reflect.Chan, reflect.Func, reflect.UnsafePointer, reflect.Array, reflect.Complex64,
		reflect.Complex128, reflect.Uint64:
		return fmt.Errorf("%w: %s", errUncompiled, t)
	}
	n.same = equality(t, n.opaque)
	return nil
}

func (c *compiler) fillStructure(n *node, m *schema.Map, t reflect.Type) error {
	n.shape = structure
	n.named = make(map[string]*node)
	entries := value.TypeReflectEntryOf(t).OrderedFields()
	places := make(map[string]reflect.StructField, len(entries))
	if err := jsonFields(t, nil, places); err != nil {
		return err
	}
	for _, e := range entries {
		f, ok := places[e.JsonName]
		if !ok || !plain(e.JsonName) {
			return fmt.Errorf("%w: %s of %s", errUncompiled, e.JsonName, t)
		}
		ref := m.ElementType
		if sf, ok := m.FindField(e.JsonName); ok {
			ref = sf.Type
		} else if ref == (schema.TypeRef{}) {
			return fmt.Errorf("%w: no %s in the schema of %s", errUncompiled, e.JsonName, t)
		}
		below, err := c.node(ref, f.Type)
		if err != nil {
			return err
		}
		made := fieldOf(f, e.JsonName)
		made.node = below
		n.fields = append(n.fields, made)
		n.named[e.JsonName] = below
	}
	return nil
}

// fieldOf returns the description of a struct's field whose JSON name is name. The caller sets its
// node.
func fieldOf(f reflect.StructField, name string) field {
	made := field{element: "f:" + name, index: f.Index}
	_, options, _ := strings.Cut(f.Tag.Get("json"), ",")
	for option := range strings.SplitSeq(options, ",") {
		switch option {
		case "omitempty":
			made.omitEmpty = true
		case "omitzero":
			made.omitZero = value.OmitZeroFunc(f.Type)
		}
	}
	return made
}

// jsonFields adds the fields of a struct and of its inlined structs to a map, by their JSON names.
// It returns an error if a name is not unique or a field is not exported.
func jsonFields(t reflect.Type, at []int, into map[string]reflect.StructField) error {
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		index := append(slices.Clone(at), f.Index...)
		switch {
		case name == "-":
			continue
		case name == "" && f.Anonymous:
			if f.Type.Kind() != reflect.Struct {
				return fmt.Errorf("%w: %s", errUncompiled, t)
			}
			if err := jsonFields(f.Type, index, into); err != nil {
				return err
			}
			continue
		case name == "":
			name = f.Name
		}
		if _, twice := into[name]; twice || !f.IsExported() {
			return fmt.Errorf("%w: %s of %s", errUncompiled, name, t)
		}
		f.Index = index
		into[name] = f
	}
	return nil
}

// fillKeys sets the keys of a list's elements. For a set, it checks that the values are scalars.
func (c *compiler) fillKeys(n *node, l *schema.List) error {
	if l.ElementRelationship != schema.Associative {
		return fmt.Errorf("%w: list of %s", errUncompiled, n.goer)
	}
	if len(l.Keys) == 0 {
		if n.below.shape != leaf || n.below.opaque || n.below.whole || !scalarKind(n.below.goer.Kind()) {
			return fmt.Errorf("%w: set of %s", errUncompiled, n.goer)
		}
		return nil
	}
	t := n.goer.Elem()
	atom, _ := c.schema.Resolve(l.ElementType)
	if n.below.opaque || t.Kind() != reflect.Struct || atom.Map == nil {
		return fmt.Errorf("%w: list of %s", errUncompiled, n.goer)
	}
	places := make(map[string]reflect.StructField)
	if err := jsonFields(t, nil, places); err != nil {
		return err
	}
	for _, name := range slices.Sorted(slices.Values(l.Keys)) {
		sf, ok := places[name]
		if !ok || !plain(name) || value.TypeReflectEntryOf(sf.Type).CanConvertToUnstructured() ||
			!scalarKind(deref(sf.Type).Kind()) {
			return fmt.Errorf("%w: key %s of %s", errUncompiled, name, n.goer)
		}
		k := key{prefix: strconv.Quote(name) + ":", field: fieldOf(sf, name)}
		k.field.node = &node{}
		if sf, ok := atom.Map.FindField(name); ok && sf.Default != nil {
			switch d := sf.Default.(type) {
			case string:
				k.fallback = strconv.Quote(d)
			case int:
				k.fallback = strconv.Itoa(d)
			default:
				return fmt.Errorf("%w: default of key %s", errUncompiled, name)
			}
		}
		n.keys = append(n.keys, k)
	}
	return nil
}

func deref(t reflect.Type) reflect.Type {
	if t.Kind() == reflect.Pointer {
		return t.Elem()
	}
	return t
}

func scalarKind(k reflect.Kind) bool {
	switch k {
	case reflect.String, reflect.Bool, reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return true
	}
	return false
}
