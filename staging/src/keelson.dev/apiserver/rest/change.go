// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"errors"
	"fmt"
	"maps"
	"slices"

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
	var errs []error
	added := make(map[schema.GroupResource][]*endpoint)
	for _, a := range rows {
		e, err := s.newEndpoint(a.Row, a.Options)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", a.Row.GroupResource(), err))
			continue
		}
		added[a.Row.GroupResource()] = append(added[a.Row.GroupResource()], e)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	resources := maps.Clone(s.state.Load().resources)
	var closing []*endpoint
	for _, gr := range gone {
		closing = append(closing, resources[gr]...)
		delete(resources, gr)
	}
	for gr, list := range added {
		closing = append(closing, resources[gr]...)
		resources[gr] = list
	}
	s.publish(resources)
	for _, e := range closing {
		e.close()
	}
	return errors.Join(errs...)
}

// publish makes resources the server's state.
func (s *Server) publish(resources map[schema.GroupResource][]*endpoint) {
	st := &state{
		endpoints: make(map[schema.GroupVersionResource]*endpoint, len(resources)),
		resources: resources, groups: make(map[string][]string), own: make(map[string]bool),
	}
	for _, list := range resources {
		for _, e := range list {
			if e.row.Only == "" {
				st.own[e.row.Group] = true
			}
			for v := range e.views {
				st.endpoints[e.row.GroupResource().WithVersion(v)] = e
				if !slices.Contains(st.groups[e.row.Group], v) {
					st.groups[e.row.Group] = append(st.groups[e.row.Group], v)
				}
			}
		}
	}
	for _, versions := range st.groups {
		sortVersions(versions)
	}
	st.docs = s.newDocuments(st)
	s.state.Store(st)
}

// acquire keeps the endpoint's store open for a request until release. It
// reports false when the endpoint has been closed already.
func (e *endpoint) acquire() bool {
	for {
		n := e.users.Load()
		if n == 0 {
			return false
		}
		if e.users.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// release lets go of the endpoint; the last to do so closes the store.
func (e *endpoint) release() {
	if e.users.Add(-1) > 0 || e.registry == nil {
		return
	}
	if c, ok := e.registry.Store().(interface{ Close() }); ok {
		c.Close()
	}
}

// close ends the watches of an endpoint that is served no longer.
func (e *endpoint) close() {
	e.remove()
	e.release()
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
