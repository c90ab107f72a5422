// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package transcode

import (
	"errors"
	"fmt"
	"reflect"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
)

// Picker copies the fields at some paths from the encoded messages of one type. The result decodes
// into an object with only these fields; lists keep their number of elements. It is safe for
// concurrent use.
type Picker struct{ root *branch }

// branch says which fields of a message are copied, by field number. The element for a field is nil
// if the field is not copied, a branch without elements (called whole) if all of the field is
// copied, and otherwise the branch for the field's message.
type branch struct{ byNumber []*branch }

var errPath = errors.New("no such field")

// Picker compiles paths for the type that object points to. A path consists of JSON names with dots
// between them, for example "spec.containers.name". It returns an error if the type is not
// supported or does not have the field of a path.
func (t *Types) Picker(object any, paths ...string) (*Picker, error) {
	typ := reflect.TypeOf(object)
	if typ.Kind() != reflect.Pointer || typ.Elem().Kind() != reflect.Struct {
		return nil, fmt.Errorf("%s: %w", typ, errUnsupported)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	m, err := t.message(typ.Elem())
	if err != nil {
		return nil, err
	}
	whole := &branch{}
	p := &Picker{root: &branch{}}
	for _, path := range paths {
		if !p.root.add(m, strings.Split(path, "."), whole) {
			return nil, fmt.Errorf("%s: %s: %w", typ, path, errPath)
		}
	}
	return p, nil
}

// add selects the field of m that path names. It returns false if m has no such field.
func (b *branch) add(m *message, path []string, whole *branch) bool {
	for i := range m.fields {
		f := &m.fields[i]
		if f.inline {
			inner := &branch{}
			if old := b.of(f.number); old != nil {
				inner = old
			}
			if inner == whole || inner.add(f.sub, path, whole) {
				b.set(f.number, inner)
				return true
			}
			continue
		}
		if f.json != path[0] {
			continue
		}
		if len(path) == 1 {
			b.set(f.number, whole)
			return true
		}
		if f.kind != messageKind || f.dict {
			return false
		}
		inner := b.of(f.number)
		if inner == whole {
			return true
		}
		if inner == nil {
			inner = &branch{}
			b.set(f.number, inner)
		}
		return inner.add(f.sub, path[1:], whole)
	}
	return false
}

func (b *branch) of(n protowire.Number) *branch {
	if uint64(n) >= uint64(len(b.byNumber)) {
		return nil
	}
	return b.byNumber[n]
}

func (b *branch) set(n protowire.Number, inner *branch) {
	for len(b.byNumber) <= int(n) {
		b.byNumber = append(b.byNumber, nil)
	}
	b.byNumber[n] = inner
}

// Append appends the selected fields of the message raw to dst. It returns false if raw is
// malformed.
func (p *Picker) Append(dst, raw []byte) ([]byte, bool) { return p.root.append(dst, raw) }

// sizeLen is the number of bytes reserved for the size of a message that is not known in advance.
// Decoders accept a varint with more bytes than necessary.
const sizeLen = 4

func (b *branch) append(dst, raw []byte) ([]byte, bool) {
	for pos := 0; pos < len(raw); {
		number, typ, n := tag(raw[pos:])
		if n < 0 {
			return dst, false
		}
		var size int
		if typ == protowire.BytesType {
			v, m := varint(raw[pos+n:])
			if m < 0 || v > uint64(len(raw)-pos-n-m) {
				return dst, false
			}
			size = m + int(v)
		} else if size = protowire.ConsumeFieldValue(number, typ, raw[pos+n:]); size < 0 {
			return dst, false
		}
		end := pos + n + size
		inner := b.of(number)
		switch {
		case inner == nil:
		case inner.byNumber == nil: // copy the whole field
			dst = append(dst, raw[pos:end]...)
		case typ != protowire.BytesType:
			return dst, false
		default:
			dst = append(append(dst, raw[pos:pos+n]...), 0x80, 0x80, 0x80, 0)
			start := len(dst)
			var ok bool
			if dst, ok = inner.append(dst, content(raw[pos+n:end])); !ok || len(dst)-start >= 1<<(7*sizeLen) {
				return dst, false
			}
			for i, v := start-sizeLen, len(dst)-start; i < start; i, v = i+1, v>>7 {
				dst[i] |= byte(v & 0x7f)
			}
		}
		pos = end
	}
	return dst, true
}
