// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"

	"keelson.dev/api/clock"
	"keelson.dev/apiserver/discovery"
	"keelson.dev/apiserver/ownership"
	"keelson.dev/apiserver/registry"
	"keelson.dev/apiserver/resource"
	"keelson.dev/apiserver/store"
	"keelson.dev/apiserver/table"
	"keelson.dev/apiserver/transcode"
)

// Server serves rows of the kind table. It is safe for concurrent use.
type Server struct {
	cfg      Config
	decoders decoders
	pools    *pools
	ages     *table.Ages
	metrics  *metrics
	// auditCodecs encodes objects in audit events.
	auditCodecs runtime.NegotiatedSerializer
	// scaleFields maintains the managedFields of Scales. It is nil if the server keeps no
	// managedFields.
	scaleFields *managedfields.FieldManager
	// ownership caches compiled schemas that the managedFields of several kinds share.
	ownership *ownership.Types

	mu    sync.Mutex // held while state is replaced
	state atomic.Pointer[state]
}

// RowOptions are the options of a resource that is added while the server runs.
type RowOptions struct {
	// TypeConverter is used for this resource instead of the server's TypeConverter, unless it is
	// nil.
	TypeConverter managedfields.TypeConverter
	// Structure removes unknown fields from an object of a served version that a client has sent,
	// and validates its structure, before any other code uses the object. If unknown is true, it
	// also returns the findings of strict field validation. It may be nil.
	Structure func(version string, obj resource.Object, unknown bool) (findings []error, err error)
	// OpenAPI returns the definition of the kind in each served version, as OpenAPI v3 and v2 schemas
	// in JSON. If it is nil, the published schema has no fields.
	OpenAPI func(version string) (v3, v2 []byte, err error)
	// Identity identifies how the row of the kind table interprets stored objects. If a row
	// replaces another one with the same version and identity, it takes over the other's store and
	// watches. If Identity is empty, the watches of the replaced row end.
	Identity string
	// OpenAPIHash must change whenever the result of OpenAPI changes, and must be the same on every
	// server. If it is empty, the server hashes the result of OpenAPI.
	OpenAPIHash string
}

// endpoint serves one row of the kind table, which describes a resource.
type endpoint struct {
	row       *resource.Row
	options   RowOptions
	registry  *registry.Registry // nil if the resource is ephemeral
	views     map[string]*view   // views by version
	verbs     []string
	behaviour behaviour
	*life
}

// life has the store of an endpoint and ends its watches. An endpoint that replaces another may
// take over its life, so that store and watches continue.
type life struct {
	identity string
	done     context.Context // ends when the resource is removed
	remove   context.CancelFunc
	users    atomic.Int64 // number of running requests, plus one while the resource is served
	store    store.Interface
}

// state is the set of all endpoints (served resources) at one time. It is immutable.
type state struct {
	endpoints map[schema.GroupVersionResource]*endpoint
	// resources has the distinct endpoints of each resource: one for all versions, or one for each
	// version.
	resources map[schema.GroupResource][]*endpoint
	groups    map[string][]string // versions by group, both in the order of discovery
	own       map[string]bool     // groups that have built-in kinds
	docs      func() *documents   // discovery and OpenAPI documents of these endpoints, made on first use
	parts     *parts              // caches for OpenAPI documents
}

// New returns a server that serves the resources in cfg.Rows.
func New(cfg Config) (*Server, error) {
	if cfg.Scheme == nil || cfg.Store == nil || cfg.Clock == nil {
		return nil, errors.New("rest: Scheme, Store and Clock are required")
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Transcode == nil {
		cfg.Transcode = transcode.NewTypes()
	}
	if cfg.MaxBodyBytes == 0 {
		cfg.MaxBodyBytes = maxBody
	}
	if cfg.Jitter == nil {
		cfg.Jitter = newJitter()
	}
	if cfg.MinWatchTimeout == 0 {
		cfg.MinWatchTimeout = 30 * time.Minute
	}
	s := &Server{cfg: cfg, decoders: newDecoders(cfg.Scheme), pools: newPools(newTexts(cfg.Clock)),
		ages: table.NewAges(rand.Text())}
	m, err := newMetrics(cfg.Metrics, cfg.Clock)
	if err != nil {
		return nil, fmt.Errorf("request metrics: %w", err)
	}
	s.metrics, s.auditCodecs = m, newAuditCodecs(cfg.Scheme)
	s.ownership = ownership.NewTypes()
	if s.scaleFields, err = newScaleFields(&cfg); err != nil {
		return nil, fmt.Errorf("managed fields of scales: %w", err)
	}
	resources := make(map[schema.GroupResource][]*endpoint, len(cfg.Rows))
	for _, row := range cfg.Rows {
		gr := row.GroupResource()
		if resources[gr] != nil {
			return nil, fmt.Errorf("two rows of %s", gr)
		}
		e, err := s.newEndpoint(row, RowOptions{}, nil)
		if err != nil {
			return nil, err
		}
		resources[gr] = []*endpoint{e}
	}
	nothing := &state{endpoints: map[schema.GroupVersionResource]*endpoint{}, groups: map[string][]string{},
		own: map[string]bool{}}
	s.publish(nothing, resources, slices.Collect(maps.Keys(resources)))
	return s, nil
}

// newJitter returns a function that returns random numbers in [0, 1). It is safe for concurrent
// use.
func newJitter() func() float64 {
	var mu sync.Mutex
	source := clock.NewRand()
	return func() float64 {
		mu.Lock()
		defer mu.Unlock()
		return source.Float64()
	}
}

// newEndpoint returns an endpoint for a row of the kind table. If the row's version and identity
// are those of old, the endpoint takes over old's life. old may be nil.
func (s *Server) newEndpoint(row *resource.Row, options RowOptions, old *endpoint) (*endpoint, error) {
	e := &endpoint{row: row, options: options, views: make(map[string]*view, 1), verbs: discovery.Verbs(row),
		behaviour: behaviourOf(row)}
	if old != nil && options.Identity != "" && old.identity == options.Identity {
		e.life = old.life
	} else {
		e.life = newLife(options.Identity)
	}
	for _, v := range row.Versions {
		if row.Serves(v.Name) {
			e.views[v.Name] = newView(row, v.Name, s.cfg.Transcode, s.pools)
		}
	}
	if options.TypeConverter == nil {
		options.TypeConverter = s.typeConverter(row)
	}
	if row.Ephemeral {
		return e, nil
	}
	reg, err := registry.New(row, registry.Config{
		Scheme: s.cfg.Scheme, Store: func(row *resource.Row) store.Interface {
			if e.store == nil {
				e.store = s.cfg.Store(row)
			}
			return e.store
		},
		Clock: s.cfg.Clock, KeyRoot: s.cfg.KeyRoot, Admission: s.cfg.Admission,
		Authorizer: s.cfg.Authorizer, TypeConverter: options.TypeConverter,
		Ownership: s.ownership, Structure: options.Structure, Random: s.cfg.Random, UID: s.cfg.UID,
		NoGarbageCollection: s.cfg.NoGarbageCollection, NamespaceCheck: s.namespaceCheck(row),
	})
	if err != nil {
		return nil, err
	}
	e.registry = reg
	return e, nil
}

// namespaceCheck returns the NamespaceCheck for the registry of a resource, or nil.
func (s *Server) namespaceCheck(row *resource.Row) registry.NamespaceCheck {
	if !row.Namespaced || s.cfg.NamespaceCheck == nil {
		return nil
	}
	return s.cfg.NamespaceCheck(row)
}

// typeConverter returns the type converter for a resource. It is the server's, or for a resource
// without a Go type a converter that deduces schemas from the objects.
func (s *Server) typeConverter(row *resource.Row) managedfields.TypeConverter {
	if row.New == nil || s.cfg.TypeConverter == nil {
		return s.cfg.TypeConverter
	}
	if _, dynamic := row.New().(*unstructured.Unstructured); dynamic {
		return managedfields.NewDeducedTypeConverter()
	}
	return s.cfg.TypeConverter
}

// Serves reports whether the server serves path: it is a path of an API group and version for which
// the server has resources, or of a discovery or OpenAPI document ("/api...", "/apis...",
// "/openapi..."). The caller may delegate other paths to another server (aggregation).
func (s *Server) Serves(path string) bool {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	groups := s.state.Load().groups
	switch {
	case parts[0] == "openapi":
		return len(parts) > 1 && (parts[1] == "v2" || parts[1] == "v3")
	case parts[0] == "api":
		return len(parts) == 1 || slices.Contains(groups[""], parts[1])
	case parts[0] != "apis":
		return false
	case len(parts) == 1:
		return true
	case parts[1] == "" || groups[parts[1]] == nil:
		return false
	}
	return len(parts) == 2 || slices.Contains(groups[parts[1]], parts[2])
}
