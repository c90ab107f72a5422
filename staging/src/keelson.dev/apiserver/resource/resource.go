// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package resource declares what a server has to know about a kind: one Row of the kind table.
// Handlers, discovery, OpenAPI, watch caches and printed tables are all derived from rows. A
// resource is declared nowhere else.
//
// Built-in kinds are literals of Kind, typed by their Go type; Of makes their Row. For custom
// resources, the server makes a Row at run time. Servers treat both in the same way.
//
// A row is complete when it is built, and does not change afterwards. Rules of a row (defaults,
// preparation, validation, columns) are pure: no I/O, no clock, no state. They run concurrently, on
// objects that no other goroutine uses. If a rule needs more, such as an authorizer, its
// constructor gets it when the table is built.
package resource

import (
	"math"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"keelson.dev/apiserver/store"
)

// Object is an API object in the Go type that is encoded for clients.
type Object = store.Object

// CellEnv has what a cell of a printed Table may depend on in addition to the object that the
// cell's row shows.
type CellEnv struct {
	// Age prints the time since t as kubectl does ("5m", "<unknown>" for zero).
	Age func(t metav1.Time) string
}

// GroupVersionKind returns the kind in the storage version.
func (k *Kind[O]) GroupVersionKind() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: k.Group, Version: k.Version, Kind: k.Kind}
}

// Serves reports whether the resource is served in a version.
func (k *Kind[O]) Serves(version string) bool {
	if k.Custom {
		return version == k.Version
	}
	return k.ServedVersion(version) != nil
}

// ServedVersion returns the served version with a name, or nil.
func (k *Kind[O]) ServedVersion(version string) *Version {
	for i := range k.Versions {
		if k.Versions[i].Name == version {
			return &k.Versions[i]
		}
	}
	return nil
}

// UpdatesUnconditionally reports whether PUT without resourceVersion overwrites the object in a version.
func (k *Kind[O]) UpdatesUnconditionally(version string) bool {
	v := k.ServedVersion(version)
	return k.AllowUnconditionalUpdate || v != nil && v.AllowUnconditionalUpdate
}

// ReturnsDeleted reports whether the response to a delete in a version is the object's last state.
func (k *Kind[O]) ReturnsDeleted(version string) bool {
	v := k.ServedVersion(version)
	return k.ReturnDeleted || v != nil && v.ReturnDeleted
}

// Subresource returns the subresource with a name, or nil.
func (k *Kind[O]) Subresource(name string) *Sub[O] {
	for i := range k.Subresources {
		if k.Subresources[i].Name == name {
			return &k.Subresources[i]
		}
	}
	return nil
}

// GroupResource returns the name of the resource in errors and authorization.
func (k *Kind[O]) GroupResource() schema.GroupResource {
	return schema.GroupResource{Group: k.Group, Resource: k.Resource}
}

// Version is one served version of a resource. The storage version needs no conversion.
type Version struct {
	Name string
	// New, FromStorage and ToStorage are set for versions that have their own types. Other versions
	// use the resource's types.
	New         func() Object
	NewList     func() runtime.Object
	FromStorage func(Object) (Object, error)
	ToStorage   func(Object) (Object, error)
	// Default applies this version's defaults if it is not the storage version.
	Default    func(Object)
	Deprecated string // warning that is sent with each use of the version

	// Introduced and Removed are the minor versions of the first Kubernetes release that serves the
	// version, and of the first one that serves it no longer. 0 means that there is no limit.
	Introduced, Removed uint

	// AllowUnconditionalUpdate and ReturnDeleted are set if the fields of the same names in Kind apply
	// only to requests in this version.
	AllowUnconditionalUpdate, ReturnDeleted bool
}

// StoredForm is a kind and version, other than the resource's own, in which objects of the resource
// may have been stored.
type StoredForm struct {
	Kind schema.GroupVersionKind
	New  func() Object
	// ToStorage converts an object to the resource's own type. The result may share memory with the
	// argument.
	ToStorage func(Object) (Object, error)
}

// Subresource is a path below an object.
type Subresource struct {
	Name  string   // "status", "scale", "log", "proxy" ...
	Verbs []string // listed in discovery; for example get, update and patch for "status"
	// Kind is the kind of the requests and responses, for example autoscaling/v1 Scale, policy/v1
	// Eviction or v1 Binding. If it is empty, that is the resource's own kind.
	Kind schema.GroupVersionKind

	// View reports whether the subresource shows the object of its parent resource, as status,
	// ephemeralcontainers and resize do. The functions in Sub then prepare and validate the object.
	// Scale serves "scale"; Create or Connect serves all other subresources.
	View         bool
	ResetFields  []string
	MetaOnUpdate MetaChecks
	// NoTable reports whether the subresource is never returned as a Table.
	NoTable bool

	// Scale converts between the object and autoscaling/v1 Scale. It is set for "scale" only.
	Scale *Scale
	// Create answers POST of an object (binding, eviction, token). Otherwise it is nil.
	Create *Creator
	// Connect answers all requests (log, exec, attach, portforward, proxy). Otherwise it is nil.
	Connect ConnectFunc
	// Traffic is the kind of data that passes through Connect.
	Traffic Traffic
}

// Traffic is the kind of data that passes through a subresource, such as API objects or a stream of
// text.
type Traffic int

const (
	// Objects are API objects.
	Objects Traffic = iota
	// Text is a stream of text to the client (log).
	Text
	// Stream is data of any type to and from a process (exec, attach, portforward).
	Stream
	// Proxied are HTTP requests of any method to another server. Their path on that server follows
	// the name of the subresource.
	Proxied
)

// WithMetaChecks returns a copy of s whose updates repeat the given checks of metadata.
func (s Subresource) WithMetaChecks(checks MetaChecks) Subresource {
	s.MetaOnUpdate = checks
	return s
}

// WithoutTable returns a copy of s with NoTable set.
func (s Subresource) WithoutTable() Subresource {
	s.NoTable = true
	return s
}

// Connects reports whether Traffic is Stream or Proxied: the client exchanges data of any type with
// a process or another server.
func (s Subresource) Connects() bool {
	return s.Traffic == Stream || s.Traffic == Proxied
}

// NoReplicas is the value of Scale.Get for an object without a number of replicas.
const NoReplicas = math.MinInt32

// Scale reads and writes the number of replicas of a scalable object.
type Scale struct {
	Get func(obj Object) (spec, status int32, selector string, err error)
	Set func(obj Object, replicas int32)
	// SpecPath is the path of the number of replicas in managedFields, for example "spec.replicas".
	SpecPath string
	// Paths maps each version to its SpecPath, if versions have different ones. A version that is
	// missing has no number of replicas.
	Paths map[string]string
}
