// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package wire edits encoded objects without decoding them. It handles Kubernetes' protobuf
// envelope ("k8s\0" and a runtime.Unknown), the object in it, the resourceVersion in the object's
// metadata, and lists and watch events of encoded objects.
//
// It relies on the field numbers of the API: every stored kind has its ObjectMeta in field 1.
// ObjectMeta has uid in field 5, resourceVersion in field 6, deletionTimestamp in field 9 and
// deletionGracePeriodSeconds in field 10. A list has its ListMeta in field 1 and its items in field
// 2.
//
// If a function returns false, the bytes have an unexpected layout, and the caller has to decode
// the object. The package has no state and is safe for concurrent use.
package wire

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"
)

// Prefix is at the start of every protobuf object that Kubernetes sends or stores.
const Prefix = "k8s\x00"

// trailer is the end of an envelope: its empty contentEncoding and contentType.
const trailer = "\x1a\x00\x22\x00"

var errMalformed = errors.New("malformed protobuf envelope")

// Envelope is the parsed envelope of an object.
type Envelope struct {
	APIVersion, Kind string
	// Raw is the protobuf message of the object. It shares memory with the parsed bytes.
	Raw []byte

	head []byte // the bytes of the envelope before the field with Raw
}

// IsEnvelope reports whether data begins with Prefix.
func IsEnvelope(data []byte) bool { return bytes.HasPrefix(data, []byte(Prefix)) }

// Parse parses an envelope. Raw shares memory with data. It returns an error if data is not a
// well-formed envelope, or has a content encoding.
func Parse(data []byte) (Envelope, error) {
	var e Envelope
	if !IsEnvelope(data) {
		return e, errMalformed
	}
	for pos := len(Prefix); pos < len(data); {
		num, value, n := field(data[pos:])
		if n < 0 {
			return e, errMalformed
		}
		pos += n
		switch num {
		case 1:
			if err := e.parseTypeMeta(value); err != nil {
				return e, err
			}
		case 2:
			e.Raw, e.head = value, data[:pos-n]
		case 3:
			if len(value) > 0 {
				return e, fmt.Errorf("content encoding %q in protobuf envelope", value)
			}
		}
	}
	return e, nil
}

func (e *Envelope) parseTypeMeta(b []byte) error {
	for len(b) > 0 {
		num, value, n := field(b)
		if n < 0 {
			return errMalformed
		}
		b = b[n:]
		switch num {
		case 1:
			e.APIVersion = string(value)
		case 2:
			e.Kind = string(value)
		}
	}
	return nil
}

// field reads the field at the start of b. n is the length of the field in bytes, or -1 if the field is
// malformed. value is empty unless the field is length-delimited.
func field(b []byte) (num protowire.Number, value []byte, n int) {
	num, typ, t := protowire.ConsumeTag(b)
	if t < 0 {
		return 0, nil, -1
	}
	if typ != protowire.BytesType {
		v := protowire.ConsumeFieldValue(num, typ, b[t:])
		if v < 0 {
			return 0, nil, -1
		}
		return num, nil, t + v
	}
	value, v := protowire.ConsumeBytes(b[t:])
	if v < 0 {
		return 0, nil, -1
	}
	return num, value, t + v
}

// Header encodes the envelopes of one kind.
type Header struct {
	typeMeta []byte // Prefix and the TypeMeta in field 1
}

// NewHeader returns the Header of a kind.
func NewHeader(apiVersion, kind string) Header {
	tm := protowire.AppendTag(nil, 1, protowire.BytesType)
	tm = protowire.AppendString(tm, apiVersion)
	tm = protowire.AppendTag(tm, 2, protowire.BytesType)
	tm = protowire.AppendString(tm, kind)
	b := append([]byte(nil), Prefix...)
	b = protowire.AppendTag(b, 1, protowire.BytesType)
	return Header{protowire.AppendBytes(b, tm)}
}

// Size returns the size in bytes of an envelope that contains an object of n bytes.
func (h Header) Size(n int) int {
	return len(h.typeMeta) + 1 + protowire.SizeBytes(n) + len(trailer)
}

// Begin appends the part of the envelope before an object of n bytes.
func (h Header) Begin(dst []byte, n int) []byte {
	dst = append(dst, h.typeMeta...)
	dst = protowire.AppendTag(dst, 2, protowire.BytesType)
	return protowire.AppendVarint(dst, uint64(n))
}

// End appends the part of the envelope after the object.
func (h Header) End(dst []byte) []byte { return append(dst, trailer...) }

// Wrap returns raw in an envelope.
func (h Header) Wrap(raw []byte) []byte {
	b := h.Begin(make([]byte, 0, h.Size(len(raw))), len(raw))
	return h.End(append(b, raw...))
}

// Message is implemented by the generated protobuf types of the API.
type Message interface {
	Size() int
	MarshalToSizedBuffer([]byte) (int, error)
}

// Marshal encodes m in an envelope. It makes one allocation.
func (h Header) Marshal(m Message) ([]byte, error) {
	size := m.Size()
	b := h.Begin(make([]byte, 0, h.Size(size)), size)
	start := len(b)
	b = b[:start+size]
	n, err := m.MarshalToSizedBuffer(b[start:])
	if err != nil {
		return nil, err
	}
	if n != size {
		return nil, fmt.Errorf("protobuf size changed while encoding: %d, then %d", size, n)
	}
	return h.End(b), nil
}

// Metadata returns the ObjectMeta (field 1) of the message raw. It shares memory with raw. It
// returns an error if raw is malformed or has no ObjectMeta.
func Metadata(raw []byte) ([]byte, error) {
	for len(raw) > 0 {
		num, value, n := field(raw)
		if n < 0 {
			return nil, errMalformed
		}
		if num == 1 {
			return value, nil
		}
		raw = raw[n:]
	}
	return nil, errMalformed
}

// UID returns the metadata.uid of the object in the envelope data. ok is false if data is not an
// envelope, or the object has no uid.
func UID(data []byte) (uid string, ok bool) {
	e, err := Parse(data)
	if err != nil {
		return "", false
	}
	meta, err := Metadata(e.Raw)
	if err != nil {
		return "", false
	}
	for len(meta) > 0 {
		num, value, n := field(meta)
		if n < 0 {
			return "", false
		}
		if num == uidField {
			return string(value), len(value) > 0
		}
		meta = meta[n:]
	}
	return "", false
}

// uidField is the field number of uid in ObjectMeta.
const uidField = 5

// SetResourceVersion returns a copy of the envelope data with metadata.resourceVersion set to rev,
// or removed if rev is 0. ok is false if the layout is not that of Kubernetes' encoders.
func SetResourceVersion(data []byte, rev int64) (out []byte, ok bool) {
	e, err := Parse(data)
	if err != nil || len(e.Raw) == 0 {
		return nil, false
	}
	num, typ, tag := protowire.ConsumeTag(e.Raw)
	if tag < 0 || num != 1 || typ != protowire.BytesType {
		return nil, false
	}
	meta, n := protowire.ConsumeBytes(e.Raw[tag:])
	if n < 0 {
		return nil, false
	}
	tail := e.Raw[tag+n:]
	before, after, ok := cutResourceVersion(meta)
	if !ok {
		return nil, false
	}
	var digits [20]byte
	rv := digits[:0]
	if rev != 0 {
		rv = strconv.AppendInt(rv, rev, 10)
	}
	metaLen := len(before) + 1 + protowire.SizeBytes(len(rv)) + len(after)
	rawLen := 1 + protowire.SizeBytes(metaLen) + len(tail)
	out = make([]byte, 0, len(e.head)+1+protowire.SizeBytes(rawLen)+len(trailer))
	out = append(out, e.head...)
	out = protowire.AppendTag(out, 2, protowire.BytesType)
	out = protowire.AppendVarint(out, uint64(rawLen))
	out = protowire.AppendTag(out, 1, protowire.BytesType)
	out = protowire.AppendVarint(out, uint64(metaLen))
	out = append(out, before...)
	out = protowire.AppendTag(out, 6, protowire.BytesType)
	out = protowire.AppendBytes(out, rv)
	out = append(out, after...)
	out = append(out, tail...)
	return append(out, trailer...), true
}

// cutResourceVersion returns the parts of an ObjectMeta before and after resourceVersion (field 6),
// or before and after its place if it is absent. ok is false if the fields are not in ascending
// order.
func cutResourceVersion(meta []byte) (before, after []byte, ok bool) {
	last := protowire.Number(0)
	for pos := 0; pos < len(meta); {
		num, _, n := field(meta[pos:])
		if n < 0 || num < last {
			return nil, nil, false
		}
		last = num
		switch {
		case num == 6:
			return meta[:pos], meta[pos+n:], true
		case num > 6:
			return meta[:pos], meta[pos:], true
		}
		pos += n
	}
	return meta, nil, true
}
