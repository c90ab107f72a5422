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

// Config configures a Server. Rows, Scheme, Store and Clock are required.
type Config struct {
	// Which rows are served, and where their objects are stored.

	// Rows are served from the start. Server.Add adds more.
	Rows []*resource.Row
	// Scheme has the types of the rows, of options, Status and Table.
	Scheme *runtime.Scheme
	// Store returns the store of a row. It is called once for each row that is not ephemeral. The
	// store must use Codec(row) and Attrs(row) of package registry.
	Store func(*resource.Row) store.Interface
	Clock clock.Clock
	Log   *slog.Logger // if nil, nothing is logged
	// Metrics registers the apiserver_request_* metrics. It may be nil.
	Metrics prometheus.Registerer
	// Missing reports whether a resource that is not served has just been added, for example by
	// another server. If it returns true, the server resolves the request a second time. It may be
	// nil.
	Missing func(ctx context.Context, gr schema.GroupResource) bool
	// Transcode caches the parts that the encodings of several kinds share. If it is nil, the
	// server has a cache of its own.
	Transcode *transcode.Types

	// Rules of writes.

	// Admission runs for every write and every connect: mutating plugins first, validating plugins
	// once the object is valid.
	Admission admission.Interface
	// Authorizer decides whether an update may create an object.
	Authorizer authorizer.Authorizer
	// NamespaceCheck returns the NamespaceCheck for the registry of a namespaced row. It may return
	// nil.
	NamespaceCheck func(*resource.Row) registry.NamespaceCheck
	// NoGarbageCollection is passed to the registries.
	NoGarbageCollection bool
	// TypeConverter has the schemas of the built-in kinds for managedFields (client-go's
	// applyconfigurations.NewTypeConverter). If it is nil, no managedFields are kept.
	TypeConverter managedfields.TypeConverter
	// Random returns the suffix of a generated name. If it is nil, apimachinery's generator is used.
	Random func(n int) string
	// UID returns the uid of a new object. If it is nil, uids are random.
	UID func() types.UID

	// Limits.

	// MaxBodyBytes limits request bodies. 0 means 3 MiB.
	MaxBodyBytes int64
	// MinWatchTimeout is the minimum duration of a watch without timeoutSeconds. The maximum is twice
	// as long. 0 means 30 minutes.
	MinWatchTimeout time.Duration
	// StallTimeout is how long the client of a watch may read none of the data sent to it before
	// the watch ends. 0 means no limit.
	StallTimeout time.Duration
	// Jitter returns numbers in [0, 1) that spread the ends of watches. It is called concurrently. If
	// it is nil, the numbers are random.
	Jitter func() float64
	// NoWatchList rejects watches that ask for the current objects first (sendInitialEvents).
	// Clients then list instead.
	NoWatchList bool

	// Discovery and OpenAPI.

	// Version is info.version in OpenAPI documents.
	Version string
	// ServerAddress is the server address for all clients in the document at /api, for example
	// "10.0.0.1:6443".
	ServerAddress string
	// OpenAPI has the definitions of the built-in kinds. If it is nil, the documents have only paths.
	OpenAPI OpenAPI
	// Pages are the pages that the server has beside its resources. They appear in OpenAPI documents.
	Pages []openapi.Page
	// Groups is the order of the API groups in discovery. Groups that it does not name come last, by
	// name. Nil means the order of Rows.
	Groups []string
	// GroupPriority takes precedence over Groups: the group with the highest priority comes first,
	// groups of equal priority are sorted by name. It may be nil.
	GroupPriority func(group string) int32
	// Aggregator is the group of the aggregation layer. As in Kubernetes, its document answers only
	// GET, while those of the other groups answer any method.
	Aggregator string
	// Registered returns the registered versions of every group, preferred first. Some of them may not
	// be served. The caller may modify the result. Registered may be nil.
	Registered func() map[string][]string
	// RemoteGroups returns the groups and versions that other servers serve (aggregation), for
	// discovery. It may be nil.
	RemoteGroups func() []apidiscovery.APIGroupDiscovery
	// RemoteOpenAPI returns the OpenAPI v3 documents of other servers as a map from path
	// ("apis/metrics.k8s.io/v1beta1") to URL relative to this server. It may be nil.
	RemoteOpenAPI func() map[string]string
	// NoStorageVersionHash removes the hash of the storage version from the discovery of built-in
	// kinds.
	NoStorageVersionHash bool
}

// OpenAPI provides the definitions of the built-in kinds.
type OpenAPI interface {
	// Definitions returns the definitions of OpenAPI version 2 or 3, as a JSON object of schemas by
	// name. It is called rarely, and the server does not keep the result.
	Definitions(version int) ([]byte, error)
}
