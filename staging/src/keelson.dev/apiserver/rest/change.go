// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"keelson.dev/apiserver/registry"
	"keelson.dev/apiserver/resource"
)

// Addition is a row of the kind table that is added while the server runs, with its options.
type Addition struct {
	Row     *resource.Row
	Options RowOptions
}

// Add starts serving the resource that row, a row of the kind table, declares. It replaces all rows
// of the same resource.
func (s *Server) Add(row *resource.Row, options RowOptions) error {
	return s.Change(nil, []Addition{{row, options}})
}

// Remove stops serving a resource and ends its watches.
func (s *Server) Remove(gr schema.GroupResource) {
	_ = s.Change([]schema.GroupResource{gr}, nil) // a change without additions cannot fail
}

// Change stops serving the resources in the argument gone and starts serving those that rows (of
// the kind table) declare. Each row replaces all previous rows of its resource. Each request sees
// either the state before the change or the state after it. A row that cannot be served is left
// out, and the error describes why.
//
// Watches of removed resources end. All other requests in progress are completed.
func (s *Server) Change(gone []schema.GroupResource, rows []Addition) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	before := s.state.Load()
	added := make(map[schema.GroupResource][]*endpoint)
	kept := make(map[*life]bool)
	for _, a := range rows {
		gr := a.Row.GroupResource()
		e, err := s.newEndpoint(a.Row, a.Options, before.endpoints[gr.WithVersion(a.Row.Version)])
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", gr, err))
			continue
		}
		added[gr] = append(added[gr], e)
		kept[e.life] = true
	}
	resources := maps.Clone(before.resources)
	var closing []*endpoint
	for _, gr := range gone {
		closing = append(closing, resources[gr]...)
		delete(resources, gr)
	}
	for gr, list := range added {
		closing = append(closing, resources[gr]...)
		resources[gr] = list
	}
	s.publish(before, resources, append(slices.Collect(maps.Keys(added)), gone...))
	for _, e := range closing {
		if !kept[e.life] {
			e.close()
		}
	}
	return errors.Join(errs...)
}

// publish makes resources the resources of the server's new state. It updates only what belongs to
// changed resources, because otherwise adding a thousand resources one after the other would take
// quadratic time.
func (s *Server) publish(before *state, resources map[schema.GroupResource][]*endpoint,
	changed []schema.GroupResource) {
	st := &state{
		endpoints: maps.Clone(before.endpoints), resources: resources, groups: maps.Clone(before.groups),
		own: maps.Clone(before.own),
	}
	groups := make(map[string]bool)
	for _, gr := range changed {
		for _, e := range before.resources[gr] {
			for v := range e.views {
				delete(st.endpoints, gr.WithVersion(v))
			}
		}
		for _, e := range resources[gr] {
			for v := range e.views {
				st.endpoints[gr.WithVersion(v)] = e
			}
		}
		delete(st.groups, gr.Group)
		delete(st.own, gr.Group)
		groups[gr.Group] = true
	}
	for gr, list := range resources {
		if !groups[gr.Group] {
			continue
		}
		for _, e := range list {
			if e.behaviour.inRouter() {
				st.own[gr.Group] = true
			}
			for v := range e.views {
				if !slices.Contains(st.groups[gr.Group], v) {
					st.groups[gr.Group] = append(st.groups[gr.Group], v)
				}
			}
		}
	}
	for group := range groups {
		sortVersions(st.groups[group])
	}
	st.parts = s.partsBefore()
	st.docs = sync.OnceValue(func() *documents { return s.newDocuments(st) })
	s.state.Store(st)
}

func newLife(identity string) *life {
	l := &life{identity: identity}
	l.users.Store(1)
	l.done, l.remove = context.WithCancel(context.Background())
	return l
}

// acquire keeps the store open for a request until release is called. It returns false if the store
// has already been closed.
func (l *life) acquire() bool {
	for {
		n := l.users.Load()
		if n == 0 {
			return false
		}
		if l.users.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// release ends a request's use of the store. The store is closed when its last user has called
// release.
func (l *life) release() {
	if l.users.Add(-1) > 0 {
		return
	}
	if l.store != nil {
		l.store.Close()
	}
}

// close ends the watches of a resource that is no longer served, and releases its store.
func (l *life) close() {
	l.remove()
	l.release()
}

// Registry returns the registry of a resource. If each version has a registry, it returns that of
// the first version. It returns nil if the resource is not served or stores nothing.
func (s *Server) Registry(gr schema.GroupResource) *registry.Registry {
	if list := s.state.Load().resources[gr]; len(list) > 0 {
		return list[0].registry
	}
	return nil
}

// Row returns the row of the kind table for a served resource, or nil if the resource is not
// served.
func (s *Server) Row(gr schema.GroupResource) *resource.Row {
	if list := s.state.Load().resources[gr]; len(list) > 0 {
		return list[0].row
	}
	return nil
}
