// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package rest

import "k8s.io/apimachinery/pkg/runtime/schema"

// GroupVersions are the groups and versions that the server has rows of, in the
// order of discovery.
func (s *Server) GroupVersions() []schema.GroupVersion {
	st := s.state.Load()
	var list []schema.GroupVersion
	for _, group := range append([]string{""}, st.docs.names...) {
		for _, v := range st.groups[group] {
			list = append(list, schema.GroupVersion{Group: group, Version: v})
		}
	}
	return list
}
