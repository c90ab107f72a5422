// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"bytes"
	"sync"

	"keelson.dev/apiserver/resource"
	"keelson.dev/apiserver/store"
	"keelson.dev/apiserver/wire"
)

// Renew returns what store.Config has as Renew for objects of row: what is stored is
// served as it is, so that it has to be what this server would have stored. Kubernetes
// never serves what is stored without decoding it, and fills in defaults whenever it does.
func Renew(row *resource.Row) func(data []byte) ([]byte, bool) {
	if row.Codec != nil || row.New == nil {
		return nil
	}
	r := &renewer{
		row: row, codec: Codec(row),
		header:  wire.NewHeader(row.GroupVersionKind().GroupVersion().String(), row.Kind),
		objects: sync.Pool{New: func() any { return row.New() }},
		buffers: sync.Pool{New: func() any { return new([]byte) }},
	}
	return r.renew
}

type renewer struct {
	row     *resource.Row
	codec   store.Codec
	header  wire.Header
	objects sync.Pool // that can be emptied
	buffers sync.Pool
}

func (r *renewer) renew(data []byte) ([]byte, bool) {
	if !wire.IsEnvelope(data) {
		return data, false // what is empty in JSON would be lost
	}
	raw, own := r.header.Open(data)
	if own && (r.row.Default == nil && r.row.Restore == nil || r.complete(raw)) {
		return data, false
	}
	obj, err := r.codec.Decode(data, 0)
	if err != nil {
		return data, false // the error is the reader's
	}
	renewed, err := r.codec.Encode(obj)
	if err != nil {
		return data, false
	}
	return renewed, true
}

// complete tells whether an object has all its defaults. Most have, and so it keeps
// nothing of those.
func (r *renewer) complete(raw []byte) bool {
	obj, _ := r.objects.Get().(resource.Object)
	message, ok := obj.(interface {
		protoObject
		Reset()
	})
	if !ok || message.Unmarshal(raw) != nil {
		return false
	}
	complete(r.row, obj)
	obj.SetResourceVersion("")
	same := message.Size() == len(raw) && r.writes(message, raw)
	message.Reset()
	r.objects.Put(obj)
	return same
}

// writes tells whether a message of raw's size is raw.
func (r *renewer) writes(message wire.Message, raw []byte) bool {
	buf, _ := r.buffers.Get().(*[]byte)
	defer r.buffers.Put(buf)
	if cap(*buf) < len(raw) {
		*buf = make([]byte, len(raw))
	}
	out := (*buf)[:len(raw)]
	n, err := message.MarshalToSizedBuffer(out)
	return err == nil && bytes.Equal(out[len(out)-n:], raw)
}
