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

	// Rules of writes. All fields are optional.

	// Admission runs for every write: mutating plugins first, validating plugins after the kind's
	// rules have accepted the object.
	Admission admission.Interface
	// Authorizer decides about "create" if an update or an apply creates the object.
	Authorizer authorizer.Authorizer
	// TypeConverter has the schemas for managedFields. If it is nil, no managedFields are kept.
	TypeConverter managedfields.TypeConverter
	// Ownership caches what the managedFields of several kinds share. If it is nil, apimachinery
	// computes all managedFields, which is slow.
	Ownership *ownership.Types
	// NamespaceCheck decides, at the moment when an object is stored, whether its namespace accepts
	// new objects. If it is nil, only Admission decides.
	NamespaceCheck NamespaceCheck
	// NoGarbageCollection says that no garbage collector runs. Deletes then neither add nor remove the
	// garbage collector's finalizers, whatever the request says.
	NoGarbageCollection bool
	// Structure prunes and checks an object of a served version that a patch or a plugin has
	// changed. If unknown is true, it also returns the findings of strict field validation. It may
	// be nil.
	Structure func(version string, obj resource.Object, unknown bool) (findings []error, err error)
	// Random returns the suffix of a generated name. If it is nil, apimachinery's generator is used.
	Random func(n int) string
	// UID returns the uid of a new object. If it is nil, uids are random.
	UID func() types.UID
}

// NamespaceCheck rejects the create that a describes if its namespace does not accept new objects.
// Otherwise it returns the conditions under which the namespace still accepts them when the object
// is stored. If latest is false, the check may use cached state; the store then finds that the
// conditions do not hold, and the check is repeated with latest.
type NamespaceCheck func(ctx context.Context, a admission.Attributes, latest bool) ([]kv.Unchanged, error)

// UpdateFunc computes the new object from the current one, which it may modify and return. cur is
// nil if the object does not exist and the update may create it.
type UpdateFunc func(ctx context.Context, cur resource.Object) (resource.Object, error)

// Update describes one update.
type Update struct {
	// What is updated.

	Namespace, Name string
	// Subresource is the name of the view to write, for example "status". If it is empty, the update
	// writes the object itself.
	Subresource string
	// Version is the served version that the request is made in. If it is empty, it is the storage
	// version.
	Version string

	// The new object.

	Transform UpdateFunc
	// Blind says that Transform does not need the current object: it gets nil.
	Blind bool
	// OwnFields says that Transform maintains managedFields itself.
	OwnFields bool
	// As presents the object to admission as another kind, and replaces Transform. It may be nil.
	As *Facade

	// What is allowed.

	Options metav1.UpdateOptions
	// Preconditions reject the update with 409 Conflict unless they hold.
	Preconditions *metav1.Preconditions
	// CreateAbsent allows the update to create the object, whatever the row says.
	CreateAbsent bool
	// SkipAdmission is set for the server's own bookkeeping.
	SkipAdmission bool
}

// Facade presents an object as one of another kind, for example autoscaling/v1 Scale.
type Facade struct {
	Kind schema.GroupVersionKind
	// Of returns the other kind's view of obj.
	Of func(obj resource.Object) (resource.Object, error)
	// Change computes the new view from that of cur, calls admit to run the mutating plugins over the
	// new view, and returns cur with the changes of the view applied.
	Change func(ctx context.Context, cur resource.Object, admit AdmitFunc) (resource.Object, error)
}

// AdmitFunc runs the mutating plugins over the new view shown, whose old state is before.
type AdmitFunc func(shown, before resource.Object) error

// Patch is a patch of an object or one of its views.
type Patch struct {
	Namespace, Name      string
	Subresource, Version string
	Type                 types.PatchType
	Data                 []byte
	Options              metav1.PatchOptions
}
