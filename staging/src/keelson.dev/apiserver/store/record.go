// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import "sync"

// Record is one revision of one object. It is immutable but for the encodings
// it remembers, and safe for concurrent use.
type Record struct {
	Key      string // "<namespace>/<name>" or "<name>"
	Revision int64  // the object's resourceVersion
	Data     []byte // stored bytes; never modified
	Attrs

	codec Codec

	mu    sync.Mutex
	obj   Object          // decoded form, if somebody needed it lately
	forms map[Form][]byte // encodings already made
}

// NewRecord returns a record of data. obj is its decoded form where the caller
// has it at hand, or nil.
func NewRecord(key string, rev int64, data []byte, attrs Attrs, codec Codec, obj Object) *Record {
	return &Record{Key: key, Revision: rev, Data: data, Attrs: attrs, codec: codec, obj: obj}
}

// Object returns the decoded object, which is the caller's own to modify.
func (r *Record) Object() (Object, error) { return r.codec.Decode(r.Data, r.Revision) }

// Encoded returns the record in form f, made by encode at the first need and
// shared afterwards: callers do not modify it.
func (r *Record) Encoded(f Form, encode func(*Record) ([]byte, error)) ([]byte, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if b, ok := r.forms[f]; ok {
		return b, nil
	}
	b, err := encode(r)
	if err != nil {
		return nil, err
	}
	if r.forms == nil {
		r.forms = make(map[Form][]byte, 1)
	}
	r.forms[f] = b
	return b, nil
}
