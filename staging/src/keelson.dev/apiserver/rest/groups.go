// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Resources returns the resources that the server serves.
func (s *Server) Resources() []schema.GroupResource {
	st := s.state.Load()
	list := make([]schema.GroupResource, 0, len(st.resources))
	for gr := range st.resources {
		list = append(list, gr)
	}
	slices.SortFunc(list, func(a, b schema.GroupResource) int { return cmp.Compare(a.String(), b.String()) })
	return list
}

// GroupVersions returns the groups and versions that the server serves, in the order of discovery.
func (s *Server) GroupVersions() []schema.GroupVersion {
	st := s.state.Load()
	var list []schema.GroupVersion
	for _, group := range append([]string{""}, st.docs().names...) {
		for _, v := range st.groups[group] {
			list = append(list, schema.GroupVersion{Group: group, Version: v})
		}
	}
	return list
}
