// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"sync"
	"weak"
)

// Record is one revision of one object: its stored bytes, the attributes by which it is selected,
// and the encodings made of it. It is safe for concurrent use.
//
// Invariant: the object that a record represents never changes. Where its bytes are (in data or in
// packed) and which encodings it keeps may change at any time.
type Record struct {
	Key      string // "<namespace>/<name>" or "<name>"
	Revision int64  // the object's resourceVersion
	Attrs

	// These fields do not change once other goroutines can see the record.
	size      int  // size of the stored bytes
	broken    bool // the stored bytes cannot be decrypted or decoded
	reencoded bool // the bytes differ from those in the key-value store, see Config.Reencode
	codec     Codec
	budget    *formBudget // nil if the record keeps its encodings as long as it exists

	encoding sync.Mutex // held while an encoding is computed

	// mu guards the fields below.
	mu sync.Mutex
	// The stored bytes, never modified, are in data, or at index slot of packed.
	data           []byte
	packed         *packedBytes
	slot           int32
	incompressible bool // compressing the bytes does not save enough

	// The fields below hold forms of the object that can be computed again.
	obj        Object               // decoded object, or nil
	decodeOnce bool                 // drop obj after its next use: it is needed for one encoding only
	forms      map[Form][]byte      // encodings
	alias      weak.Pointer[Record] // see sharedWithCodec
}

// NewRecord returns a record of the stored bytes data, which codec decodes. obj is the decoded
// object, or nil; the caller must not use it afterwards.
func NewRecord(key string, rev int64, data []byte, attrs Attrs, codec Codec, obj Object) *Record {
	return &Record{Key: key, Revision: rev, data: data, size: len(data), Attrs: attrs, codec: codec, obj: obj}
}

// Bytes returns the stored bytes, which callers must not modify. If they are packed, it copies
// them; Use does not.
func (r *Record) Bytes() []byte {
	r.mu.Lock()
	data, packed, slot := r.data, r.packed, r.slot
	r.mu.Unlock()
	if packed != nil {
		return packed.bytes(slot)
	}
	return data
}

// Use calls f with the record's stored bytes. f may read them until it returns.
func (r *Record) Use(f func(data []byte)) {
	r.mu.Lock()
	data, packed, slot := r.data, r.packed, r.slot
	r.mu.Unlock()
	if packed != nil {
		packed.use(slot, f)
		return
	}
	f(data)
}

// packedIn returns the packedBytes that contain the record, or nil. packable reports whether the
// record is not packed but could be.
func (r *Record) packedIn() (in *packedBytes, packable bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.packed, r.packed == nil && !r.incompressible
}

// moveTo makes the record refer to its bytes at index slot of packed.
func (r *Record) moveTo(packed *packedBytes, slot int32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.data, r.packed, r.slot = nil, packed, slot
}

func (r *Record) markIncompressible() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.incompressible = true
}

func (r *Record) isIncompressible() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.incompressible
}

// weight returns the memory size of the stored bytes: the compressed size if they are packed
// (compressed together with those of other records).
func (r *Record) weight() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.packed != nil {
		return r.packed.share(r.size)
	}
	return int64(r.size)
}

// Object decodes the object. The caller may modify the result. The error is an UnreadableError.
func (r *Record) Object() (obj Object, err error) {
	r.Use(func(data []byte) { obj, err = r.codec.Decode(data, r.Revision) })
	if err != nil {
		return nil, &UnreadableError{r.Key, r.Revision, err}
	}
	return obj, nil
}

// Shared returns the decoded object. All callers get the same one and must not modify it. An object
// that this server has just written is not decoded again. Other objects are decoded once and kept
// while the budget for decoded objects allows it.
func (r *Record) Shared() (Object, error) {
	r.mu.Lock()
	obj, once := r.obj, r.decodeOnce
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

// Read is like Shared, but does not keep an object that it had to decode. It is for callers that
// read every object once.
func (r *Record) Read() (Object, error) {
	r.mu.Lock()
	obj := r.obj
	r.mu.Unlock()
	if obj != nil {
		return obj, nil
	}
	return r.Object()
}

// ReadPart is like Read, for callers that need only a part of the object. The function part decodes
// this part from the stored bytes. If part is nil or returns false, ReadPart returns the whole
// object.
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

// Remembered returns the encoding in form f if the record keeps it.
func (r *Record) Remembered(f Form) ([]byte, bool) { return r.form(f) }

// Encoded returns the record in form f. The first call makes the encoding with encode, and later
// calls return the same bytes while the record keeps them. Callers must not modify them. Concurrent
// calls for the same record wait for each other. The function encode may call Object and Shared. An
// error comes from encode.
func (r *Record) Encoded(f Form, encode func(*Record) ([]byte, error)) ([]byte, error) {
	if b, ok := r.form(f); ok {
		return b, nil
	}
	r.encoding.Lock()
	defer r.encoding.Unlock()
	if b, ok := r.form(f); ok {
		return b, nil
	}
	r.setDecodeOnce(true)
	b, err := encode(r)
	r.setDecodeOnce(false)
	if err != nil {
		return nil, err
	}
	r.remember(f, b)
	r.budget.spend(r, len(b))
	return b, nil
}

func (r *Record) setDecodeOnce(once bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.decodeOnce = once
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

// forget drops the record's decoded object and all its encodings.
func (r *Record) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.obj, r.forms = nil, nil
}

// last returns the final state of an object that was deleted at revision rev; r is the state before
// the deletion. finalState is Config.FinalState and may be nil.
func (r *Record) last(rev int64, finalState func([]byte) ([]byte, bool)) *Record {
	var data []byte
	var changed bool
	if finalState != nil {
		r.Use(func(stored []byte) { data, changed = finalState(stored) })
	}
	if !changed {
		return r.at(rev)
	}
	last := NewRecord(r.Key, rev, data, r.Attrs, r.codec, nil)
	last.budget = r.budget
	return last
}

// at returns a record of the same state with another revision: that at which the object was deleted
// or ceased to match a selector.
func (r *Record) at(rev int64) *Record {
	last := NewRecord(r.Key, rev, nil, r.Attrs, r.codec, nil)
	last.budget, last.size, last.broken = r.budget, r.size, r.broken
	r.mu.Lock()
	defer r.mu.Unlock()
	last.data, last.packed, last.slot, last.incompressible = r.data, r.packed, r.slot, r.incompressible
	return last
}
