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

// Row is a kind as servers use it: its functions take any object of the kind.
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
	// NamespaceItself reports whether objects are namespaces. For admission, each is in the
	// namespace that it represents.
	NamespaceItself bool

	// How clients reach it.

	// Version is the version that objects are stored in. O is its type.
	Version string
	// Versions are the served versions, preferred first. If it is empty, the function Of sets it to
	// Version.
	Versions []Version
	// Verbs is what clients may do. Nil means all of create, delete, deletecollection, get, list,
	// patch, update, watch.
	Verbs []string
	// ListedVerbs are the verbs that discovery lists, if the server answers others too.
	ListedVerbs []string
	// OnByDefault serves the row's alpha and beta versions too unless an operator turns them off.
	// Otherwise servers serve only stable versions by default.
	OnByDefault bool
	// Feature names the feature gate that servers need to have the row. All servers have the row if
	// it is empty.
	Feature string
	// Custom reports whether each version of the resource has a row of its own, because its schema,
	// subresources and columns are its own (custom resources). The row serves Version alone;
	// Versions are all versions of the resource. Requests are routed and answered as Kubernetes
	// does for custom resources.
	Custom bool
	// Subresources are the paths below an object, in the order of discovery. The function Of sorts
	// them by name.
	Subresources []Sub[O]

	// How objects are stored.

	// New and NewList return empty objects of the storage version. The function Of sets them.
	New     func() Object
	NewList func() runtime.Object
	// StoragePrefix is the path of the resource's keys below /registry/. Of takes the name of the
	// resource if it is empty ("pods", but "services/specs", "minions"). Groups of custom and newer
	// kinds follow Kubernetes: if it stores under "<group>/<resource>", so does the row.
	StoragePrefix string
	// StoredAs is the kind and version in which Codec stores objects, if it is not the row's own.
	StoredAs schema.GroupVersionKind
	// StoredFields is set if a row of StoredAs serves the same objects and has this row's form
	// among its StoredForms. It maps selectable fields to their names there, if they differ.
	StoredFields map[string]string
	// StoredForms are kinds of other groups, and versions that are no longer served, that the row's
	// objects may have been stored as. A patch may have one as its result.
	StoredForms []StoredForm
	// Scheme knows further kinds: stored bytes may declare one of these kinds, or a version that
	// has the same fields. It is nil if there are no such kinds.
	Scheme *runtime.Scheme
	// Codec replaces the scheme's encoding of stored objects.
	Codec store.Codec
	// Peek returns the labels and selectable fields of stored bytes that Codec has written. It
	// returns false if the object must be decoded. It is nil if decoding is the fastest way.
	Peek func(data []byte) (store.Attrs, bool)
	// Ephemeral rows store nothing (reviews in authentication.k8s.io and authorization.k8s.io).
	Ephemeral bool
	// Create answers POST to an ephemeral row.
	Create *Creator
	// Connect answers POST to an ephemeral row whose requests are not one object to admit, decode and
	// answer (batches). It reads the body itself, and bounds it.
	Connect ConnectFunc
	// Computed rows are read only: their store computes its answers, and nothing is stored.
	Computed bool
	// TTL returns for how many seconds an object is kept (3600 for events); 0 means for ever.
	TTL func(obj O) int64

	// The rules of the kind.

	// Default fills unset fields. It also runs on objects read from storage.
	Default func(obj O)
	// Restore sets fields that objects stored by older servers lack, if Default must not set them
	// because clients have to. It runs on objects read from storage, after Default.
	Restore func(obj O)
	// Readable returns why a well-formed object cannot be read, for example because of a field that
	// is stored as an annotation. Stored objects are readable.
	Readable func(obj O) error
	// PrepareCreate drops the fields that a client may not set on create (status) and sets those
	// that the server decides. It may be nil.
	PrepareCreate func(ctx context.Context, obj O)
	// Validate reports everything wrong with a new object.
	Validate func(ctx context.Context, obj O) field.ErrorList
	// PrepareUpdate copies from old the fields that this endpoint may not change (status) and
	// increments metadata.generation if spec changed.
	PrepareUpdate func(ctx context.Context, obj, old O)
	// ValidateUpdate reports everything wrong with the change from old to obj. It includes
	// Validate's findings if Kubernetes' update validation of the kind does.
	ValidateUpdate func(ctx context.Context, obj, old O) field.ErrorList
	// Warnings are sent to the client beside a success. old is nil on create.
	Warnings func(ctx context.Context, obj, old O) []string
	// Canonicalize puts a valid object into its one stored form.
	Canonicalize func(obj O)
	// FillEmpty sets the fields of an empty object that Kubernetes always encodes. Bookmarks have
	// such an object.
	FillEmpty func(obj O)
	// Hooks tie other state to the writes of objects.
	Hooks Hooks[O]

	// Metadata.

	// ValidateName returns what is wrong with metadata.name. prefix is true for a generateName.
	// Nil means that names are DNS subdomains (apimachinery's NameIsDNSSubdomain).
	ValidateName func(name string, prefix bool) []string
	// AnyFinalizer allows finalizers that are neither standard nor qualified.
	AnyFinalizer bool
	// MetaLast validates the metadata of a new object only if nothing else is wrong with it:
	// Kubernetes' kind does not validate it itself.
	MetaLast bool
	// MetaOnUpdate says which checks of metadata an update of the main endpoint repeats.
	MetaOnUpdate MetaChecks
	// HiddenAnnotations are annotations in which a version stores values that are not metadata.
	// They are visible only in the whole object, not in its metadata alone.
	HiddenAnnotations []string

	// Field selectors.

	// Fields are the selectable fields beside metadata.name and metadata.namespace.
	Fields func(obj O) fields.Set
	// FieldPaths are the fields that Fields reads, beside metadata, so that objects can be selected
	// without decoding the rest ("spec.nodeName"). Nil means that it may read all fields.
	FieldPaths []string
	// IndexFields are selectable fields that many watches select by, so that the store keeps an
	// index.
	IndexFields []string
	// SelectableFields names the field selectors that clients may use, beside metadata.name and
	// metadata.namespace, which are always allowed.
	SelectableFields []string
	// UnknownField is the error for any other field selector, with %[1]s for the field. Empty means the error
	// of most kinds. A row without SelectableFields and UnknownField accepts metadata.namespace even if
	// its objects are in no namespace, as most of Kubernetes' kinds do.
	UnknownField string

	// Updates and deletes.

	// AllowCreateOnUpdate reports whether PUT of an absent object creates it (leases, endpoints,
	// RBAC ...).
	AllowCreateOnUpdate bool
	// AllowUnconditionalUpdate reports whether PUT without resourceVersion overwrites the object.
	AllowUnconditionalUpdate bool
	// ResetFields are paths ("status") of fields that appliers never own.
	ResetFields []string
	// GracefulDelete returns true if a deleted object stays until a client confirms the deletion
	// (pods). It may set the grace period in options, in seconds. Nil removes objects at once.
	GracefulDelete func(ctx context.Context, obj O, options *metav1.DeleteOptions) bool
	// DefaultGarbageCollection is what a delete without propagationPolicy does with dependents.
	// Empty means background.
	DefaultGarbageCollection metav1.DeletionPropagation
	// OrphanWarning is the warning that is sent with a delete whose options do not say what happens
	// to dependents.
	OrphanWarning string
	// ReturnDeleted answers a delete with the object's last state instead of a Status (pods,
	// services, namespaces, claims ...).
	ReturnDeleted bool

	// The Table that kubectl prints.

	// Columns and Cells make the Table; nil means Name and Age. Cells returns one value for each
	// column.
	Columns []metav1.TableColumnDefinition
	Cells   func(obj O, env CellEnv) []any
	// CellPaths are the fields that Cells reads, so that rows are made without decoding the rest
	// ("status.phase", "spec.containers.name"). Nil means that it may read all fields.
	CellPaths []string
	// RowConditions returns the conditions of the object's row in the table.
	RowConditions func(obj O) []metav1.TableRowCondition
	// RowOrder compares two objects for the order of the rows; nil orders them by name.
	RowOrder func(a, b O) int
}

// MetaChecks says which of the checks that a create makes of metadata an update repeats. An update
// always checks labels, annotations, owners and what must not change.
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

// RowSub is a subresource of a Row.
type RowSub = Sub[Object]
