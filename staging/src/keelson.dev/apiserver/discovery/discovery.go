// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package discovery makes Kubernetes' discovery documents from the rows of the kind table (package
// resource). They list the groups, versions and resources of a server, in the older form
// (APIGroupList, APIResourceList) and in the aggregated form (apidiscovery.k8s.io). The package has
// no state and no side effects.
package discovery

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"slices"

	apidiscovery "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"

	"keelson.dev/apiserver/resource"
)

// Verbs returns the verbs of a resource, sorted.
func Verbs(row *resource.Row) []string {
	switch {
	case row.Verbs != nil:
		return slices.Sorted(slices.Values(row.Verbs))
	case row.Ephemeral:
		return []string{"create"}
	}
	return []string{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}
}

// listedVerbs returns the verbs that discovery lists for a resource.
func listedVerbs(row *resource.Row) []string {
	if row.ListedVerbs != nil {
		return row.ListedVerbs
	}
	return Verbs(row)
}

// SortVersions sorts versions in Kubernetes' order of preference: v2, v1, v1beta1 ...
func SortVersions(versions []string) {
	slices.SortFunc(versions, func(a, b string) int { return version.CompareKubeAwareVersionStrings(b, a) })
}

// StorageVersionHash returns a hash of the version that a resource is stored in.
func StorageVersionHash(group, version, kind string) string {
	sum := sha256.Sum256([]byte(group + "/" + version + "/" + kind))
	return base64.StdEncoding.EncodeToString(sum[:8])
}

// Resources returns those of the resources in rows that are served in a version. All of them must
// be of one group.
func Resources(rows []*resource.Row, version string) []metav1.APIResource {
	list := []metav1.APIResource{}
	for _, row := range sorted(rows) {
		if !row.Serves(version) {
			continue
		}
		r := metav1.APIResource{
			Name: row.Resource, SingularName: row.Singular, Namespaced: row.Namespaced, Kind: row.Kind,
			Verbs: listedVerbs(row), ShortNames: row.ShortNames, Categories: row.Categories,
		}
		if !row.Ephemeral && !row.Computed {
			stored := row.StoredAs
			if stored.Empty() {
				stored = row.GroupVersionKind()
			}
			r.StorageVersionHash = StorageVersionHash(stored.Group, stored.Version, stored.Kind)
		}
		list = append(list, r)
		for i := range row.Subresources {
			s := &row.Subresources[i]
			list = append(list, subresource(row, s, version))
		}
	}
	return list
}

// sorted returns the resources in rows, sorted by name.
func sorted(rows []*resource.Row) []*resource.Row {
	return slices.SortedFunc(slices.Values(rows),
		func(a, b *resource.Row) int { return cmp.Compare(a.Resource, b.Resource) })
}

func subresource(row *resource.Row, s *resource.RowSub, version string) metav1.APIResource {
	kind := kindOf(row, s, version)
	return metav1.APIResource{
		Name: row.Resource + "/" + s.Name, Namespaced: row.Namespaced,
		Group: kind.Group, Version: kind.Version, Kind: kind.Kind, Verbs: slices.Sorted(slices.Values(s.Verbs)),
	}
}

// kindOf returns the kind of a subresource. Group and version are empty if they are those of the
// resource.
func kindOf(row *resource.Row, s *resource.RowSub, version string) schema.GroupVersionKind {
	switch {
	case s.Kind.Empty():
		return schema.GroupVersionKind{Kind: row.Kind}
	case s.Kind.Group == row.Group && s.Kind.Version == version:
		return schema.GroupVersionKind{Kind: s.Kind.Kind}
	}
	return s.Kind
}

// Group returns the description of a group for an APIGroupList. versions are in order of
// preference.
func Group(name string, versions []string) metav1.APIGroup {
	g := metav1.APIGroup{Name: name}
	for _, v := range versions {
		gv := schema.GroupVersion{Group: name, Version: v}
		g.Versions = append(g.Versions, metav1.GroupVersionForDiscovery{GroupVersion: gv.String(), Version: v})
	}
	if len(g.Versions) > 0 {
		g.PreferredVersion = g.Versions[0]
	}
	return g
}

// Aggregated returns the description of a group for an APIGroupDiscoveryList (apidiscovery.k8s.io).
func Aggregated(name string, versions []string, rows []*resource.Row) apidiscovery.APIGroupDiscovery {
	g := apidiscovery.APIGroupDiscovery{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, v := range versions {
		g.Versions = append(g.Versions, apidiscovery.APIVersionDiscovery{
			Version: v, Resources: aggregatedResources(rows, v), Freshness: apidiscovery.DiscoveryFreshnessCurrent,
		})
	}
	return g
}

func aggregatedResources(rows []*resource.Row, version string) []apidiscovery.APIResourceDiscovery {
	var list []apidiscovery.APIResourceDiscovery
	for _, row := range sorted(rows) {
		if !row.Serves(version) {
			continue
		}
		r := apidiscovery.APIResourceDiscovery{
			Resource: row.Resource, SingularResource: row.Singular, Scope: apidiscovery.ScopeCluster,
			ResponseKind: responseKind(row, schema.GroupVersionKind{Kind: row.Kind}), Verbs: listedVerbs(row),
			ShortNames: row.ShortNames, Categories: row.Categories,
		}
		if row.Namespaced {
			r.Scope = apidiscovery.ScopeNamespace
		}
		for i := range row.Subresources {
			s := &row.Subresources[i]
			r.Subresources = append(r.Subresources, apidiscovery.APISubresourceDiscovery{
				Subresource: s.Name, ResponseKind: responseKind(row, kindOf(row, s, version)),
				Verbs: slices.Sorted(slices.Values(s.Verbs)),
			})
		}
		list = append(list, r)
	}
	return list
}

// responseKind returns kind as aggregated discovery lists it. Group and version are empty if they
// are those of the resource, except for custom resources: Kubernetes serves these from another
// server, which fills them in.
func responseKind(row *resource.Row, kind schema.GroupVersionKind) *metav1.GroupVersionKind {
	if row.Custom && kind.Version == "" {
		kind.Group, kind.Version = row.Group, row.Version
	}
	out := metav1.GroupVersionKind(kind)
	return &out
}
