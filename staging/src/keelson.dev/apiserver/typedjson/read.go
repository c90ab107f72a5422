// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package typedjson

import (
	"encoding/base64"
	"encoding/json"
	"hash/maphash"
	"reflect"
	"strconv"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// maxDepth bounds the nesting of documents. Of the API's documents, only schemas are nested that
// deeply.
const maxDepth = 100

// reader reads one document. Its methods return false if the library has to read the document.
type reader struct {
	data   []byte
	at     int // index in data of the next byte to read
	depth  int
	plain  []byte // buffer for texts with escapes
	recent *recentTexts
}

// recentPool holds *recentTexts, which readers reuse to save allocations. At most one reader uses
// each at a time.
var recentPool = sync.Pool{New: func() any { return &recentTexts{seed: maphash.MakeSeed()} }}

// value reads the value at r.at into v. There must be no white space at r.at, and v must be zero.
func (r *reader) value(p *plan, v reflect.Value) bool {
	if r.at >= len(r.data) {
		return false
	}
	if r.data[r.at] == 'n' && p.form != own && p.form != number32OrText && p.form != unknown {
		return r.word("null") // null leaves the zero value
	}
	switch p.form {
	case own:
		return r.own(v)
	case instant:
		return r.instant(v)
	case number32OrText:
		return r.number32OrText(v)
	case text:
		s, ok := r.text()
		if ok {
			v.SetString(s)
		}
		return ok
	case boolean:
		return r.boolean(v)
	case signed, unsigned, floating:
		return r.number(p.form, v)
	case bytes:
		return r.bytes(v)
	case pointer:
		v.Set(reflect.New(v.Type().Elem()))
		return r.value(p.elem, v.Elem())
	case list:
		return r.list(p, v)
	case dictionary:
		return r.dictionary(p, v)
	case labels:
		return r.labels(v)
	case structure:
		return r.structure(p, v)
	}
	return false
}

// own reads the value with the UnmarshalJSON method of its type.
func (r *reader) own(v reflect.Value) bool {
	start := r.at
	if !r.skip() {
		return false
	}
	u, ok := v.Addr().Interface().(json.Unmarshaler)
	return ok && u.UnmarshalJSON(r.data[start:r.at:r.at]) == nil
}

func (r *reader) instant(v reflect.Value) bool {
	s, ok := r.literal()
	if !ok {
		return false
	}
	t, err := time.Parse(time.RFC3339, string(s))
	if err != nil {
		return false
	}
	v.Addr().Interface().(*metav1.Time).Time = t.Local()
	return true
}

func (r *reader) number32OrText(v reflect.Value) bool {
	into := v.Addr().Interface().(*intstr.IntOrString)
	if r.next('"') {
		s, ok := r.text()
		into.Type, into.StrVal = intstr.String, s
		return ok
	}
	start := r.at
	if !r.digits() {
		return false // the value is of another type, for example null
	}
	n, ok := integer(r.data[start:r.at])
	into.Type, into.IntVal = intstr.Int, int32(n)
	return ok && int64(into.IntVal) == n
}

func (r *reader) boolean(v reflect.Value) bool {
	if r.data[r.at] == 't' {
		v.SetBool(true)
		return r.word("true")
	}
	v.SetBool(false)
	return r.word("false")
}

func (r *reader) number(as form, v reflect.Value) bool {
	start := r.at
	if !r.digits() {
		return false
	}
	s := r.data[start:r.at]
	switch as {
	case signed:
		n, ok := integer(s)
		if !ok || v.OverflowInt(n) {
			return false
		}
		v.SetInt(n)
	case unsigned:
		n, err := strconv.ParseUint(string(s), 10, 64)
		if err != nil || v.OverflowUint(n) {
			return false
		}
		v.SetUint(n)
	default:
		n, err := strconv.ParseFloat(string(s), v.Type().Bits())
		if err != nil || v.OverflowFloat(n) {
			return false
		}
		v.SetFloat(n)
	}
	return true
}

func (r *reader) bytes(v reflect.Value) bool {
	s, ok := r.literal()
	if !ok {
		return false
	}
	b := make([]byte, base64.StdEncoding.DecodedLen(len(s)))
	n, err := base64.StdEncoding.Decode(b, s)
	v.SetBytes(b[:n])
	return err == nil
}

func (r *reader) list(p *plan, v reflect.Value) bool {
	if !r.open('[') {
		return false
	}
	if r.next(']') {
		v.Set(reflect.MakeSlice(v.Type(), 0, 0))
		return r.close()
	}
	for n := 0; ; n++ {
		if n == 0 {
			v.Grow(p.first)
		} else if n == v.Cap() {
			v.Grow(1)
		}
		v.SetLen(n + 1)
		if !r.value(p.elem, v.Index(n)) {
			return false
		}
		if more, ok := r.more(']'); !more {
			return ok
		}
	}
}

func (r *reader) dictionary(p *plan, v reflect.Value) bool {
	if !r.open('{') {
		return false
	}
	v.Set(reflect.MakeMap(v.Type()))
	if r.next('}') {
		return r.close()
	}
	e := p.maps.Get().(*entry)
	defer func() {
		e.key.SetZero()
		e.elem.SetZero()
		p.maps.Put(e)
	}()
	for n := 1; ; n++ {
		key, ok := r.text()
		if !ok || !r.colon() || !r.value(p.elem, e.elem) {
			return false
		}
		e.key.SetString(key)
		v.SetMapIndex(e.key, e.elem)
		e.elem.SetZero()
		if v.Len() != n {
			return false // the key is repeated
		}
		if more, ok := r.more('}'); !more {
			return ok
		}
	}
}

func (r *reader) labels(v reflect.Value) bool {
	if !r.open('{') {
		return false
	}
	m := map[string]string{}
	*v.Addr().Interface().(*map[string]string) = m
	if r.next('}') {
		return r.close()
	}
	for n := 1; ; n++ {
		key, ok := r.text()
		if !ok || !r.colon() {
			return false
		}
		s, ok := r.text()
		m[key] = s
		if !ok || len(m) != n {
			return false // the value is null, or the key is repeated
		}
		if more, ok := r.more('}'); !more {
			return ok
		}
	}
}

// structure reads a JSON object into a struct. Most programs write fields in the order of the type,
// so each name is first compared with the field after the one that was read last.
func (r *reader) structure(p *plan, v reflect.Value) bool {
	if !r.open('{') {
		return false
	}
	if r.next('}') {
		return r.close()
	}
	var seen [maxFields / 64]uint64
	for next := 0; ; next++ {
		name, ok := r.literal()
		if !ok || !r.colon() {
			return false
		}
		if next >= len(p.fields) || p.fields[next].name != string(name) {
			if next, ok = p.byName[string(name)]; !ok {
				return false
			}
		}
		word, bit := next/64, uint64(1)<<(next%64)
		if seen[word]&bit != 0 {
			return false
		}
		seen[word] |= bit
		at := v
		for _, i := range p.fields[next].index {
			at = at.Field(i)
		}
		if !r.value(p.fields[next].plan, at) {
			return false
		}
		if more, ok := r.more('}'); !more {
			return ok
		}
	}
}
