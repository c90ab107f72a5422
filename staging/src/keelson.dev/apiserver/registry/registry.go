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

// Config configures a registry. Only Scheme, Store and Clock are required.
type Config struct {
	// What is stored, and where it is stored.

	Scheme *runtime.Scheme
	Store  func(*resource.Row) store.Interface
	Clock  clock.Clock
	// KeyRoot is the beginning of all keys in the store, which some errors contain. If it is empty,
	// it is "/registry".
	KeyRoot string

	// Rules of writes. All fields are optional.

	// Admission runs for every write: mutating plugins first, validating plugins after the kind's
	// rules have accepted the object.
	Admission admission.Interface
	// Authorizer decides whether the user may create an object if an update or an apply creates
	// one.
	Authorizer authorizer.UnconditionalAuthorizer
	// TypeConverter has the schemas for managedFields. If it is nil, no managedFields are kept.
	TypeConverter managedfields.TypeConverter
	// Ownership caches the parts of compiled schemas that several kinds share. If it is nil,
	// apimachinery computes all managedFields, which is slow.
	Ownership *ownership.Types
	// NamespaceCheck decides whether a namespace accepts a new object, at the time when the object
	// is stored. If it is nil, only Admission decides.
	NamespaceCheck NamespaceCheck
	// NoGarbageCollection reports that no garbage collector runs in the cluster. Deletes then
	// neither add nor remove the garbage collector's finalizers, whatever the request says.
	NoGarbageCollection bool
	// Structure removes unknown fields from an object of a served version that a patch or a plugin
	// has changed, and validates its structure. If unknown is true, it also returns the findings of
	// strict field validation. It may be nil.
	Structure func(version string, obj resource.Object, unknown bool) (findings []error, err error)
	// Random returns the suffix of a generated name. If it is nil, apimachinery's generator is used.
	Random func(n int) string
	// UID returns the uid of a new object. If it is nil, uids are random.
	UID func() types.UID
}

// NamespaceCheck returns an error if the namespace of the create that a describes does not accept
// new objects. Otherwise it returns conditions that must hold when the object is stored. If latest
// is false, the check may use cached state. If the store finds that a condition does not hold, the
// check is repeated with latest.
type NamespaceCheck func(ctx context.Context, a admission.Attributes, latest bool) ([]kv.Unchanged, error)

// UpdateFunc computes the new object from the current one, which it may modify and return. cur is
// nil if the object does not exist and the update may create it.
type UpdateFunc func(ctx context.Context, cur resource.Object) (resource.Object, error)

// Update describes one update.
type Update struct {
	// The object to update.

	Namespace, Name string
	// Subresource is the name of the view to write, for example "status". If it is empty, the update
	// writes the object itself.
	Subresource string
	// Version is the served version that the request is made in. If it is empty, it is the storage
	// version.
	Version string

	// The new object.

	Transform UpdateFunc
	// Blind reports that Transform does not need the current object. Its argument cur is then nil.
	Blind bool
	// OwnFields reports that Transform maintains managedFields itself.
	OwnFields bool
	// As presents the object to admission as another kind. Its function Change is used instead of
	// Transform. It may be nil.
	As *Facade

	// Options and conditions.

	Options metav1.UpdateOptions
	// Preconditions must hold for the current object. Otherwise the update fails with 409 Conflict.
	Preconditions *metav1.Preconditions
	// CreateAbsent lets the update create an absent object even if the row of the kind table does
	// not set AllowCreateOnUpdate.
	CreateAbsent bool
	// SkipAdmission is set for updates that the server makes for its own purposes.
	SkipAdmission bool
}

// Facade presents an object as an object of another kind, for example autoscaling/v1 Scale.
type Facade struct {
	Kind schema.GroupVersionKind
	// Of returns the view of obj as the other kind.
	Of func(obj resource.Object) (resource.Object, error)
	// Change computes the new view of the object, calls admit to run the mutating plugins on it,
	// and returns cur with the changes of the view applied.
	Change func(ctx context.Context, cur resource.Object, admit AdmitFunc) (resource.Object, error)
}

// AdmitFunc runs the mutating plugins on the new view of the object, the argument shown. The
// argument before is the view of the current object.
type AdmitFunc func(shown, before resource.Object) error

// Patch is a patch of an object or one of its views.
type Patch struct {
	Namespace, Name      string
	Subresource, Version string
	Type                 types.PatchType
	Data                 []byte
	Options              metav1.PatchOptions
}
