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

// Config configures a Server. The fields Rows, Scheme, Store and Clock are required.
type Config struct {
	// The resources that are served, and the place where their objects are stored.

	// Rows are the rows of the kind table for the resources that are served from the start.
	// Server.Add adds rows later.
	Rows []*resource.Row
	// Scheme has the types of the resources' objects, and those of options, Status and Table.
	Scheme *runtime.Scheme
	// Store returns the store of a resource. It is called once for each resource that is not
	// ephemeral. The store must use Codec(row) and Attrs(row) of package registry.
	Store func(*resource.Row) store.Interface
	// KeyRoot is the beginning of all keys in the stores, which some errors contain. If it is empty,
	// it is "/registry".
	KeyRoot string
	Clock   clock.Clock
	Log     *slog.Logger // if nil, nothing is logged
	// Metrics registers the apiserver_request_* metrics. It may be nil.
	Metrics prometheus.Registerer
	// Missing reports whether a resource that the server does not serve has just been added, for
	// example by another server. If it returns true, the server looks for the resource again. It
	// may be nil.
	Missing func(ctx context.Context, gr schema.GroupResource) bool
	// Transcode caches what the server needs to convert stored protobuf to JSON: a table for each
	// Go type. Several servers may share it. If it is nil, the server makes its own.
	Transcode *transcode.Types

	// What happens on writes.

	// Admission runs for every write and every connect: mutating plugins first, and validating
	// plugins after the object has been validated.
	Admission admission.Interface
	// Authorizer decides whether the user may create an object if an update or an apply creates
	// one.
	Authorizer authorizer.UnconditionalAuthorizer
	// NamespaceCheck returns the NamespaceCheck for the registry of a namespaced resource. It may
	// return nil.
	NamespaceCheck func(*resource.Row) registry.NamespaceCheck
	// NoGarbageCollection is passed to the registries; see registry.Config.
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
	// MinWatchTimeout is the minimum duration of a watch without timeoutSeconds; the actual
	// duration is random, up to twice as long. 0 means 30 minutes.
	MinWatchTimeout time.Duration
	// StallTimeout is how long a watch waits for its client to read data before the server ends the
	// watch. 0 means no limit.
	StallTimeout time.Duration
	// Jitter returns numbers in [0, 1), which make watches end at different times. It is called
	// concurrently. If it is nil, the numbers are random.
	Jitter func() float64
	// NoWatchList rejects watches with sendInitialEvents, which first send the current objects.
	// Clients then list the objects instead.
	NoWatchList bool

	// Discovery and OpenAPI.

	// Version is info.version in OpenAPI documents.
	Version string
	// ServerAddress is the address of this server in the document at /api, for example
	// "10.0.0.1:6443". The same address is sent to all clients.
	ServerAddress string
	// OpenAPI has the definitions of the built-in kinds. If it is nil, the documents have only paths.
	OpenAPI OpenAPI
	// Pages are paths of the server that do not belong to its resources, for example health checks.
	// They appear in OpenAPI documents.
	Pages []openapi.Page
	// Groups is the order of the API groups in discovery. Groups that it does not contain come
	// last, sorted by name. Nil means the order of the field Rows.
	Groups []string
	// GroupPriority takes precedence over Groups: groups are sorted by descending priority, and
	// groups of equal priority by name. It may be nil.
	GroupPriority func(group string) int32
	// Aggregator is the name of the aggregation layer's group. As in Kubernetes, its discovery
	// document supports only GET, while those of other groups support any method.
	Aggregator string
	// Registered returns the registered versions of every group, preferred first. The server may
	// not serve all of them. The caller may modify the result. Registered may be nil.
	Registered func() map[string][]string
	// RemoteGroups returns, for discovery, the groups and versions that other servers serve
	// (aggregation). It may be nil.
	RemoteGroups func() []apidiscovery.APIGroupDiscovery
	// RemoteOpenAPI returns the OpenAPI v3 documents of other servers. It maps the path of a
	// document ("apis/metrics.k8s.io/v1beta1") to a URL relative to this server. It may be nil.
	RemoteOpenAPI func() map[string]string
	// NoStorageVersionHash omits the hash of the storage version from the discovery of built-in
	// kinds.
	NoStorageVersionHash bool
}

// OpenAPI provides the definitions of the built-in kinds.
type OpenAPI interface {
	// Definitions returns the definitions of OpenAPI version 2 or 3, as a JSON object of schemas by
	// name. It is called rarely, and the server does not keep the result.
	Definitions(version int) ([]byte, error)
}
