// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"keelson.dev/keelson/test/soak/history"
)

// watcher watches one resource, over several connections in succession.
type watcher struct {
	s      *soak
	api    *api
	res    *resource
	name   string
	random *rand.Rand

	segments []history.Segment
	// reached is the resource version of the last event that was received.
	reached atomic.Int64
}

// list has the fields of the response to a list request that watcher uses.
type list struct {
	Metadata metadata `json:"metadata"`
	Items    []object `json:"items"`
}

// run lists and watches until ctx ends. The segments may be read only after it has returned.
func (w *watcher) run(ctx context.Context) {
	for pause(ctx, 100*time.Millisecond) {
		l := &list{}
		if w.api.do(ctx, http.MethodGet, w.res.path, nil, l).outcome != history.Acknowledged {
			continue
		}
		segment := history.Segment{Watcher: w.name, From: number(l.Metadata.ResourceVersion), Initial: map[string]int64{}}
		for _, o := range l.Items {
			segment.Initial[w.res.key(o.Metadata.Name)] = o.version()
		}
		w.segments = append(w.segments, segment)
		w.follow(ctx, &w.segments[len(w.segments)-1])
	}
}

// follow watches from the last resource version that was received, until the server responds that
// this version is no longer available.
func (w *watcher) follow(ctx context.Context, segment *history.Segment) {
	w.reached.Store(segment.From)
	for gone := false; !gone && ctx.Err() == nil; {
		gone = w.connection(ctx, segment)
		pause(ctx, 50*time.Millisecond)
	}
}

// connection sends one watch request and reads its events. It returns true if the server responds
// that the resource version is no longer available.
func (w *watcher) connection(ctx context.Context, segment *history.Segment) (gone bool) {
	// The server ends the watch after limit seconds. If the connection stays open for a minute
	// longer, the server was killed.
	limit := 20 + w.random.IntN(40)
	ctx, cancel := context.WithTimeout(ctx, time.Duration(limit+60)*time.Second)
	defer cancel()
	url := fmt.Sprintf("%s%s?watch=true&allowWatchBookmarks=true&timeoutSeconds=%d&resourceVersion=%d",
		w.api.url, w.res.path, limit, segment.To())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		w.s.violatef("watch: %v", err)
		return false
	}
	req.Header.Set("Accept", "application/json")
	resp, err := w.api.http.Do(req)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return resp.StatusCode == http.StatusGone
	}
	segment.Connections++
	for decoder := json.NewDecoder(resp.Body); ; {
		var event struct {
			Type   history.EventType `json:"type"`
			Object json.RawMessage   `json:"object"`
		}
		if decoder.Decode(&event) != nil {
			return false
		}
		if event.Type == "ERROR" {
			return strings.Contains(string(event.Object), `"code":410`)
		}
		o := &object{}
		if err := json.Unmarshal(event.Object, o); err != nil {
			w.s.violatef("%s: event %s", w.name, event.Object)
			return false
		}
		e := history.Event{Type: event.Type, Version: o.version(), At: w.s.at()}
		if e.Type != history.Bookmark {
			e.Key, e.Value = w.res.key(o.Metadata.Name), w.res.value(o)
		}
		segment.Events = append(segment.Events, e)
		w.reached.Store(e.Version)
	}
}

// belongs reports whether a key is in the resource that the watcher watches. Keys and names of
// watchers begin with the resource.
func belongs(watcher, key string) bool {
	resource, _, _ := strings.Cut(key, "/")
	return strings.HasPrefix(watcher, resource+"#")
}
