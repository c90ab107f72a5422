// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"keelson.dev/apiserver/store"
)

// Row is a row of the kind table: a kind as servers use it. Its functions take any object of the
// kind.
type Row = Kind[Object]

// Kind is one resource of one API group. O is the type of its objects in the storage version. A nil
// function means the default behaviour, which each field states.
//
// A server calls the functions in this order:
//
//	create: decode, Default, mutating admission, PrepareCreate, Validate, Canonicalize, validating admission, store
//	update: decode, Default, mutating admission, PrepareUpdate, ValidateUpdate, Canonicalize, validating admission, store
//
// The server itself is responsible for ObjectMeta (validation of names, labels, owner references,
// immutable fields, generateName, uid, timestamps, finalizers, managedFields). The functions see
// it, and validate only what is particular to the kind.
type Kind[O any] struct {
	// Names of the resource and of its kind.

	Group      string
	Resource   string // plural, as in paths
	Singular   string // Kind in lower case if empty
	Kind       string
	ListKind   string // Kind + "List" if empty
	ShortNames []string
	Categories []string
	Namespaced bool
	// NamespaceItself reports whether objects of the kind are namespaces. Admission treats such an
	// object as if it were in the namespace with its own name.
	NamespaceItself bool

	// Versions, verbs and paths.

	// Version is the version that objects are stored in. O is its type.
	Version string
	// Versions are the served versions, preferred first. If it is empty, the function Of sets it to
	// Version.
	Versions []Version
	// Verbs are the verbs that clients may use. Nil means create, delete, deletecollection, get,
	// list, patch, update and watch.
	Verbs []string
	// ListedVerbs are the verbs that discovery lists. It is set if the server accepts verbs that
	// discovery does not list.
	ListedVerbs []string
	// OnByDefault reports whether the resource's alpha and beta versions are served unless an
	// operator turns them off. Other resources are served only in stable versions by default.
	OnByDefault bool
	// Feature names a feature gate. A server has the resource only if the gate is enabled. If
	// Feature is empty, every server has the resource.
	Feature string
	// Gated are the fields of objects that only servers with other features have. See DropGated.
	Gated []Gated[O]
	// Custom reports whether this row of the kind table is for one version of a custom resource.
	// Each version has a row of its own, because schema, subresources and columns may differ. The
	// row serves only Version; Versions are all versions of the resource. Requests are routed and
	// answered as Kubernetes does for custom resources.
	Custom bool
	// Subresources are the paths below an object, in the order of discovery. The function Of sorts
	// them by name.
	Subresources []Sub[O]

	// How objects are stored and decoded.

	// New and NewList return empty objects of the storage version. The function Of sets them.
	New     func() Object
	NewList func() runtime.Object
	// StoragePrefix is the path of the resource's keys below /registry/. If it is empty, Of sets it
	// to the name of the resource ("pods"). It must be the path that Kubernetes uses, which
	// sometimes differs ("services/specs", "minions") or includes the group ("<group>/<resource>").
	StoragePrefix string
	// StoredAs is the kind and version in which Codec stores objects. It is empty if that is the
	// resource's own kind and storage version.
	StoredAs schema.GroupVersionKind
	// StoredFields is set if the row of the kind table for the kind StoredAs serves the same
	// objects and lists this kind in its StoredForms. It maps selectable fields to their names in
	// that row, if the names differ.
	StoredFields map[string]string
	// StoredForms are other kinds and versions in which objects of this kind may have been stored:
	// kinds of other groups, and versions that are no longer served. As in Kubernetes, a patch may
	// change apiVersion and kind of an object to one of them.
	StoredForms []StoredForm
	// Twin is the row of the kind table for the resource that serves the same objects in another API
	// group, or nil. Each of the two rows has the other's kind in its StoredForms.
	Twin *Row
	// Scheme has further kinds in which stored bytes may be declared, or further versions that have
	// the same fields. It is nil if there are none.
	Scheme *runtime.Scheme
	// Codec encodes and decodes stored objects. Nil means the scheme's encoding.
	Codec store.Codec
	// Peek returns the labels and selectable fields of stored bytes that Codec has written. It
	// returns false if the object must be decoded. It is nil if decoding is the fastest way.
	Peek func(data []byte) (store.Attrs, bool)
	// Ephemeral reports whether the resource's objects are not stored (reviews in
	// authentication.k8s.io and authorization.k8s.io).
	Ephemeral bool
	// Create answers POST to an ephemeral resource.
	Create *Creator
	// Connect answers POST to an ephemeral resource if Creator does not fit, because the request is
	// not one object (batches). It reads the body itself, and must limit its size.
	Connect ConnectFunc
	// Computed reports whether the resource is read-only, because its store computes the objects
	// and stores nothing.
	Computed bool
	// TTL returns the number of seconds for which an object is kept (3600 for events); 0 means that
	// it does not expire.
	TTL func(obj O) int64

	// The rules of the kind.

	// Default fills unset fields. It also runs on objects read from storage.
	Default func(obj O)
	// Restore sets fields that are missing in objects stored by older servers. It is for fields
	// that Default must not set, because clients have to. It runs on objects read from storage,
	// after Default.
	Restore func(obj O)
	// DefaultsChanged reports whether Default or Restore sets fields that older servers did not
	// store. The server then decodes each object once when it loads it, to add these fields. Stored
	// objects of other rows are assumed to have all of them.
	DefaultsChanged bool
	// Readable returns an error if a decoded object cannot be used, for example because an
	// annotation that represents a field has an invalid value. Stored objects are always readable.
	Readable func(obj O) error
	// PrepareCreate drops the fields that a client may not set on create (status) and sets those
	// that the server decides. It may be nil.
	PrepareCreate func(ctx context.Context, obj O)
	// Validate returns all errors in a new object.
	Validate func(ctx context.Context, obj O) field.ErrorList
	// PrepareUpdate copies from old the fields that this endpoint may not change (status) and
	// increments metadata.generation if spec changed.
	PrepareUpdate func(ctx context.Context, obj, old O)
	// ValidateUpdate returns all errors in the change from old to obj. It includes the errors of
	// Validate if Kubernetes' update validation of the kind does.
	ValidateUpdate func(ctx context.Context, obj, old O) field.ErrorList
	// Warnings returns warnings that are sent to the client with a successful response. old is nil
	// on create.
	Warnings func(ctx context.Context, obj, old O) []string
	// Canonicalize changes a valid object to the form in which it is stored, if several objects
	// mean the same.
	Canonicalize func(obj O)
	// FillEmpty sets the fields that Kubernetes encodes even in an empty object. The object in a
	// bookmark is empty.
	FillEmpty func(obj O)
	// Hooks update other state together with objects, for example allocated addresses.
	Hooks Hooks[O]

	// Metadata.

	// ValidateName returns the errors in metadata.name, or in metadata.generateName if prefix is
	// true. Nil means that names must be DNS subdomains (apimachinery's NameIsDNSSubdomain).
	ValidateName func(name string, prefix bool) []string
	// AnyFinalizer allows finalizers that are neither standard ones nor qualified by a domain.
	AnyFinalizer bool
	// MetaLast reports whether the metadata of a new object is validated only if nothing else is
	// wrong with the object, as Kubernetes does for kinds whose own validation omits the metadata.
	MetaLast bool
	// MetaOnUpdate says which checks of metadata are repeated by an update through the main
	// endpoint (not a subresource).
	MetaOnUpdate MetaChecks
	// HiddenAnnotations are annotations in which a version stores values of fields. Clients see
	// them in the whole object, but not in a response with only its metadata.
	HiddenAnnotations []string

	// Field selectors.

	// Fields returns the selectable fields in addition to metadata.name and metadata.namespace.
	Fields func(obj O) fields.Set
	// FieldPaths are the fields that Fields reads, in addition to metadata ("spec.nodeName"). With
	// them, objects can be selected without decoding the other fields. Nil means that Fields may
	// read all fields.
	FieldPaths []string
	// IndexFields are selectable fields for which the store keeps an index, because many watches
	// select by them.
	IndexFields []string
	// SelectableFields are the fields that clients may use in field selectors, in addition to
	// metadata.name and metadata.namespace, which are always allowed.
	SelectableFields []string
	// UnknownField is the error for any other field in a selector, with %[1]s for the field. Empty
	// means the error that most kinds have. A resource without SelectableFields and UnknownField
	// accepts metadata.namespace even if its objects are not namespaced, like most of Kubernetes'
	// kinds.
	UnknownField string

	// Updates and deletes.

	// AllowCreateOnUpdate reports whether PUT of an absent object creates it (leases, endpoints,
	// RBAC ...).
	AllowCreateOnUpdate bool
	// AllowUnconditionalUpdate reports whether PUT without resourceVersion overwrites the object.
	AllowUnconditionalUpdate bool
	// ResetFields are paths ("status") of fields that server-side apply ignores: an applier never
	// becomes their owner.
	ResetFields []string
	// GracefulDelete returns true if a deleted object stays until a client confirms the deletion
	// (pods). It may set the grace period in options, in seconds. If it is nil, deletes remove
	// objects immediately.
	GracefulDelete func(ctx context.Context, obj O, options *metav1.DeleteOptions) bool
	// DefaultGarbageCollection is what a delete without propagationPolicy does with dependents.
	// Empty means background.
	DefaultGarbageCollection metav1.DeletionPropagation
	// OrphanWarning is sent as a warning with a delete whose options do not say what happens to
	// dependents.
	OrphanWarning string
	// ReturnDeleted reports whether the response to a delete is the object's last state instead of
	// a Status (pods, services, namespaces, claims ...).
	ReturnDeleted bool

	// The Table that kubectl prints.

	// Columns and Cells make the Table; nil means Name and Age. Cells returns one value for each
	// column.
	Columns []metav1.TableColumnDefinition
	Cells   func(obj O, env CellEnv) []any
	// ListCells returns the function Cells for the Table of a list, if the cells depend on the other
	// objects of the list. Nil means that Cells makes the rows of lists too.
	ListCells func(list []O) func(obj O, env CellEnv) []any
	// CellPaths are the fields that Cells reads ("status.phase", "spec.containers.name"). With
	// them, table rows can be made without decoding the other fields. Nil means that Cells may read
	// all fields.
	CellPaths []string
	// RowConditions returns the conditions of the object's row in a printed Table.
	RowConditions func(obj O) []metav1.TableRowCondition
	// RowOrder compares two objects for the order of the rows of a printed Table; nil orders them
	// by name.
	RowOrder func(a, b O) int
}

// MetaChecks says which checks of metadata that a create makes are repeated by an update. In
// addition, an update always checks labels, annotations, owners and immutable fields.
type MetaChecks int

const (
	// CheckFinalizers requires finalizers that are standard or qualified by a domain.
	CheckFinalizers MetaChecks = iota
	// CheckNameAndFinalizers also checks the name and generateName by the kind's rules.
	CheckNameAndFinalizers
	// CheckNeither repeats none of these checks.
	CheckNeither
)

// Sub is a subresource with its rules, for a kind whose objects are of type O.
type Sub[O any] struct {
	Subresource
	PrepareUpdate  func(ctx context.Context, obj, old O)
	ValidateUpdate func(ctx context.Context, obj, old O) field.ErrorList
	Warnings       func(ctx context.Context, obj, old O) []string
}

// RowSub is a subresource of a resource in the kind table.
type RowSub = Sub[Object]
