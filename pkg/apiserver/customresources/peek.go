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

// patience is how long a cache waits for a conversion webhook to get the selectable fields of an
// object. Then it continues without these fields. While one cache waits, the caches of all
// resources wait.
const patience = time.Second

// remoteCodec is the codec of a CustomResourceDefinition with a conversion webhook. Before a cache
// can process the next change of any resource, it needs the labels and selectable fields of the
// changed object. remoteCodec limits how long the cache waits for the webhook to convert that
// object.
type remoteCodec struct {
	codec
	fields func(resource.Object) fields.Set // reads the selectable fields; nil if only name and namespace are selectable
	asking *asking
}

// Peek returns the labels and selectable fields of a stored object. It takes the labels from the
// stored form, because a conversion must not change them. If the webhook does not answer in time,
// the fields of the version are missing, and requests that select by them do not find the object,
// until it changes or is loaded again.
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
		return store.Attrs{}, false // Decode handles objects that need no webhook, and reports errors
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

// asking limits how long caches wait for one webhook. Only one cache waits for it at a time. Once a
// call takes longer than patience, no cache waits for the webhook until that call has ended.
type asking struct {
	clock clock.Clock
	turn  chan struct{} // semaphore of size 1, held during a call of the webhook
	since atomic.Int64  // start of the call in progress, in Unix nanoseconds; 0 if there is none
}

func newAsking(c clock.Clock) *asking { return &asking{clock: c, turn: make(chan struct{}, 1)} }

// soon calls find, which calls the webhook, and returns its result. It returns nil if the result
// takes longer than patience. find then continues in the background until the webhook's own
// timeout.
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
