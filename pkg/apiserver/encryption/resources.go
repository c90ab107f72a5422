// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package encryption

import (
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"keelson.dev/apiserver/resource"
)

// resources knows the resource of a key.
type resources struct {
	root     string // "/registry/"
	prefixes map[string]schema.GroupResource
}

// newResources reads the prefixes of rows. Of several resources with one prefix
// the first counts. What is stored and not served (ranges, leases of servers) is
// never encrypted, as in Kubernetes.
func newResources(root string, rows []*resource.Row) *resources {
	r := &resources{root: strings.TrimSuffix(root, "/") + "/", prefixes: map[string]schema.GroupResource{}}
	for _, row := range rows {
		prefix := strings.Trim(row.StoragePrefix, "/")
		if _, ok := r.prefixes[prefix]; !ok {
			r.prefixes[prefix] = row.GroupResource()
		}
	}
	return r
}

// of is the resource of a key; false: the key is no object's.
func (r *resources) of(key string) (schema.GroupResource, bool) {
	rel, ok := strings.CutPrefix(key, r.root)
	if !ok {
		return schema.GroupResource{}, false
	}
	first, rest, ok := strings.Cut(rel, "/")
	if !ok {
		return schema.GroupResource{}, false
	}
	second, _, deeper := strings.Cut(rest, "/")
	for _, prefix := range []string{first + "/" + second, first} {
		if gr, ok := r.prefixes[prefix]; ok {
			return gr, true
		}
	}
	if deeper && strings.Contains(first, ".") { // a custom resource
		return schema.GroupResource{Group: first, Resource: second}, true
	}
	return schema.GroupResource{}, false
}
