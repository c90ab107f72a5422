// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"keelson.dev/api/clock"
	"keelson.dev/apiserver/ownership"
	"keelson.dev/apiserver/resource"
	"keelson.dev/apiserver/store"
	"keelson.dev/apiserver/store/kv"
)

// Config is what registries are made from. All but Scheme, Store and Clock may
// be left out.
type Config struct {
	Scheme *runtime.Scheme
	Store  func(*resource.Row) store.Interface
	Clock  clock.Clock
	// Admission is asked for every write: mutating plugins first, validating
	// plugins after the strategy accepted the object.
	Admission admission.Interface
	// Authorizer is asked for "create" where an update or an apply creates.
	Authorizer authorizer.Authorizer
	// TypeConverter gives managedFields their schemas; nil keeps no managedFields.
	TypeConverter managedfields.TypeConverter
	// Ownership keeps what the managedFields of several kinds have in common;
	// nil leaves all of them to apimachinery, which is slow.
	Ownership *ownership.Types
	// NamespaceCheck decides whether objects may be created in a namespace at the moment
	// when they are stored; nil: they may be, if Admission accepts them.
	NamespaceCheck NamespaceCheck
	// NoGarbageCollection says that no garbage collector runs: a delete neither asks it
	// for anything nor takes back what it was asked for, whatever the request says.
	NoGarbageCollection bool
	// Structure prunes and checks an object that a patch made, in a served
	// version; it returns what strict field validation has to say when unknown
	// is true. Nil: nothing.
	Structure func(version string, obj resource.Object, unknown bool) (findings []error, err error)
	// Random returns the suffix of a generated name; nil: apimachinery's.
	Random func(n int) string
	// UID makes the uid of a new object; nil: a random one.
	UID func() types.UID
}

// NamespaceCheck refuses the creation that a describes if its namespace does not accept new
// objects. Otherwise it returns the conditions under which the namespace still accepts them.
// latest asks for the latest state of the namespace. Otherwise the answer may be out of date: the
// conditions do not hold then.
type NamespaceCheck func(ctx context.Context, a admission.Attributes, latest bool) ([]kv.Unchanged, error)

// UpdateFunc makes the wanted object from the present one, which is its own to
// modify and return. cur is nil when the object does not exist and the update
// may create it.
type UpdateFunc func(ctx context.Context, cur resource.Object) (resource.Object, error)

// Update says what to write and how.
type Update struct {
	Namespace, Name string
	// Subresource is the view that is written ("status"); empty: the object.
	Subresource string
	// Version is the served version the request is in; empty: the storage version.
	Version   string
	Transform UpdateFunc
	// Blind says that Transform does not look at the present object: it is given
	// none.
	Blind   bool
	Options metav1.UpdateOptions
	// Preconditions refuse the update with 409 unless they hold.
	Preconditions *metav1.Preconditions
	// CreateAbsent lets the update create, whatever the row says.
	CreateAbsent bool
	// OwnFields says that Transform has kept managedFields itself.
	OwnFields bool
	// As is what admission sees instead of the object, and what is changed; nil: the
	// object, by Transform.
	As *Facade
	// SkipAdmission is for the server's own bookkeeping.
	SkipAdmission bool
}

// Facade shows an object as one of another kind (autoscaling/v1 Scale).
type Facade struct {
	Kind schema.GroupVersionKind
	// Of is what obj looks like.
	Of func(obj resource.Object) (resource.Object, error)
	// Change changes what cur looks like, has admit run the mutating plugins over that,
	// and returns cur with all of it.
	Change func(ctx context.Context, cur resource.Object, admit AdmitFunc) (resource.Object, error)
}

// AdmitFunc runs the mutating plugins over shown, which follows before.
type AdmitFunc func(shown, before resource.Object) error

// Patch is a patch of an object or one of its views.
type Patch struct {
	Namespace, Name      string
	Subresource, Version string
	Type                 types.PatchType
	Data                 []byte
	Options              metav1.PatchOptions
}
