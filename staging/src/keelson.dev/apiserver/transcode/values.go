// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package transcode

import (
	"encoding/base64"
	"encoding/json"
	"reflect"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// value appends the JSON of a value that is length-delimited in protobuf. b is its content.
func (r *run) value(dst []byte, v *value, b []byte) ([]byte, bool) {
	switch v.kind {
	case stringKind:
		return AppendString(dst, b), true
	case bytesKind:
		return append(base64.StdEncoding.AppendEncode(append(dst, '"'), b), '"'), true
	case messageKind:
		return r.object(dst, v.sub, b)
	case timeKind, microTimeKind:
		t, ok := moment(b, v.kind)
		return appendTime(dst, t, v.kind), ok
	case quantityKind:
		return r.types.known.quantity(dst, b)
	case intOrStringKind:
		return appendIntOrString(dst, b)
	case fieldsKind:
		if len(b) > 0 && b[0] == 1<<3|byte(protowire.BytesType) {
			if set, n := protowire.ConsumeBytes(b[1:]); n == len(b)-1 && plainFields(set) {
				return append(dst, set...), true
			}
		}
		return appendDecoded(dst, reflect.TypeFor[metav1.FieldsV1](), b)
	default:
		return appendDecoded(dst, v.typ, b)
	}
}

// appendDecoded appends the JSON of a value by decoding and encoding it with the methods of typ.
func appendDecoded(dst []byte, typ reflect.Type, b []byte) ([]byte, bool) {
	obj := reflect.New(typ)
	u, ok := obj.Interface().(unmarshaler)
	if !ok || u.Unmarshal(b) != nil {
		return nil, false
	}
	out, err := json.Marshal(obj.Interface())
	return append(dst, out...), err == nil
}

// isZero reports whether the varint n means 0 for a value of the kind of v.
func (v *value) isZero(n uint64) bool {
	switch v.kind {
	case int32Kind, uint32Kind:
		return uint32(n) == 0
	default:
		return n == 0
	}
}

func (v *value) appendNumber(dst []byte, n uint64) []byte {
	switch v.kind {
	case boolKind:
		return strconv.AppendBool(dst, n != 0)
	case int32Kind:
		return strconv.AppendInt(dst, int64(int32(n)), 10)
	case int64Kind:
		return strconv.AppendInt(dst, int64(n), 10)
	case uint32Kind:
		return strconv.AppendUint(dst, uint64(uint32(n)), 10)
	default:
		return strconv.AppendUint(dst, n, 10)
	}
}

// plain is true for the bytes that encoding/json does not escape in strings. It is never modified.
var plain = func() (t [256]bool) {
	for c := ' '; c < 0x7f; c++ {
		t[c] = c != '"' && c != '\\' && c != '<' && c != '>' && c != '&'
	}
	return t
}()

// AppendString appends text as a JSON string, exactly as encoding/json writes it.
func AppendString[S string | []byte](dst []byte, text S) []byte {
	start := len(dst)
	dst = append(dst, '"')
	from := 0
	for i := range len(text) {
		c := text[i]
		if plain[c] {
			continue
		}
		if c >= 0x7f {
			quoted, _ := json.Marshal(string(text)) //nolint:errchkjson // a string can always be encoded
			return append(dst[:start], quoted...)
		}
		dst = append(dst, text[from:i]...)
		dst = appendEscape(dst, c)
		from = i + 1
	}
	dst = append(dst, text[from:]...)
	return append(dst, '"')
}

// appendEscape appends the escape of an ASCII character that is not plain.
func appendEscape(dst []byte, c byte) []byte {
	switch c {
	case '"', '\\':
		return append(dst, '\\', c)
	case '\b':
		return append(dst, `\b`...)
	case '\f':
		return append(dst, `\f`...)
	case '\n':
		return append(dst, `\n`...)
	case '\r':
		return append(dst, `\r`...)
	case '\t':
		return append(dst, `\t`...)
	}
	const digits = "0123456789abcdef"
	return append(dst, '\\', 'u', '0', '0', digits[c>>4], digits[c&0xf])
}

// plainFields reports whether b, a FieldsV1, is JSON that encoding/json would write unchanged. It
// accepts only nested objects, which FieldsV1 consists of.
func plainFields(b []byte) bool {
	depth := 0
	for i := 0; i < len(b); {
		// A value starts at b[i].
		if b[i] != '{' {
			return false
		}
		depth++
		i++
		if i < len(b) && b[i] != '}' {
			if i = skipKey(b, i); i < 0 {
				return false
			}
			continue
		}
		for i < len(b) && b[i] == '}' {
			depth--
			i++
			if depth == 0 {
				return i == len(b)
			}
		}
		if i >= len(b) || b[i] != ',' {
			return false
		}
		if i = skipKey(b, i+1); i < 0 {
			return false
		}
	}
	return false
}

// skipKey returns the index after the key at i and its colon, or -1 if there is no plain key.
func skipKey(b []byte, i int) int {
	if i >= len(b) || b[i] != '"' {
		return -1
	}
	for i++; i < len(b); i++ {
		switch c := b[i]; {
		case plain[c]:
		case c == '\\' && i+1 < len(b) && (b[i+1] == '"' || b[i+1] == '\\'):
			i++
		case c == '"' && i+1 < len(b) && b[i+1] == ':':
			return i + 2
		default:
			return -1
		}
	}
	return -1
}

// moment decodes a Time or a MicroTime in the same way as their Unmarshal methods.
func moment(b []byte, k kind) (time.Time, bool) {
	if len(b) == 0 {
		return time.Time{}, true
	}
	var stamp metav1.Timestamp
	if err := stamp.Unmarshal(b); err != nil {
		return time.Time{}, false
	}
	if k == timeKind {
		return time.Unix(stamp.Seconds, 0), true
	}
	return time.Unix(stamp.Seconds, int64(time.Duration(stamp.Nanos).Truncate(time.Microsecond))), true
}

func appendTime(dst []byte, t time.Time, k kind) []byte {
	if t.IsZero() {
		return append(dst, "null"...)
	}
	layout := time.RFC3339
	if k == microTimeKind {
		layout = metav1.RFC3339Micro
	}
	return append(t.UTC().AppendFormat(append(dst, '"'), layout), '"')
}

func appendIntOrString(dst, b []byte) ([]byte, bool) {
	var v intstr.IntOrString
	if err := v.Unmarshal(b); err != nil {
		return nil, false
	}
	switch v.Type {
	case intstr.Int:
		return strconv.AppendInt(dst, int64(v.IntVal), 10), true
	case intstr.String:
		return AppendString(dst, v.StrVal), true
	default:
		return nil, false
	}
}

// memo caches the JSON of quantities. Clusters use few different quantities, and formatting one is
// slow.
type memo struct {
	quantities atomic.Pointer[map[string]string] // JSON by protobuf; copied for each change
	mu         sync.Mutex                        // held while a quantity is added
}

// memoSize bounds the number of quantities that are kept.
const memoSize = 1024

func (m *memo) quantity(dst, b []byte) ([]byte, bool) {
	known := m.quantities.Load()
	if known != nil {
		if text, ok := (*known)[string(b)]; ok {
			return append(dst, text...), true
		}
	}
	out, ok := appendDecoded(dst, reflect.TypeFor[resource.Quantity](), b)
	if ok && (known == nil || len(*known) < memoSize) && len(b) < 64 {
		m.add(string(b), string(out[len(dst):]))
	}
	return out, ok
}

func (m *memo) add(b, text string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	grown := map[string]string{b: text}
	if known := m.quantities.Load(); known != nil {
		for k, v := range *known {
			grown[k] = v
		}
	}
	m.quantities.Store(&grown)
}
