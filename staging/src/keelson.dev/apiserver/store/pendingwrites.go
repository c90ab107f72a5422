// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"bytes"
	"strings"
	"sync"

	"keelson.dev/apiserver/store/kv"
)

// pendingWrites holds the writes of this server that its watch has not delivered yet. When the
// event of such a write arrives, the cache takes the record that the writer already has, and
// decodes nothing. The next write of the same object starts from that record too.
//
// An event belongs to a write if key and bytes are equal. The event may be that of another server's
// write of the same bytes; the record is still right, because equal bytes have equal attributes.
// The order of events is always that of the watch.
//
// Invariant: a write is in pendingWrites from before it is sent until its event arrives, it fails,
// or the cache is loaded again.
type pendingWrites struct {
	mu    sync.Mutex
	byKey map[string][]*pendingWrite
}

// pendingWrite is one write that is in progress, or that is acknowledged but whose event the watch
// has not delivered yet.
type pendingWrite struct {
	key   string
	data  []byte
	attrs Attrs

	mu     sync.Mutex
	obj    Object  // the written object; nil once record has it
	record *Record // nil until the write is acknowledged or delivered
}

func newPendingWrites() *pendingWrites {
	return &pendingWrites{byKey: map[string][]*pendingWrite{}}
}

// add records a write of an object that is about to be sent to the key-value store.
func (p *pendingWrites) add(w *pendingWrite) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.byKey[w.key] = append(p.byKey[w.key], w)
}

// remove removes a pending write that failed or whose result is unknown.
func (p *pendingWrites) remove(w *pendingWrite) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.removeLocked(w)
}

func (p *pendingWrites) removeLocked(w *pendingWrite) {
	list := p.byKey[w.key]
	for i := range list {
		if list[i] != w {
			continue
		}
		if len(list) == 1 {
			delete(p.byKey, w.key)
		} else {
			p.byKey[w.key] = append(list[:i:i], list[i+1:]...)
		}
		return
	}
}

// latest returns the newest acknowledged state of an object that the watch has not delivered, or
// nil. Another server may have changed the object since then.
func (p *pendingWrites) latest(key string) *Record {
	p.mu.Lock()
	defer p.mu.Unlock()
	var last *Record
	for _, w := range p.byKey[key] {
		if r := w.acknowledged(); r != nil && (last == nil || last.Revision < r.Revision) {
			last = r
		}
	}
	return last
}

// clear removes all pending writes after the cache was loaded: the loaded state contains those that
// succeeded.
func (p *pendingWrites) clear() {
	p.mu.Lock()
	defer p.mu.Unlock()
	clear(p.byKey)
}

// take removes the write that caused event e and returns its record, or nil if this server made no
// such write.
func (p *pendingWrites) take(c *cache, e *kv.Event) *Record {
	key := strings.TrimPrefix(e.Key, c.prefix)
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, w := range p.byKey[key] {
		if bytes.Equal(w.data, e.Value) && w.mayHave(e.ModRevision) {
			p.removeLocked(w)
			return w.recordAt(c, e.ModRevision)
		}
	}
	return nil
}

// mayHave reports whether rev may be the revision of the write: the write is in progress, or has
// this revision.
func (w *pendingWrite) mayHave(rev int64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.record == nil || w.record.Revision == rev
}

// acknowledged returns the record of the write, or nil while the write is in progress.
func (w *pendingWrite) acknowledged() *Record {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.record
}

// recordAt returns the record of the write at revision rev. The writer and the watch get the same
// record.
func (w *pendingWrite) recordAt(c *cache, rev int64) *Record {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.record != nil && w.record.Revision == rev {
		return w.record
	}
	obj := w.obj
	w.obj = nil // the object gets the resourceVersion of this record, so no other record may use it
	if obj != nil {
		obj.SetResourceVersion(formatRevision(rev))
	}
	r := c.newRecord(w.key, rev, w.data, w.attrs, obj)
	if w.record == nil {
		w.record = r
	}
	return r
}
