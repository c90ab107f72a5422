// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"sync"
	"weak"
)

// Record is one revision of one object. It is immutable but for the encodings
// it remembers and the place where its bytes are, and safe for concurrent use.
type Record struct {
	Key      string // "<namespace>/<name>" or "<name>"
	Revision int64  // the object's resourceVersion
	Attrs

	size    int  // of the stored bytes
	broken  bool // they cannot be decoded
	renewed bool // they are not what is stored, see Config.Renew; does not change once others see the record
	codec   Codec
	budget  *formBudget // nil: what is remembered is kept as long as the record

	encoding sync.Mutex // held while a form is made

	mu     sync.Mutex
	data   []byte               // stored bytes, never modified; nil when they are packed
	pack   *pack                // that has them
	slot   int32                // where
	loose  bool                 // they are not to be packed
	making bool                 // an object decoded now serves one encoding, and is not kept
	obj    Object               // decoded form, if it is at hand
	forms  map[Form][]byte      // encodings already made
	twin   weak.Pointer[Record] // see twinAs
}

// NewRecord returns a record of data. obj is its decoded form where the caller
// has it at hand, or nil; it belongs to the record from then on.
func NewRecord(key string, rev int64, data []byte, attrs Attrs, codec Codec, obj Object) *Record {
	return &Record{Key: key, Revision: rev, data: data, size: len(data), Attrs: attrs, codec: codec, obj: obj}
}

// Bytes returns the stored bytes, which callers do not modify or keep.
func (r *Record) Bytes() []byte {
	r.mu.Lock()
	data, pack, slot := r.data, r.pack, r.slot
	r.mu.Unlock()
	if pack != nil {
		return pack.bytes(slot)
	}
	return data
}

// Use calls f with the stored bytes, which are f's to read until it returns: what
// Bytes returns may have to be copied.
func (r *Record) Use(f func(data []byte)) {
	r.mu.Lock()
	data, pack, slot := r.data, r.pack, r.slot
	r.mu.Unlock()
	if pack != nil {
		pack.use(slot, f)
		return
	}
	f(data)
}

// packedIn returns the pack that has the bytes; loose says that they are in none
// and may be packed.
func (r *Record) packedIn() (in *pack, loose bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.pack, r.pack == nil && !r.loose
}

// move puts the bytes into a pack, which has them.
func (r *Record) move(to *pack, slot int32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.data, r.pack, r.slot = nil, to, slot
}

func (r *Record) stayLoose() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.loose = true
}

func (r *Record) staysLoose() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.loose
}

// weight is the memory that the bytes take.
func (r *Record) weight() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.pack != nil {
		return r.pack.share(r.size)
	}
	return int64(r.size)
}

// Object returns the decoded object, which is the caller's own to modify.
func (r *Record) Object() (obj Object, err error) {
	r.Use(func(data []byte) { obj, err = r.codec.Decode(data, r.Revision) })
	return obj, err
}

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
	r.budget.spend(r, objectCost*r.size)
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

// ReadPart is Read for what needs a part of the object only, which part decodes of
// the stored bytes if it can; nil cannot.
func (r *Record) ReadPart(part func(data []byte) (Object, bool)) (obj Object, err error) {
	r.mu.Lock()
	obj = r.obj
	r.mu.Unlock()
	if obj != nil {
		return obj, nil
	}
	ok := false
	if part != nil {
		r.Use(func(data []byte) { obj, ok = part(data) })
	}
	if ok {
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

// last returns the state that an object ended in whose end has the revision rev.
// For end see Config.End.
func (r *Record) last(rev int64, end func([]byte) ([]byte, bool)) *Record {
	var data []byte
	var changed bool
	if end != nil {
		r.Use(func(stored []byte) { data, changed = end(stored) })
	}
	if !changed {
		return r.at(rev)
	}
	last := NewRecord(r.Key, rev, data, r.Attrs, r.codec, nil)
	last.budget = r.budget
	return last
}

// at returns the record's state under another revision, for an object whose
// end, or whose leaving of a selection, has a revision of its own.
func (r *Record) at(rev int64) *Record {
	last := NewRecord(r.Key, rev, nil, r.Attrs, r.codec, nil)
	last.budget, last.size = r.budget, r.size
	r.mu.Lock()
	defer r.mu.Unlock()
	last.data, last.pack, last.slot, last.loose = r.data, r.pack, r.slot, r.loose
	return last
}
