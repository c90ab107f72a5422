// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package customresources

import (
	"bytes"
	"encoding/json"
	"maps"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"keelson.dev/api/clock"
	"keelson.dev/apiserver/resource"
	"keelson.dev/apiserver/store"
)

// patience is how long a cache waits for a webhook before it treats an object as having no
// selectable fields. The caches of all resources wait meanwhile.
const patience = time.Second

// remoteCodec is a codec of a definition whose versions a webhook converts. A cache needs the
// labels and fields of each object before it can process the next change, of any resource. It
// cannot wait for them as long as a webhook may take.
type remoteCodec struct {
	codec
	fields func(resource.Object) fields.Set // nil if only name and namespace are selectable
	asking *asking
}

// Peek returns the labels and fields of a stored object. It uses the stored labels, because a
// conversion must not change labels. If the webhook does not answer in time, the selectable fields
// of the version are missing: no selector on these fields finds the object until the object changes
// or is loaded again.
func (c remoteCodec) Peek(data []byte) (store.Attrs, bool) {
	var stored struct {
		APIVersion string `json:"apiVersion"`
		Metadata   struct {
			Name      string            `json:"name"`
			Namespace string            `json:"namespace"`
			Labels    map[string]string `json:"labels"`
		} `json:"metadata"`
	}
	if json.Unmarshal(data, &stored) != nil {
		return store.Attrs{}, false
	}
	gv, err := schema.ParseGroupVersion(stored.APIVersion)
	if err != nil || gv.Version == c.version {
		return store.Attrs{}, false // Decode reports errors, and handles objects that need no webhook
	}
	set := fields.Set{"metadata.name": stored.Metadata.Name}
	if stored.Metadata.Namespace != "" {
		set["metadata.namespace"] = stored.Metadata.Namespace
	}
	if c.fields != nil {
		own := bytes.Clone(data)
		maps.Copy(set, c.asking.soon(func() fields.Set {
			obj, err := c.Decode(own, 0)
			if err != nil {
				return nil
			}
			return c.fields(obj)
		}))
	}
	return store.Attrs{Labels: labels.Set(stored.Metadata.Labels), Fields: set}, true
}

// asking bounds how long caches wait for one webhook. One cache waits at a time. If a call takes
// longer than patience, the other caches do not wait until it has ended.
type asking struct {
	clock clock.Clock
	turn  chan struct{} // semaphore of size 1, held by the cache that waits
	since atomic.Int64  // start of the current call, in nanoseconds; 0 if no call is in progress
}

func newAsking(c clock.Clock) *asking { return &asking{clock: c, turn: make(chan struct{}, 1)} }

// soon returns the result of find, or nil if find takes longer than patience. An abandoned find
// ends at the webhook's own timeout.
func (a *asking) soon(find func() fields.Set) fields.Set {
	if since := a.since.Load(); since != 0 && a.clock.Now().Sub(time.Unix(0, since)) >= patience {
		return nil
	}
	end := a.clock.After(patience)
	select {
	case a.turn <- struct{}{}:
	case <-end:
		return nil
	}
	a.since.Store(a.clock.Now().UnixNano())
	found := make(chan fields.Set, 1)
	go func() {
		set := find()
		a.since.Store(0)
		<-a.turn
		found <- set
	}()
	select {
	case set := <-found:
		return set
	case <-end:
		return nil
	}
}
