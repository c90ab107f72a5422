// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apidiscovery "k8s.io/api/apidiscovery/v2"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"keelson.dev/api/clock"
	"keelson.dev/apiserver/openapi"
	"keelson.dev/apiserver/registry"
	"keelson.dev/apiserver/resource"
	"keelson.dev/apiserver/store"
	"keelson.dev/apiserver/transcode"
)

// Config is what a Server is made of. Rows, Scheme, Store and Clock are required.
type Config struct {
	// Rows are served from the start; Server.Add brings more.
	Rows []*resource.Row
	// Scheme knows the types of the rows and of the options, Status and Table.
	Scheme *runtime.Scheme
	// Store returns the store of a row; it is called once for each row that is
	// not ephemeral. A store's records must come from Codec(row) and Attrs(row)
	// of package registry.
	Store func(*resource.Row) store.Interface
	Clock clock.Clock
	Log   *slog.Logger // nil: silent

	// Admission is asked for every write and every connect: its mutating
	// plugins first, its validating plugins once the object is valid.
	Admission admission.Interface
	// Authorizer answers the second question of create-on-update.
	Authorizer authorizer.Authorizer
	// NamespaceCheck returns that of the registry of a namespaced row; nil returns none.
	NamespaceCheck func(*resource.Row) registry.NamespaceCheck
	// NoGarbageCollection is that of the registries.
	NoGarbageCollection bool
	// TypeConverter gives managedFields the schemas of the built-in kinds
	// (client-go's applyconfigurations.NewTypeConverter). Nil: none are kept.
	TypeConverter managedfields.TypeConverter

	// OpenAPI holds the definitions of the built-in kinds; nil serves documents
	// with paths only.
	OpenAPI OpenAPI
	// Groups orders the API groups in discovery; groups not named come last, by
	// name. Nil: the order of Rows.
	Groups []string

	// GroupPriority orders the groups in discovery over that: the highest comes
	// first, equal ones by name. Nil: Groups says it all.
	GroupPriority func(group string) int32

	// Missing is asked about a resource that is not served: it may have come a
	// moment ago, elsewhere. True has the server look again. Nil: never.
	Missing func(ctx context.Context, gr schema.GroupResource) bool

	// Aggregator is the group of the server that asks the others. Its router knows the
	// group's document as one to GET; those of the other groups answer any method.
	Aggregator string

	// RemoteGroups are the groups and versions that other servers answer
	// (aggregation), for discovery. Nil: none.
	RemoteGroups func() []apidiscovery.APIGroupDiscovery

	// Registered are the versions of every group that is registered for discovery, the
	// best first. There may be some that nobody answers. They are the caller's. Nil: none.
	Registered func() map[string][]string

	// RemoteOpenAPI are the OpenAPI v3 documents that other servers answer, as
	// path → URL relative to this server ("apis/metrics.k8s.io/v1beta1"). Nil: none.
	RemoteOpenAPI func() map[string]string

	// Pages are the pages that the server has beside its resources, for OpenAPI.
	Pages []openapi.Page

	// MinWatchTimeout is the shortest time a watch without timeoutSeconds lives;
	// the longest is twice that. 0: 30 minutes.
	MinWatchTimeout time.Duration
	// StallTimeout is how long the client of a watch may read none of the data sent to it before
	// the watch ends. 0 means no limit.
	StallTimeout time.Duration
	// NoStorageVersionHash has discovery not tell what objects of the kinds that are built in
	// are stored as.
	NoStorageVersionHash bool
	// NoWatchList refuses watches that ask for the present objects first, and for a mark after
	// them (sendInitialEvents); their clients list instead.
	NoWatchList bool
	// MaxBodyBytes bounds request bodies. 0: 3 MiB.
	MaxBodyBytes int64
	// Metrics receives the apiserver_request_* metrics; nil: none are kept.
	Metrics prometheus.Registerer
	// Transcode keeps what the encodings of the kinds have in common; nil: tables of
	// the server's own.
	Transcode *transcode.Types
	// Random makes the suffix of a generated name; nil: apimachinery's.
	Random func(n int) string
	// UID makes the uid of a new object; nil: a random one.
	UID func() types.UID
	// Jitter returns numbers in [0, 1) that spread the ends of watches; it is
	// called concurrently. Nil: random ones.
	Jitter func() float64
	// Version is what OpenAPI documents carry as info.version.
	Version string
	// ServerAddress is what /api answers as the server's address for all
	// clients ("10.0.0.1:6443").
	ServerAddress string
}

// OpenAPI is the source of the built-in kinds' definitions.
type OpenAPI interface {
	// Definitions returns the definitions of OpenAPI version 2 or 3, as a JSON
	// object of schemas by name. It is called rarely, and what it returns is
	// not kept.
	Definitions(version int) ([]byte, error)
}
