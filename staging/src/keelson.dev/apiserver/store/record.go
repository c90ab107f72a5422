// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"maps"
	"sync"
)

// Record is one revision of one object. It is immutable but for the encodings
// it remembers, and safe for concurrent use.
type Record struct {
	Key      string // "<namespace>/<name>" or "<name>"
	Revision int64  // the object's resourceVersion
	Data     []byte // stored bytes; never modified
	Attrs

	codec  Codec
	budget *formBudget // nil: what is remembered is kept as long as the record

	encoding sync.Mutex // held while a form is made

	mu     sync.Mutex
	obj    Object          // decoded form, if it is at hand
	forms  map[Form][]byte // encodings already made
	making bool            // an object decoded now serves one encoding, and is not kept
}

// NewRecord returns a record of data. obj is its decoded form where the caller
// has it at hand, or nil; it belongs to the record from then on.
func NewRecord(key string, rev int64, data []byte, attrs Attrs, codec Codec, obj Object) *Record {
	return &Record{Key: key, Revision: rev, Data: data, Attrs: attrs, codec: codec, obj: obj}
}

// Object returns the decoded object, which is the caller's own to modify.
func (r *Record) Object() (Object, error) { return r.codec.Decode(r.Data, r.Revision) }

// Shared returns the decoded object for reading only: others see it too. What
// this server has just written is at hand; other objects are decoded at the
// first need and kept for a while.
func (r *Record) Shared() (Object, error) {
	r.mu.Lock()
	obj, once := r.obj, r.making
	r.mu.Unlock()
	if obj != nil {
		return obj, nil
	}
	obj, err := r.Object()
	if err != nil || once {
		return obj, err
	}
	r.mu.Lock()
	if r.obj == nil {
		r.obj = obj
	}
	obj = r.obj
	r.mu.Unlock()
	r.budget.spend(r, objectCost*len(r.Data))
	return obj, nil
}

// Read returns the decoded object for reading only, like Shared, but does not keep
// one that it had to decode: for what reads every object once.
func (r *Record) Read() (Object, error) {
	r.mu.Lock()
	obj := r.obj
	r.mu.Unlock()
	if obj != nil {
		return obj, nil
	}
	return r.Object()
}

// Remembered returns the record in form f if that has been made and not forgotten.
func (r *Record) Remembered(f Form) ([]byte, bool) { return r.form(f) }

// Encoded returns the record in form f, made by encode at the first need and
// shared afterwards: callers do not modify it. While one caller encodes, others
// who want an encoding wait; encode may call Object and Shared.
func (r *Record) Encoded(f Form, encode func(*Record) ([]byte, error)) ([]byte, error) {
	if b, ok := r.form(f); ok {
		return b, nil
	}
	r.encoding.Lock()
	defer r.encoding.Unlock()
	if b, ok := r.form(f); ok {
		return b, nil
	}
	r.setMaking(true)
	b, err := encode(r)
	r.setMaking(false)
	if err != nil {
		return nil, err
	}
	r.remember(f, b)
	r.budget.spend(r, len(b))
	return b, nil
}

func (r *Record) setMaking(making bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.making = making
}

func (r *Record) form(f Form) ([]byte, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	b, ok := r.forms[f]
	return b, ok
}

func (r *Record) remember(f Form, b []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.forms == nil {
		r.forms = make(map[Form][]byte, 1)
	}
	r.forms[f] = b
}

// forget drops what can be made again.
func (r *Record) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.obj, r.forms = nil, nil
}

// at returns the record's state under another revision, for an object whose
// end, or whose leaving of a selection, has a revision of its own.
func (r *Record) at(rev int64) *Record {
	last := NewRecord(r.Key, rev, r.Data, r.Attrs, r.codec, nil)
	last.budget = r.budget
	return last
}

// share takes over from an object's former attributes those that are equal, so
// that the revisions of an object that the window holds share them.
func (a *Attrs) share(prev *Record) {
	if prev == nil {
		return
	}
	if maps.Equal(a.Labels, prev.Labels) {
		a.Labels = prev.Labels
	}
	if maps.Equal(a.Fields, prev.Attrs.Fields) {
		a.Fields = prev.Attrs.Fields
	}
}
