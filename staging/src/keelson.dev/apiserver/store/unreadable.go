// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"time"

	"keelson.dev/apiserver/store/kv"
)

const (
	// recoverInterval is how often the server tries to decrypt objects again.
	recoverInterval = time.Second
	// recoverTries is the number of objects of a resource that the server tries to decrypt each time.
	// They are chosen at random.
	recoverTries = 4
)

// sealedBytes stands for the stored bytes of a record that cannot be decrypted. No codec accepts it.
const sealedBytes = "k8s:enc:"

// sealedCodec is the codec of a record that cannot be decrypted. It returns the error of the decryption.
type sealedCodec struct {
	Codec
	err error
}

// Decode implements Codec.
func (c sealedCodec) Decode([]byte, int64) (Object, error) { return nil, c.err }

// newSealed returns the record of an item that cannot be decrypted.
func (c *cache) newSealed(key string, it *kv.Item) *Record {
	r := c.newRecord(key, it.ModRevision, []byte(sealedBytes), Attrs{}, nil)
	r.codec, r.broken = sealedCodec{c.codec, it.Err}, true
	return r
}

// sealed reports whether the record cannot be decrypted.
func (r *Record) sealed() bool {
	_, ok := r.codec.(sealedCodec)
	return ok
}

// noteReadableLocked updates c.unreadable after an object has changed. cur is nil if it was deleted.
func (c *cache) noteReadableLocked(key string, cur *Record) {
	if cur == nil || !cur.broken {
		delete(c.unreadable, key)
		return
	}
	c.unreadable[key] = true
	if cur.sealed() {
		select {
		case c.b.sealed <- struct{}{}:
		default:
		}
	}
}

// endWatchesLocked ends all watches, because they cannot deliver the last change: the state of an
// object before or after it cannot be read. As in Kubernetes, no later watch can start before this
// change. So clients list again, and see which objects cannot be read.
func (c *cache) endWatchesLocked() {
	c.watchers.endAll(c.window.floor)
	c.window.reset(c.rev)
}

// runRecovery loads caches again whose objects could not be decrypted before and now can be, until
// ctx is done.
func (b *Backend) runRecovery(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-b.sealed:
		}
		for again := true; again && sleep(ctx, b.clock, recoverInterval); {
			again = false
			for _, c := range b.caches.all() {
				again = c.recover(ctx) || again
			}
		}
	}
}

// recover tries to decrypt objects again. If one of them can be read now, the cache is loaded again.
// It returns false if all objects can be decrypted.
func (c *cache) recover(ctx context.Context) bool {
	tries := c.sealedRecords(recoverTries)
	for _, r := range tries {
		item, _, err := c.b.kv.Get(ctx, c.prefix+r.Key)
		if err == nil && item != nil && item.Err == nil && item.ModRevision == r.Revision {
			c.log.Info("An object can be decrypted again", "key", r.Key)
			c.reset(0, time.Time{})
			break
		}
	}
	return len(tries) > 0
}

// sealedRecords returns up to limit records that cannot be decrypted.
func (c *cache) sealedRecords(limit int) []*Record {
	c.mu.RLock()
	defer c.mu.RUnlock()
	var out []*Record
	for key := range c.unreadable {
		if len(out) == limit {
			break
		}
		if r := c.records.get(key); r != nil && r.sealed() {
			out = append(out, r)
		}
	}
	return out
}
