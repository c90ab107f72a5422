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

// Addition is a row that comes at run time, with what it brings along.
type Addition struct {
	Row     *resource.Row
	Options RowOptions
}

// Add serves row from now on, in place of all rows of the same resource.
func (s *Server) Add(row *resource.Row, options RowOptions) error {
	return s.Change(nil, []Addition{{row, options}})
}

// Remove serves a resource no longer. Its watches end.
func (s *Server) Remove(gr schema.GroupResource) {
	_ = s.Change([]schema.GroupResource{gr}, nil) // nothing is made that could go wrong
}

// Change serves the resources that gone names no longer, and those of rows from
// now on, each in place of all rows of its resource that were there before. It
// is one step for whoever asks meanwhile. A row that cannot be served is left
// out, and told of in the error.
//
// Watches of what goes end; other requests under way come to their own end.
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

// publish makes resources the server's state, which differ from those before by
// what has changed: of a thousand resources that come one after the other, each
// is looked at once.
func (s *Server) publish(before *state, resources map[schema.GroupResource][]*endpoint, changed []schema.GroupResource) {
	st := &state{
		endpoints: maps.Clone(before.endpoints), resources: resources, groups: maps.Clone(before.groups), own: maps.Clone(before.own),
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

// acquire keeps the store open for a request until release. It reports false
// when the store has been closed already.
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

// release lets go of the store; the last to do so closes it.
func (l *life) release() {
	if l.users.Add(-1) > 0 {
		return
	}
	if l.store != nil {
		l.store.Close()
	}
}

// close ends the watches of what is served no longer.
func (l *life) close() {
	l.remove()
	l.release()
}

// Registry returns the registry of a resource, in the first of its versions if
// each has its own; nil when it is not served or stores nothing.
func (s *Server) Registry(gr schema.GroupResource) *registry.Registry {
	if list := s.state.Load().resources[gr]; len(list) > 0 {
		return list[0].registry
	}
	return nil
}

// Row returns a served row, or nil.
func (s *Server) Row(gr schema.GroupResource) *resource.Row {
	if list := s.state.Load().resources[gr]; len(list) > 0 {
		return list[0].row
	}
	return nil
}
