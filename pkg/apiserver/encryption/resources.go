// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package encryption

import (
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"keelson.dev/apiserver/resource"
)

// resources finds the resource to which a key belongs.
type resources struct {
	root     string // "/registry/"
	prefixes map[string]schema.GroupResource
}

// newResources collects the prefixes of keys from rows of the kind table. If several rows have the
// same prefix, the resource of the first one is used. As in Kubernetes, objects that are stored but
// not served are never encrypted: the bitmap of node ports and the leases of servers.
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

// of returns the resource to which a key of the key-value store belongs. It returns false if the
// key does not belong to an object that is served.
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
	if deeper && strings.Contains(first, ".") { // the key is that of a custom resource
		return schema.GroupResource{Group: first, Resource: second}, true
	}
	return schema.GroupResource{}, false
}
