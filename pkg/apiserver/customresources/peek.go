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

// patience is how long a cache waits for a webhook to say which fields an object can
// be selected by. The caches of all resources wait with it.
const patience = time.Second

// remoteCodec is a codec of a definition whose versions a webhook converts. A cache
// must know by what an object can be selected before it goes on to the next change,
// of whatever resource, and may not wait as long for that as a webhook may take.
type remoteCodec struct {
	codec
	fields func(resource.Object) fields.Set // nil: none but name and namespace
	asking *asking
}

// Peek returns by what a stored object can be selected. Its labels are those that are
// stored: a conversion changes none without changing what the object belongs to. The
// fields of its version are missing if the webhook does not name them in time: then no
// selector of them finds the object until it changes or is loaded again.
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
		return store.Attrs{}, false // what is wrong, or needs no webhook, is for Decode
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

// asking bounds how long caches wait for one webhook: one asks at a time, and as long
// as one has been waiting in vain, the others do not wait.
type asking struct {
	clock clock.Clock
	turn  chan struct{} // holds one
	since atomic.Int64  // when the present one began, in nanoseconds; 0 if there is none
}

func newAsking(c clock.Clock) *asking { return &asking{clock: c, turn: make(chan struct{}, 1)} }

// soon returns what find finds, or nil if that takes longer than a cache may wait. The
// webhook's own time limit ends a find that nobody waits for.
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
