// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"keelson.dev/apiserver/registry"
	"keelson.dev/apiserver/resource"
	"keelson.dev/apiserver/store"
	"keelson.dev/apiserver/transcode"
)

func wrap(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}

// stores creates the store of each resource over the database that holds the resource's objects.
type stores struct {
	databases *databases
	types     *transcode.Types
	shared    map[schema.GroupVersionKind]*shared // the key is the kind that is stored
}

// shared is a store whose objects several rows of the kind table serve, each row in its own version
// or group.
type shared struct {
	store *store.Store
	forms []resource.StoredForm
}

// of returns the store of a built-in resource.
func (s stores) of(row *resource.Row) *store.Store {
	return s.in(s.databases.have(location(row)), row)
}

// custom returns the store of a custom resource.
func (s stores) custom(row *resource.Row) store.Interface {
	return s.in(s.databases.first(), row)
}

func (s stores) in(db *database, row *resource.Row) *store.Store {
	cfg := store.Config{
		Backend: db.backend, Prefix: row.StoragePrefix, GroupResource: row.GroupResource(), TypeName: typeName(row),
		Codec: registry.Codec(row), Attrs: registry.Attrs(row), Peek: registry.Peek(row, s.types),
		Reencode: registry.Reencode(row), FinalState: registry.FinalState(row), IndexFields: row.IndexFields,
	}
	if ttl := row.TTL; ttl != nil {
		cfg.TTL = func(obj store.Object) int64 { return ttl(obj) }
	}
	cfg.Alias = s.alias(row)
	made := store.New(cfg)
	if len(row.StoredForms) > 0 && row.StoredAs.Empty() {
		s.shared[row.GroupVersionKind()] = &shared{made, row.StoredForms}
	}
	return made
}

// typeName returns the name of Kubernetes' Go type for the objects that a row stores.
func typeName(row *resource.Row) string {
	if _, dynamic := row.New().(*unstructured.Unstructured); dynamic {
		return "*unstructured.Unstructured"
	}
	if !row.StoredAs.Empty() {
		return "*" + resource.InternalName(row.StoredAs)
	}
	return "*" + resource.InternalName(row.GroupVersionKind())
}

// alias is for a resource that serves the objects of another resource in its own form, for example
// events.k8s.io, which serves the events of the core group. It returns the store of that other
// resource, or nil if the resource has objects of its own or the other resource is not served.
func (s stores) alias(row *resource.Row) *store.Alias {
	of := s.shared[row.StoredAs]
	if of == nil || row.StoredFields == nil {
		return nil
	}
	for _, form := range of.forms {
		if form.Kind == row.GroupVersionKind() {
			convert := func(obj store.Object) (store.Object, error) { return form.ToStorage(obj) }
			return &store.Alias{Of: of.store, Fields: row.StoredFields, Convert: convert}
		}
	}
	return nil
}

// storeOf returns the store of a built-in resource.
func (a *assembly) storeOf(row *resource.Row) store.Interface {
	if row.Computed {
		return a.components(row)
	}
	s := a.stores.of(row)
	if row.NamespaceItself {
		a.namespaces = s
	}
	return s
}

// hidden returns a row of the kind table for objects that are stored but not served.
func hidden[L, T any](kind, prefix string, ttl int64) *resource.Row {
	k := resource.Kind[*T]{
		Version: "v1", Resource: prefix, Kind: kind, StoragePrefix: prefix,
		Fields: func(*T) fields.Set { return nil },
	}
	if ttl > 0 {
		k.TTL = func(*T) int64 { return ttl }
	}
	return resource.Of[L](k)
}

// portRanges returns the store of the bitmap of allocated node ports.
func (s stores) portRanges() store.ReadWriter {
	row := hidden[corev1.RangeAllocation, corev1.RangeAllocation]("RangeAllocation", "ranges", 0)
	return s.in(s.databases.have(portRangesLocation), row)
}

// serverLeases returns the store with one object per running server. An object expires ttl seconds
// after its last write.
func (s stores) serverLeases(ttl int64) store.ReadWriter {
	row := hidden[corev1.EndpointsList, corev1.Endpoints]("Endpoints", "masterleases", ttl)
	return s.in(s.databases.have(serverLeasesLocation), row)
}
