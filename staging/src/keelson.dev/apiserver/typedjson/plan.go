// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package typedjson

import (
	"encoding"
	"encoding/json"
	"reflect"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// form selects how the values of a Go type are read.
type form uint8

const (
	unknown        form = iota // Kubernetes' JSON library has to read the value
	own                        // the type's UnmarshalJSON reads the value
	instant                    // metav1.Time
	number32OrText             // intstr.IntOrString
	text
	boolean
	signed
	unsigned
	floating
	bytes
	pointer
	list
	dictionary
	labels // map[string]string
	structure
)

// plan describes how the values of a Go type are read. Types that this package does not support
// have the form unknown. A struct with a field of an unsupported type can be read if the document
// does not have the field.
type plan struct {
	form   form
	elem   *plan          // plan of the elements of a pointer, list or map
	first  int            // initial capacity of a list
	fields []field        // fields of a struct, in the order of the type
	byName map[string]int // index into fields, by name
	maps   *sync.Pool     // pool of *entry, for a map
}

// field is a field of a struct, possibly in an embedded struct.
type field struct {
	name  string
	index []int
	plan  *plan
}

// entry is a buffer for a key and an element of a map.
type entry struct{ key, elem reflect.Value }

// maxFields bounds the number of fields of a struct. The reader has a bit for each field, to detect
// repeated ones.
const maxFields = 128

// The plans of this process. A plan depends only on its Go type and does not change once it is in
// ready, so all callers can share it. There is at most one plan for each type of the program.
var (
	ready     sync.Map                   // maps reflect.Type to *plan
	compiling sync.Mutex                 // guards compiled
	compiled  = map[reflect.Type]*plan{} // plans that are ready, and those being compiled
)

// Constants that Go can only declare as variables.
var (
	unmarshaler     = reflect.TypeFor[json.Unmarshaler]()
	textUnmarshaler = reflect.TypeFor[encoding.TextUnmarshaler]()
)

// planOf returns the plan of t.
func planOf(t reflect.Type) *plan {
	if p, ok := ready.Load(t); ok {
		return p.(*plan)
	}
	compiling.Lock()
	defer compiling.Unlock()
	p := compile(t)
	ready.Store(t, p)
	return p
}

// compile returns the plan of t. It adds the plan to compiled before it is complete, because types
// may contain themselves.
func compile(t reflect.Type) *plan {
	if p := compiled[t]; p != nil {
		return p
	}
	p := &plan{}
	compiled[t] = p
	p.form = p.compile(t)
	return p
}

func (p *plan) compile(t reflect.Type) form {
	switch {
	case t == reflect.TypeFor[metav1.Time]():
		return instant
	case t == reflect.TypeFor[intstr.IntOrString]():
		return number32OrText
	case t.Kind() == reflect.Pointer:
		return p.compilePointer(t)
	case reflect.PointerTo(t).Implements(unmarshaler):
		if t.Name() == "" {
			return unknown
		}
		return own
	case reflect.PointerTo(t).Implements(textUnmarshaler), t == reflect.TypeFor[json.Number]():
		return unknown
	}
	switch t.Kind() {
	case reflect.String:
		return text
	case reflect.Bool:
		return boolean
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return signed
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return unsigned
	case reflect.Float32, reflect.Float64:
		return floating
	case reflect.Slice:
		return p.compileList(t)
	case reflect.Map:
		return p.compileMap(t)
	case reflect.Struct:
		return p.compileStructure(t)
	}
	return unknown
}

func (p *plan) compilePointer(t reflect.Type) form {
	if t.Name() != "" || t.Elem().Kind() == reflect.Pointer {
		return unknown
	}
	p.elem = compile(t.Elem())
	return pointer
}

func (p *plan) compileList(t reflect.Type) form {
	if t.Elem().Kind() == reflect.Uint8 {
		return bytes
	}
	p.elem = compile(t.Elem())
	p.first = 1
	if t.Elem().Size() <= 64 {
		p.first = 4
	}
	return list
}

func (p *plan) compileMap(t reflect.Type) form {
	key := t.Key()
	switch {
	case key.Kind() != reflect.String || reflect.PointerTo(key).Implements(textUnmarshaler):
		return unknown
	case t == reflect.TypeFor[map[string]string]():
		return labels
	}
	p.elem = compile(t.Elem())
	p.maps = &sync.Pool{New: func() any {
		return &entry{reflect.New(key).Elem(), reflect.New(t.Elem()).Elem()}
	}}
	return dictionary
}

func (p *plan) compileStructure(t reflect.Type) form {
	p.byName = map[string]int{}
	if !p.addFields(t, nil) || len(p.fields) > maxFields {
		p.fields, p.byName = nil, nil
		return unknown
	}
	return structure
}

// addFields adds the fields of t to the plan of a struct. t is the type of the embedded field at
// index, or of the struct itself. addFields returns false if the tags do not determine which names
// encoding/json uses.
func (p *plan) addFields(t reflect.Type, index []int) bool {
	for i := range t.NumField() {
		f := t.Field(i)
		tag := f.Tag.Get("json")
		at := append(index[:len(index):len(index)], i)
		name, options, _ := strings.Cut(tag, ",")
		switch {
		case tag == "-":
			continue
		case f.Anonymous && name == "":
			if !f.IsExported() || f.Type.Kind() != reflect.Struct || !p.addFields(f.Type, at) {
				return false
			}
			continue
		case !f.IsExported():
			continue
		case name == "":
			name = f.Name
		case strings.ContainsFunc(name, unusual):
			return false
		}
		if _, taken := p.byName[name]; taken {
			return false
		}
		of := compile(f.Type)
		if strings.Contains(options, "string") {
			of = &plan{}
		}
		p.byName[name] = len(p.fields)
		p.fields = append(p.fields, field{name, at, of})
	}
	return true
}

// unusual reports whether r may make encoding/json ignore a tag with r in its name.
func unusual(r rune) bool {
	return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("-_./$", r)
}
