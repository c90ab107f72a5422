// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package transcode

import (
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"sync"

	"google.golang.org/protobuf/encoding/protowire"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Types has the tables of all struct types that its programs and pickers use. Programs and pickers
// share the tables of types that they have in common. It is safe for concurrent use.
type Types struct {
	mu       sync.Mutex
	messages map[reflect.Type]*message
	fields   int // number of fields of all messages so far
	known    memo
}

// NewTypes returns empty tables.
func NewTypes() *Types { return &Types{messages: map[reflect.Type]*message{}} }

// message is the table of one struct type, which is encoded as a protobuf message.
type message struct {
	typ      reflect.Type
	fields   []field // in the order of the JSON
	byNumber []int16 // index plus one of the field with a protobuf number; 0 if there is no such field
	always   uint64  // one bit for each field that is in the JSON even if it is absent from the protobuf
	kinded   bool    // the type has a TypeMeta, which the protobuf does not contain
}

// kind says how a value is encoded.
type kind uint8

// boolKind and the kinds up to uint64Kind are encoded as varints.
const (
	boolKind kind = iota
	int32Kind
	int64Kind
	uint32Kind
	uint64Kind
	stringKind
	bytesKind
	messageKind
	timeKind
	microTimeKind
	quantityKind
	intOrStringKind
	fieldsKind
	decodedKind // decoded and encoded with methods of the Go type
)

// value describes the value of a field, or of an element of a list or map.
type value struct {
	kind kind
	sub  *message     // set if kind is messageKind
	typ  reflect.Type // set if kind is decodedKind
}

// field is one field of a struct. In JSON it is a member of an object.
type field struct {
	value
	// Names of the field.
	id     int    // number that is unique among the fields of all types
	name   string // name of the field in Go
	json   string // name of the field in JSON
	head   string // `"json":`
	number protowire.Number
	absent string // JSON of an absent value; empty if the member is omitted

	// How the field is encoded.
	inline   bool // the members of this message become members of the object that contains the field
	pointer  bool
	list     bool
	dict     bool
	omit     bool // the member is omitted if it has the zero value
	revision bool // the resourceVersion; its value is passed to Append
	own      bool // the object's own metadata; its JSON depends on the resourceVersion too
}

// wireType returns the wire type of the value.
func (v *value) wireType() protowire.Type {
	if v.kind <= uint64Kind {
		return protowire.VarintType
	}
	return protowire.BytesType
}

func (m *message) field(n protowire.Number) *field {
	if uint64(n) >= uint64(len(m.byNumber)) || m.byNumber[n] == 0 {
		return nil
	}
	return &m.fields[m.byNumber[n]-1]
}

var errUnsupported = errors.New("unsupported type")

// message returns the table of a struct type. The caller holds t.mu.
func (t *Types) message(typ reflect.Type) (*message, error) {
	if m, ok := t.messages[typ]; ok {
		return m, nil
	}
	m := &message{typ: typ}
	t.messages[typ] = m // stored before it is complete, because types may refer to themselves
	if err := t.compile(m); err != nil {
		delete(t.messages, typ)
		return nil, fmt.Errorf("%s: %w", typ, err)
	}
	return m, nil
}

func (t *Types) compile(m *message) error {
	names := map[string]bool{}
	for i := range m.typ.NumField() {
		m.kinded = m.kinded || m.typ.Field(i).Type == reflect.TypeFor[metav1.TypeMeta]()
		f, ok, err := t.field(m.typ.Field(i))
		if err != nil {
			return fmt.Errorf("%s: %w", m.typ.Field(i).Name, err)
		}
		if !ok {
			continue
		}
		for _, name := range f.members() {
			if names[name] {
				return fmt.Errorf("%s: two members %q: %w", f.name, name, errUnsupported)
			}
			names[name] = true
		}
		t.fields++
		f.id = t.fields
		m.fields = append(m.fields, f)
		for len(m.byNumber) <= int(f.number) {
			m.byNumber = append(m.byNumber, 0)
		}
		m.byNumber[f.number] = int16(len(m.fields))
	}
	if len(m.fields) > 64 {
		return errUnsupported // locate uses one bit of a uint64 for each field
	}
	m.setAlways()
	return nil
}

// setAlways computes m.always from m.fields.
func (m *message) setAlways() {
	m.always = 0
	for i := range m.fields {
		if f := &m.fields[i]; f.absent != "" || f.revision || f.inline && f.sub.always != 0 {
			m.always |= 1 << i
		}
	}
}

// members returns the names of the JSON members that the field adds to its object.
func (f *field) members() []string {
	if !f.inline {
		return []string{f.json}
	}
	var out []string
	for i := range f.sub.fields {
		out = append(out, f.sub.fields[i].members()...)
	}
	return out
}

// field returns the table entry of a field of a struct. ok is false if the field is not in the
// protobuf or not in the JSON.
func (t *Types) field(sf reflect.StructField) (f field, ok bool, err error) {
	f.name = sf.Name
	name, options, _ := strings.Cut(sf.Tag.Get("json"), ",")
	if name == "-" && options == "" || !sf.IsExported() && !sf.Anonymous {
		return f, false, nil
	}
	has := func(option string) bool {
		for o := range strings.SplitSeq(options, ",") {
			if o == option {
				return true
			}
		}
		return false
	}
	f.json, f.omit = name, has("omitempty") || has("omitzero")
	if f.inline = sf.Anonymous && name == ""; !f.inline && name == "" || has("string") {
		return f, false, errUnsupported
	}
	proto := strings.Split(sf.Tag.Get("protobuf"), ",")
	if len(proto) < 2 {
		// The protobuf does not contain the field.
		if sf.Type == reflect.TypeFor[metav1.TypeMeta]() || f.omit && sf.Type.Kind() != reflect.Struct {
			return f, false, nil
		}
		return f, false, errUnsupported
	}
	number, err := strconv.Atoi(proto[1])
	if err != nil || number < 1 || number > 1<<12 {
		return f, false, errUnsupported
	}
	f.number = protowire.Number(number)
	f.head = strconv.Quote(f.json) + ":"
	if err := t.shape(&f, sf.Type); err != nil {
		return f, false, err
	}
	if f.sub != nil && f.sub.kinded {
		return f, false, errUnsupported // defaulting may set the kind of the embedded object
	}
	if f.inline && (f.kind != messageKind || f.pointer || f.list || f.dict) {
		return f, false, errUnsupported
	}
	return f, true, f.setAbsent(has("omitzero"))
}

// shape sets pointer, list or dict of f if typ, the Go type of f, is a pointer, a slice or a map. It
// sets f.value to the description of the value, or of the elements of a list or map. Bytes, and
// types with their own encoding methods, are not lists or maps.
func (t *Types) shape(f *field, typ reflect.Type) error {
	elem := typ
	switch {
	case own(typ): // the type's own methods encode it
	case typ.Kind() == reflect.Pointer:
		f.pointer, elem = true, typ.Elem()
	case typ.Kind() == reflect.Slice && typ.Elem().Kind() != reflect.Uint8:
		f.list, elem = true, typ.Elem()
	case typ.Kind() == reflect.Map && typ.Key().Kind() == reflect.String && !own(typ.Key()):
		f.dict, elem = true, typ.Elem()
	}
	var err error
	f.value, err = t.value(elem)
	return err
}

// own reports whether a type has its own methods for encoding or decoding JSON, text or protobuf.
func own(typ reflect.Type) bool {
	for _, i := range []reflect.Type{reflect.TypeFor[json.Marshaler](),
		reflect.TypeFor[encoding.TextMarshaler](), reflect.TypeFor[unmarshaler]()} {
		if typ.Kind() != reflect.Pointer && (typ.Implements(i) || reflect.PointerTo(typ).Implements(i)) {
			return true
		}
	}
	return false
}

// unmarshaler is implemented by types with generated protobuf code.
type unmarshaler interface{ Unmarshal(data []byte) error }

// value returns the description of values of type typ.
func (t *Types) value(typ reflect.Type) (v value, err error) {
	special := map[reflect.Type]kind{
		reflect.TypeFor[metav1.Time](): timeKind, reflect.TypeFor[metav1.MicroTime](): microTimeKind,
		reflect.TypeFor[resource.Quantity](): quantityKind, reflect.TypeFor[intstr.IntOrString](): intOrStringKind,
		reflect.TypeFor[metav1.FieldsV1](): fieldsKind,
	}
	if k, ok := special[typ]; ok {
		return value{kind: k}, nil
	}
	if own(typ) {
		pointer := reflect.PointerTo(typ)
		if !pointer.Implements(reflect.TypeFor[unmarshaler]()) {
			return v, fmt.Errorf("%s: %w", typ, errUnsupported)
		}
		if typ.Kind() != reflect.Struct || pointer.Implements(reflect.TypeFor[json.Marshaler]()) ||
			pointer.Implements(reflect.TypeFor[encoding.TextMarshaler]()) {
			return value{kind: decodedKind, typ: typ}, nil
		}
		v.kind = messageKind
		v.sub, err = t.message(typ)
		return v, err
	}
	plain := map[reflect.Kind]kind{
		reflect.String: stringKind, reflect.Bool: boolKind, reflect.Int32: int32Kind, reflect.Int64: int64Kind,
		reflect.Uint32: uint32Kind, reflect.Uint64: uint64Kind,
	}
	k, ok := plain[typ.Kind()]
	if typ.Kind() == reflect.Slice && typ.Elem() == reflect.TypeFor[byte]() {
		k, ok = bytesKind, true
	}
	if !ok {
		return v, fmt.Errorf("%s: %w", typ, errUnsupported)
	}
	return value{kind: k}, nil
}

// setAbsent sets f.absent, the JSON of the field if it is not in the protobuf. omitZero reports
// whether the field has the tag omitzero.
func (f *field) setAbsent(omitZero bool) error {
	switch {
	case f.inline:
		return nil
	case f.pointer || f.list || f.dict || f.kind == bytesKind:
		f.absent = "null"
	case f.kind == stringKind:
		f.absent = `""`
	case f.kind == boolKind:
		f.absent = "false"
	case f.wireType() == protowire.VarintType:
		f.absent = "0"
	case f.kind == timeKind || f.kind == microTimeKind:
		f.absent = "null"
		if !omitZero {
			f.omit = false // encoding/json never omits a struct as empty
		}
	case omitZero:
		return errUnsupported
	case f.kind == messageKind:
		f.absent = "{" // not empty, so that the member is not omitted; the method absent appends the object
		f.omit = false
	default:
		v, err := json.Marshal(f.zero())
		if err != nil {
			return err
		}
		f.absent, f.omit = string(v), false
	}
	if f.omit {
		f.absent = ""
	}
	return nil
}

// zero returns the zero value of a kind that is not a message.
func (v *value) zero() any {
	switch v.kind {
	case quantityKind:
		return &resource.Quantity{}
	case intOrStringKind:
		return &intstr.IntOrString{}
	case fieldsKind:
		return &metav1.FieldsV1{}
	default:
		return reflect.New(v.typ).Interface()
	}
}
