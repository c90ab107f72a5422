// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package transcode

import (
	"encoding/json"
	"fmt"
	"math/bits"
	"reflect"
	"slices"
	"sync"

	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Program converts the protobuf of one type to JSON. It is safe for concurrent use.
type Program struct {
	types *Types
	root  *message
	meta  *message  // table of the type of the object's ObjectMeta
	runs  sync.Pool // pool of *run
}

// Program compiles the type that object points to. It returns an error if the type has no
// ObjectMeta, or if a field has an unsupported type.
func (t *Types) Program(object any) (*Program, error) {
	typ := reflect.TypeOf(object)
	if typ.Kind() != reflect.Pointer || typ.Elem().Kind() != reflect.Struct ||
		typ.Implements(reflect.TypeFor[json.Marshaler]()) {
		return nil, fmt.Errorf("%s: %w", typ, errUnsupported)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	root, err := t.message(typ.Elem())
	if err != nil {
		return nil, err
	}
	meta := root.field(1)
	if meta == nil || meta.sub == nil || meta.sub.typ != reflect.TypeFor[metav1.ObjectMeta]() {
		return nil, fmt.Errorf("%s: no metadata: %w", typ, errUnsupported)
	}
	// Only the object's own metadata gets the resourceVersion, not that of pod templates.
	own := &message{typ: meta.sub.typ, fields: slices.Clone(meta.sub.fields), byNumber: meta.sub.byNumber}
	own.field(6).revision = true
	own.setAlways()
	root = &message{typ: root.typ, fields: slices.Clone(root.fields), byNumber: root.byNumber}
	root.field(1).sub, root.field(1).own = own, true
	root.setAlways()
	return &Program{types: t, root: root, meta: own, runs: sync.Pool{New: func() any { return new(run) }}}, nil
}

// Append appends the JSON of an object. raw is the object's message, and revision its
// resourceVersion. If revision is empty, the JSON has no resourceVersion. If the object has to be
// decoded instead, Append returns dst unchanged and false.
func (p *Program) Append(dst, raw []byte, revision string) ([]byte, bool) {
	return p.run(dst, p.root, raw, revision)
}

// AppendMetadata appends the JSON of the object's metadata only. Otherwise it is like Append.
func (p *Program) AppendMetadata(dst, raw []byte, revision string) ([]byte, bool) {
	tag, typ, n := protowire.ConsumeTag(raw)
	if n < 0 || tag != 1 || typ != protowire.BytesType {
		return dst, false
	}
	meta, m := protowire.ConsumeBytes(raw[n:])
	if m < 0 {
		return dst, false
	}
	return p.run(dst, p.meta, meta, revision)
}

func (p *Program) run(dst []byte, m *message, raw []byte, revision string) ([]byte, bool) {
	r := p.runs.Get().(*run)
	defer p.runs.Put(r)
	r.types, r.revision = p.types, revision
	out, ok := r.object(dst, m, raw)
	if !ok {
		return dst, false
	}
	return out, true
}

// run is the conversion of one object.
type run struct {
	types    *Types
	revision string
	spans    []span // spans of the messages that are being converted, the innermost message last
	repeats  repeats
}

// span is the position of a field in its message. The field from is the offset after its tag, and
// the field to is the offset of its end. All values of a list or map are in one span, with tags
// between them.
type span struct {
	from, to int
	number   uint64 // value of the field if it is a varint
}

// object appends a message as a JSON object.
func (r *run) object(dst []byte, m *message, raw []byte) ([]byte, bool) {
	dst = append(dst, '{')
	dst, ok := r.members(dst, m, raw)
	if !ok {
		return nil, false
	}
	if dst[len(dst)-1] == ',' {
		dst[len(dst)-1] = '}'
		return dst, true
	}
	return append(dst, '}'), true
}

// members appends the members of a message, each with a comma after it.
func (r *run) members(dst []byte, m *message, raw []byte) ([]byte, bool) {
	base := len(r.spans)
	r.spans = slices.Grow(r.spans, len(m.fields))[:base+len(m.fields)]
	there, ok := m.locate(r.spans[base:], raw)
	for rest := there | m.always; ok && rest != 0; rest &= rest - 1 {
		i := bits.TrailingZeros64(rest)
		if there&(1<<i) == 0 {
			dst, ok = r.absent(dst, &m.fields[i])
		} else {
			// member may reallocate r.spans, so it gets a copy of the span.
			dst, ok = r.member(dst, &m.fields[i], r.spans[base+i], raw)
		}
	}
	r.spans = r.spans[:base]
	return dst, ok
}

// locate finds the fields of a message and sets their spans. The result there has a bit for each
// field, which is set if the field is present.
func (m *message) locate(spans []span, raw []byte) (there uint64, ok bool) {
	var last *field
	for pos := 0; pos < len(raw); {
		number, typ, n := tag(raw[pos:])
		if n < 0 {
			return 0, false
		}
		f := m.field(number)
		if f == nil {
			size := protowire.ConsumeFieldValue(number, typ, raw[pos+n:])
			if size < 0 {
				return 0, false
			}
			pos += n + size
			last = nil
			continue
		}
		if typ != f.wireType() && (!f.dict || typ != protowire.BytesType) {
			return 0, false
		}
		i := m.byNumber[number] - 1
		s := &spans[i]
		pos += n
		switch {
		case there&(1<<i) == 0:
			s.from = pos
			there |= 1 << i
		case last != f || !f.list && !f.dict:
			return 0, false // decoders merge repeated fields, or use the last one
		}
		last = f
		v, n := varint(raw[pos:])
		if n < 0 {
			return 0, false
		}
		pos += n
		if typ == protowire.BytesType {
			if v > uint64(len(raw)-pos) {
				return 0, false
			}
			pos += int(v)
		}
		s.number, s.to = v, pos
	}
	return there, true
}

// tag decodes a tag. It has a fast path for tags of one or two bytes.
func tag(raw []byte) (protowire.Number, protowire.Type, int) {
	if len(raw) > 1 && raw[0] >= 8 {
		if raw[0] < 0x80 {
			return protowire.Number(raw[0] >> 3), protowire.Type(raw[0] & 7), 1
		}
		if n := protowire.Number(raw[1]); n > 0 && n < 0x80 {
			return n<<4 | protowire.Number(raw[0]>>3&15), protowire.Type(raw[0] & 7), 2
		}
	}
	return protowire.ConsumeTag(raw)
}

func varint(raw []byte) (uint64, int) {
	if len(raw) > 0 && raw[0] < 0x80 {
		return uint64(raw[0]), 1
	}
	return protowire.ConsumeVarint(raw)
}

// absent appends the member of a field that is not in the protobuf, unless such a member is
// omitted.
func (r *run) absent(dst []byte, f *field) (out []byte, ok bool) {
	switch {
	case f.revision:
		return r.appendRevision(dst, f), true
	case f.inline:
		return r.members(dst, f.sub, nil)
	case f.absent == "":
		return dst, true
	}
	dst = append(dst, f.head...)
	if f.kind == messageKind && !f.pointer && !f.list && !f.dict {
		dst, ok = r.object(dst, f.sub, nil)
		return append(dst, ','), ok
	}
	return append(append(dst, f.absent...), ','), true
}

func (r *run) appendRevision(dst []byte, f *field) []byte {
	if r.revision == "" {
		return dst
	}
	return append(AppendString(append(dst, f.head...), r.revision), ',')
}

// member appends the member of a field that is in the protobuf, unless the field is empty and empty
// members are omitted.
func (r *run) member(dst []byte, f *field, s span, raw []byte) ([]byte, bool) {
	switch {
	case f.revision:
		return r.appendRevision(dst, f), true
	case f.inline:
		return r.members(dst, f.sub, content(raw[s.from:s.to]))
	case f.omit && f.empty(s, raw):
		return dst, true
	}
	dst = append(dst, f.head...)
	if !f.list && !f.dict && f.wireType() == protowire.VarintType {
		return append(f.appendNumber(dst, s.number), ','), true
	}
	dst, ok := r.part(dst, f, 0, raw[s.from:s.to])
	return append(dst, ','), ok
}

// empty reports whether encoding/json omits the value because of omitempty or omitzero.
func (f *field) empty(s span, raw []byte) bool {
	switch {
	case f.pointer || f.list || f.dict:
		return false
	case f.wireType() == protowire.VarintType:
		return f.isZero(s.number)
	case f.kind == timeKind || f.kind == microTimeKind:
		t, ok := moment(content(raw[s.from:s.to]), f.kind)
		return ok && t.IsZero()
	default:
		return len(content(raw[s.from:s.to])) == 0
	}
}

// content returns the bytes of a length-delimited value. b starts with the length.
func content(b []byte) []byte {
	_, n := varint(b)
	return b[n:]
}

// next returns the first value of a list and the bytes after it. b starts after a tag, with the
// length of the value.
func next(b []byte) (value, rest []byte) {
	size, n := varint(b)
	return b[n : n+int(size)], b[n+int(size):]
}

// list appends the JSON of a list.
func (r *run) list(dst []byte, f *field, values []byte) ([]byte, bool) {
	dst = append(dst, '[')
	for i := 0; ; i++ {
		if f.wireType() == protowire.VarintType {
			v, n := varint(values)
			dst, values = f.appendNumber(dst, v), values[n:]
		} else {
			var v []byte
			var ok bool
			v, values = next(values)
			if dst, ok = r.part(dst, f, 1+i%repeatValues, v); !ok {
				return nil, false
			}
		}
		if len(values) == 0 {
			return append(dst, ']'), true
		}
		dst = append(dst, ',')
		_, _, n := tag(values)
		values = values[n:]
	}
}

// dict appends the JSON of a map. It returns false if the keys are not in ascending order.
func (r *run) dict(dst []byte, f *field, entries []byte) ([]byte, bool) {
	dst = append(dst, '{')
	var before []byte
	for first := true; ; first = false {
		var e []byte
		e, entries = next(entries)
		key, v, number, ok := entry(e, f.wireType())
		if !ok || !first && string(before) >= string(key) || f.kind == decodedKind && len(v) == 0 {
			return nil, false // an empty value in a map may be decoded differently from an empty field
		}
		before = key
		dst = append(AppendString(dst, key), ':')
		if f.wireType() == protowire.VarintType {
			dst = f.appendNumber(dst, number)
		} else if dst, ok = r.value(dst, &f.value, v); !ok {
			return nil, false
		}
		if len(entries) == 0 {
			return append(dst, '}'), true
		}
		dst = append(dst, ',')
		_, _, n := tag(entries)
		entries = entries[n:]
	}
}

// entry decodes an entry of a map. It returns false unless the entry consists of a key followed by
// a value.
func entry(e []byte, typ protowire.Type) (key, v []byte, number uint64, ok bool) {
	if len(e) == 0 || e[0] != 1<<3|byte(protowire.BytesType) {
		return nil, nil, 0, false
	}
	key, n := protowire.ConsumeBytes(e[1:])
	if n < 0 || len(e) == 1+n || e[1+n] != 2<<3|byte(typ) {
		return nil, nil, 0, false
	}
	e = e[2+n:]
	if typ == protowire.VarintType {
		number, n = protowire.ConsumeVarint(e)
	} else {
		v, n = protowire.ConsumeBytes(e)
	}
	return key, v, number, n == len(e)
}
