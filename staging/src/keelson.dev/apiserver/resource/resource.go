// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package resource declares what a server knows of a kind: one Row of the kind
// table. Handlers, discovery, OpenAPI, watch caches and tables of columns are
// all derived from rows; there is no other place where a resource is declared.
//
// Built-in kinds are literals of Kind, typed by their Go type; custom resources
// make a Row at run time. Both end as a Row and are treated alike.
//
// Functions of a row are pure: no I/O, no clock, no state. They run
// concurrently, on objects that only they hold.
package resource

import (
	"context"
	"math"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"keelson.dev/apiserver/store"
)

// Object is an API object in its wire type.
type Object = store.Object

// Row is one resource of one API group. A nil function means the default
// behaviour, which each field states.
type Row struct {
	Group    string
	Versions []Version // served versions, preferred first
	Resource string    // plural, as in paths
	Singular string    // lower-cased Kind when empty
	Kind     string
	ListKind string // Kind + "List" when empty

	ShortNames []string
	Categories []string
	Namespaced bool

	// StoragePrefix is the path of the resource's keys below /registry/; the
	// resource name when empty ("pods", but "services/specs", "minions").
	// Groups of custom and newer kinds follow Kubernetes: where it stores under
	// "<group>/<resource>", so do we.
	StoragePrefix string
	// StorageVersion is the version objects are stored in, and whose type New makes.
	StorageVersion string
	// Only is set where each version of a resource has a row of its own, because
	// its schema, subresources and columns are its own (custom resources). It is
	// StorageVersion, in which the row's functions see objects; Versions are all
	// of the resource's then.
	Only string
	// StoredAs is what Codec stores objects as, where that is another kind or
	// version than the row's own.
	StoredAs schema.GroupVersionKind
	// StoredFields is set where a row of StoredAs serves the same objects, and has a
	// form of this row's among its Others: by it the selectable fields are found that
	// have another name there.
	StoredFields map[string]string
	// Others are kinds of other groups, and of versions that are no longer served, which
	// these objects are too, in another form: they may have been stored in one, and
	// a patch may have one as its result.
	Others []Other
	// Scheme knows which kinds there are besides: what is stored may say that it is of
	// one, or of a version that has the same fields. Nil: nothing is known of others.
	Scheme *runtime.Scheme
	// Codec replaces the scheme's encoding of stored objects.
	Codec store.Codec

	// Verbs is what clients may do; nil means all of
	// create, delete, deletecollection, get, list, patch, update, watch.
	Verbs []string
	// ListedVerbs are those that discovery lists, where others are answered too.
	ListedVerbs []string
	// Ephemeral rows store nothing (reviews: authentication.k8s.io,
	// authorization.k8s.io): the server's connector answers create.
	Ephemeral bool
	// Computed rows are read only: what their store answers is so at the moment,
	// and nothing is stored.
	Computed bool
	// Feature is without which servers do not have the row; empty: all have it.
	Feature string

	New     func() Object
	NewList func() runtime.Object

	Strategy
	// Columns and Cells make the Table that kubectl prints. Nil: Name and Age.
	// Cells answers one value for each column.
	Columns []metav1.TableColumnDefinition
	Cells   func(obj Object, env CellEnv) []any
	// RowConditions are what a row of a table says of its object beside the cells.
	RowConditions func(obj Object) []metav1.TableRowCondition
	// RowOrder is the order of the rows of a table; nil: that of the names.
	RowOrder func(a, b Object) int
	// CellPaths are the fields that Cells looks at, so that rows are made without
	// decoding the rest ("status.phase", "spec.containers.name"). Nil: all.
	CellPaths []string

	// Unlisted are annotations in which a version keeps what is no metadata: only
	// the whole object shows them.
	Unlisted []string

	Subresources []Subresource
}

// CellEnv is what a printed cell may depend on beside its object.
type CellEnv struct {
	// Age prints the time since t as kubectl does ("5m", "<unknown>" for zero).
	Age func(t metav1.Time) string
}

// GroupVersionKind is the kind in the row's storage version.
func (r *Row) GroupVersionKind() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: r.Group, Version: r.StorageVersion, Kind: r.Kind}
}

// Serves reports whether the row is served in a version.
func (r *Row) Serves(version string) bool {
	if r.Only != "" {
		return version == r.Only
	}
	for i := range r.Versions {
		if r.Versions[i].Name == version {
			return true
		}
	}
	return false
}

// GroupResource is how errors and authorization name the resource.
func (r *Row) GroupResource() schema.GroupResource {
	return schema.GroupResource{Group: r.Group, Resource: r.Resource}
}

// Version is one served version of a row. The storage version needs no conversion.
type Version struct {
	Name string
	// New, FromStorage and ToStorage are set for other versions than the
	// storage version, which share the row's types otherwise.
	New         func() Object
	NewList     func() runtime.Object
	FromStorage func(Object) (Object, error)
	ToStorage   func(Object) (Object, error)
	// Default applies this version's defaults when it is not the storage version.
	Default    func(Object)
	Deprecated string // warning sent with each use
}

// Other is a kind of another group or version that a row's objects may be written as.
type Other struct {
	Kind schema.GroupVersionKind
	New  func() Object
	// ToStorage makes an object of the row's own type, and may share with the other.
	ToStorage func(Object) (Object, error)
}

// Strategy is what a kind means, apart from how it looks. The order in which a
// server calls the functions is:
//
//	create: decode, Default, mutating admission, PrepareCreate, Validate, Canonicalize, validating admission, store
//	update: decode, Default, mutating admission, PrepareUpdate, ValidateUpdate, Canonicalize, validating admission, store
//
// ObjectMeta is the server's own business (validation of names, labels, owner
// references, immutable fields, generateName, uid, timestamps, finalizers,
// managedFields): strategies see it, and validate only what is particular to the kind.
type Strategy struct {
	// Default fills unset fields. It also runs on objects read from storage.
	Default func(obj Object)
	// Restore fills what objects lack that older servers have stored and that no client
	// may leave to be defaulted. It runs on objects read from storage, after Default.
	Restore func(obj Object)
	// Readable finds what makes a well-formed object one that cannot be read: a
	// field that is written down as an annotation. Stored objects are.
	Readable func(obj Object) error
	// PrepareCreate drops what a client may not set on create (status) and sets
	// what the server decides. Nil: nothing.
	PrepareCreate func(ctx context.Context, obj Object)
	// Validate reports everything wrong with a new object.
	Validate func(ctx context.Context, obj Object) field.ErrorList
	// PrepareUpdate takes over from old what this endpoint may not change
	// (status) and increments metadata.generation where spec changed.
	PrepareUpdate func(ctx context.Context, obj, old Object)
	// ValidateUpdate reports everything wrong with the change from old to obj;
	// it includes Validate's findings where Kubernetes' does.
	ValidateUpdate func(ctx context.Context, obj, old Object) field.ErrorList
	// Warnings are sent to the client beside a success. old is nil on create.
	Warnings func(ctx context.Context, obj, old Object) []string
	// Canonicalize puts a valid object into its one stored form.
	Canonicalize func(obj Object)
	// Blank fills in what even an object of nothing has, as bookmarks have one: fields
	// that Kubernetes cannot leave out.
	Blank func(obj Object)
	// ValidateName says what is wrong with metadata.name; prefix is true for a
	// generateName. Nil: DNS subdomain (apimachinery's NameIsDNSSubdomain).
	ValidateName func(name string, prefix bool) []string
	// MetaLast has the metadata of a new object judged once nothing else is wrong with
	// it: Kubernetes' kind does not look at them itself.
	MetaLast bool
	// MetaOnUpdate says how an update of the main endpoint judges metadata.
	MetaOnUpdate MetaRules
	// AnyFinalizer lets finalizers be that are neither standard nor qualified.
	AnyFinalizer bool
	// Fields are the selectable fields beside metadata.name and metadata.namespace.
	Fields func(obj Object) fields.Set
	// FieldPaths are the fields that Fields looks at, beside metadata, so that
	// objects are found without decoding the rest ("spec.nodeName"). Nil: all.
	FieldPaths []string
	// AllowCreateOnUpdate: PUT of an absent object creates it (leases, endpoints, RBAC ...).
	AllowCreateOnUpdate bool
	// AllowUnconditionalUpdate: PUT without resourceVersion overwrites.
	AllowUnconditionalUpdate bool
	// ResetFields are field paths each API version's appliers never own, as in
	// managedfields: for example status on the main endpoint. Keys are
	// "group/version" or "version"; values are paths like "status".
	ResetFields []string
	// GracefulDelete decides how an object ends: it may set the deletion grace
	// period (seconds) in options and returns true when the object stays until
	// somebody confirms (pods). Nil: it goes at once.
	GracefulDelete func(ctx context.Context, obj Object, options *metav1.DeleteOptions) bool
	// DefaultGarbageCollection is what a delete without propagationPolicy does
	// with dependents; empty: background.
	DefaultGarbageCollection metav1.DeletionPropagation
	// OrphanWarning goes with a delete that does not say what becomes of dependents.
	OrphanWarning string
	// ReturnDeleted answers a delete with the object's last state, instead of a
	// Status (pods, services, namespaces, claims ...).
	ReturnDeleted bool
	// TTL is how many seconds an object is kept; 0: for ever (events: 3600).
	TTL func(obj Object) int64
	// UnknownField is the refusal of a field selector that clients may not use,
	// with %[1]s for the field; empty: as most kinds with fields of their own say it.
	UnknownField string
	// SelectableFields names the field selectors clients may use, beside
	// metadata.name and metadata.namespace, which are always there.
	SelectableFields []string
}

// MetaRules say how an update judges metadata beside what is done for every kind.
// Kubernetes' kinds do so more or less often, and clients see each finding as
// often as it is made.
type MetaRules struct {
	// Whole is how often all of it is judged as at creation, names and prefixes of
	// names included.
	Whole int
	// WholeFirst has that told, once, before the kind's own look at what has changed.
	WholeFirst bool
	// NoChanges leaves out the kind's own look at what has changed.
	NoChanges bool
}

// Subresource is a path below an object.
type Subresource struct {
	Name  string   // "status", "scale", "log", "proxy" ...
	Verbs []string // get, update, patch for status; what discovery lists
	// Kind is the kind it takes and gives; the row's own when empty
	// (autoscaling/v1 Scale, policy/v1 Eviction, v1 Binding ...).
	Kind schema.GroupVersionKind

	// For subresources that are views of the row's own object (status,
	// ephemeralcontainers, resize): how an update is prepared and validated.
	// When View is false a connector of the server's answers
	// (log, exec, binding, eviction, token, proxy, scale).
	View           bool
	PrepareUpdate  func(ctx context.Context, obj, old Object)
	ValidateUpdate func(ctx context.Context, obj, old Object) field.ErrorList
	Warnings       func(ctx context.Context, obj, old Object) []string
	ResetFields    []string
	MetaOnUpdate   MetaRules
	// NoTable says that it is not shown as a Table.
	NoTable bool

	// Scale maps the object to autoscaling/v1 Scale; set for "scale" only.
	Scale *Scale
}

// JudgingMeta is s with rules for metadata.
func (s Subresource) JudgingMeta(rules MetaRules) Subresource {
	s.MetaOnUpdate = rules
	return s
}

// WithoutTable is s that is not shown as a Table.
func (s Subresource) WithoutTable() Subresource {
	s.NoTable = true
	return s
}

// Connects reports whether the subresource is a way to a process: what goes
// through may be of any type.
func (s *Subresource) Connects() bool {
	switch s.Name {
	case "proxy", "exec", "attach", "portforward":
		return !s.View
	}
	return false
}

// NoReplicas is what Scale.Get answers for an object that does not say how many
// replicas it wants.
const NoReplicas = math.MinInt32

// Scale reads and writes a scalable object's replicas.
type Scale struct {
	Get func(obj Object) (spec, status int32, selector string, err error)
	Set func(obj Object, replicas int32)
	// SpecPath is the path of replicas for managedFields, for example "spec.replicas".
	SpecPath string
	// Paths are the paths by version, where they differ; a version without one
	// has no replicas.
	Paths map[string]string
}
