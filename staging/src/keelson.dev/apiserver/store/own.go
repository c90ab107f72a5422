// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"bytes"
	"strings"
	"sync"

	"keelson.dev/apiserver/store/kv"
)

// ownWrites remembers what this server is writing, so that the watch event of a
// write needs no decoding and shares its record with the writer. Events are
// matched by key and bytes: the same bytes have the same attributes, whoever
// wrote them. The order of events stays the store's.
type ownWrites struct {
	mu    sync.Mutex
	byKey map[string][]*ownWrite
}

// ownWrite is one write under way, or written and not yet seen by the watch.
type ownWrite struct {
	key   string
	data  []byte
	attrs Attrs

	mu     sync.Mutex
	obj    Object
	record *Record
}

// expect notes a write before it is sent.
func (o *ownWrites) expect(w *ownWrite) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.byKey[w.key] = append(o.byKey[w.key], w)
}

// forget takes a write back that did not happen, or may not have.
func (o *ownWrites) forget(w *ownWrite) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.removeLocked(w)
}

func (o *ownWrites) removeLocked(w *ownWrite) {
	list := o.byKey[w.key]
	for i := range list {
		if list[i] != w {
			continue
		}
		if len(list) == 1 {
			delete(o.byKey, w.key)
		} else {
			o.byKey[w.key] = append(list[:i:i], list[i+1:]...)
		}
		return
	}
}

// latest returns the last state of an object that was written and not yet seen by
// the watch; nil if there is none. Somebody else may have changed the object since.
func (o *ownWrites) latest(key string) *Record {
	o.mu.Lock()
	defer o.mu.Unlock()
	var last *Record
	for _, w := range o.byKey[key] {
		if r := w.acknowledged(); r != nil && (last == nil || last.Revision < r.Revision) {
			last = r
		}
	}
	return last
}

// clear forgets all writes: those that happened are in the state just loaded.
func (o *ownWrites) clear() {
	o.mu.Lock()
	defer o.mu.Unlock()
	clear(o.byKey)
}

// take returns the record of an event that one of our writes has caused.
func (o *ownWrites) take(c *cache, e *kv.Event) *Record {
	key := strings.TrimPrefix(e.Key, c.prefix)
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, w := range o.byKey[key] {
		if bytes.Equal(w.data, e.Value) && w.fits(e.ModRevision) {
			o.removeLocked(w)
			return w.at(c, e.ModRevision)
		}
	}
	return nil
}

// fits reports whether the write may have got revision rev.
func (w *ownWrite) fits(rev int64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.record == nil || w.record.Revision == rev
}

// acknowledged is the write's record, nil while it is under way.
func (w *ownWrite) acknowledged() *Record {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.record
}

// at returns the record of the write at revision rev, the same one to the writer
// and to the watch.
func (w *ownWrite) at(c *cache, rev int64) *Record {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.record != nil && w.record.Revision == rev {
		return w.record
	}
	obj := w.obj
	w.obj = nil // its resourceVersion is that of one record
	if obj != nil {
		obj.SetResourceVersion(formatRevision(rev))
	}
	r := c.newRecord(w.key, rev, w.data, w.attrs, obj)
	if w.record == nil {
		w.record = r
	}
	return r
}
