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

// Server serves rows. It is safe for concurrent use.
type Server struct {
	cfg      Config
	decoders decoders
	pools    *pools
	ages     *table.Ages
	metrics  *metrics
	// auditCodecs encode objects for audit events.
	auditCodecs runtime.NegotiatedSerializer
	// scaleFields keeps the managedFields of Scales; nil when none are kept.
	scaleFields *managedfields.FieldManager
	// ownership keeps what the managedFields of the kinds have in common.
	ownership *ownership.Types

	mu    sync.Mutex // serialises changes of state
	state atomic.Pointer[state]
}

// RowOptions are what a row added at run time brings along.
type RowOptions struct {
	// TypeConverter replaces the server's for this row.
	TypeConverter managedfields.TypeConverter
	// Structure prunes and checks an object of a served version that came from
	// a client, before anything else sees it; it returns what strict field
	// validation has to say, when unknown is true. Nil: nothing.
	Structure func(version string, obj resource.Object, unknown bool) (findings []error, err error)
	// OpenAPI is the definition of the kind in each served version, as OpenAPI
	// v3 and v2 schemas in JSON; nil publishes a schema without fields.
	OpenAPI func(version string) (v3, v2 []byte, err error)
	// Identity says that rows of the same version and identity treat stored
	// objects alike: one that takes the place of the other goes on with its store
	// and its watches. Empty: they end.
	Identity string
	// OpenAPIHash changes whenever what OpenAPI returns does, and is the same on
	// every server; empty: what OpenAPI returns is looked at.
	OpenAPIHash string
}

// endpoint is a served row.
type endpoint struct {
	row       *resource.Row
	options   RowOptions
	registry  *registry.Registry // nil if ephemeral
	views     map[string]*view   // by version
	verbs     []string
	behaviour behaviour
	*life
}

// life is how long the store of an endpoint, and the watches of it, last. An
// endpoint that takes the place of another may go on with the other's.
type life struct {
	identity string
	done     context.Context // ends when the row is removed
	remove   context.CancelFunc
	users    atomic.Int64 // requests under way, and the state
	store    store.Interface
}

// state is the set of endpoints at one moment. It is immutable.
type state struct {
	endpoints map[schema.GroupVersionResource]*endpoint
	// resources are the distinct endpoints of each resource: one, or one for each version.
	resources map[schema.GroupResource][]*endpoint
	groups    map[string][]string // group → versions, in the order of discovery
	own       map[string]bool     // groups with kinds that are not custom
	docs      func() *documents   // discovery and OpenAPI of these endpoints, made at the first need
	parts     *parts              // of OpenAPI documents
}

// New returns a server of cfg.Rows.
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
	s := &Server{cfg: cfg, decoders: newDecoders(cfg.Scheme), pools: newPools(newTexts(cfg.Clock)), ages: table.NewAges(rand.Text())}
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
	nothing := &state{endpoints: map[schema.GroupVersionResource]*endpoint{}, groups: map[string][]string{}, own: map[string]bool{}}
	s.publish(nothing, resources, slices.Collect(maps.Keys(resources)))
	return s, nil
}

// newJitter returns a source of randomness for concurrent use.
func newJitter() func() float64 {
	var mu sync.Mutex
	source := clock.NewRand()
	return func() float64 {
		mu.Lock()
		defer mu.Unlock()
		return source.Float64()
	}
}

// newEndpoint makes the endpoint of a row, which goes on with old's life if it can.
func (s *Server) newEndpoint(row *resource.Row, options RowOptions, old *endpoint) (*endpoint, error) {
	e := &endpoint{row: row, options: options, views: make(map[string]*view, 1), verbs: discovery.Verbs(row), behaviour: behaviourOf(row)}
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
		Clock: s.cfg.Clock, Admission: s.cfg.Admission,
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

// namespaceCheck is what the registry of a row asks before it stores a new object.
func (s *Server) namespaceCheck(row *resource.Row) registry.NamespaceCheck {
	if !row.Namespaced || s.cfg.NamespaceCheck == nil {
		return nil
	}
	return s.cfg.NamespaceCheck(row)
}

// typeConverter is the server's, or for rows of no Go type one that deduces
// schemas from the objects.
func (s *Server) typeConverter(row *resource.Row) managedfields.TypeConverter {
	if row.New == nil || s.cfg.TypeConverter == nil {
		return s.cfg.TypeConverter
	}
	if _, dynamic := row.New().(*unstructured.Unstructured); dynamic {
		return managedfields.NewDeducedTypeConverter()
	}
	return s.cfg.TypeConverter
}

// Serves reports whether path ("/api...", "/apis...", "/openapi...") is the
// server's: an API group and version it has rows of, or a discovery or OpenAPI
// document. What is not may be delegated (aggregation).
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
