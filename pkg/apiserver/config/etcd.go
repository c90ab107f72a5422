// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"keelson.dev/keelson/pkg/storesnapshot"
)

// storedType is the media type in which objects are stored. It is the default of Kubernetes' flag
// --storage-media-type.
const storedType = "application/vnd.kubernetes.protobuf"

// DefaultCheckTimeout is the default time limit of the health checks of etcd.
const DefaultCheckTimeout = 2 * time.Second

// Etcd configures how the server uses its store.
type Etcd struct {
	// CompactionInterval is the interval at which the server compacts the history of the store. A
	// compaction keeps the history of the last interval. If it is not positive, the server never
	// compacts.
	CompactionInterval time.Duration
	// HealthTimeout limits the check of the store for /livez, /healthz and /readyz. ReadyTimeout
	// limits a second check, only for /readyz. 0 stands for DefaultCheckTimeout.
	HealthTimeout, ReadyTimeout time.Duration
	// CountPeriod enables the metrics of object counts if it is not 0.
	CountPeriod time.Duration
	// LeaseReuse is how long, in seconds, the server attaches further keys to an etcd lease that it
	// has created.
	LeaseReuse int64

	// GarbageCollector is true if a garbage collector runs in the cluster. Deletes with propagation
	// policy Orphan or Foreground then set the finalizer that the garbage collector handles.
	GarbageCollector bool
	// ServersOverrides are the etcd servers of single resources, as "group/resource#servers", where
	// servers are URLs separated by semicolons.
	ServersOverrides []string
	// If Snapshots is true, the server serves copies of the store.
	Snapshots bool

	backend, mediaType string
	initialization     time.Duration
	sizePeriod         time.Duration
	watchCache         bool
	watchCacheSizes    []string
	watchCacheSize     int
	deleteWorkers      int
}

func defaultEtcd() Etcd {
	return Etcd{
		CompactionInterval: 5 * time.Minute, HealthTimeout: DefaultCheckTimeout, ReadyTimeout: DefaultCheckTimeout,
		CountPeriod: time.Minute, LeaseReuse: 60,
		mediaType: storedType, GarbageCollector: true,
	}
}

func (e *Etcd) addFlags(fs *pflag.FlagSet) {
	fs.DurationVar(&e.CompactionInterval, "etcd-compaction-interval", e.CompactionInterval,
		"how often the server removes old revisions from etcd, and how much history it keeps; 0 means that "+
			"it never removes revisions")
	fs.DurationVar(&e.HealthTimeout, "etcd-healthcheck-timeout", e.HealthTimeout,
		"maximum time of the check of etcd that is part of /livez and /healthz")
	fs.DurationVar(&e.ReadyTimeout, "etcd-readycheck-timeout", e.ReadyTimeout,
		"maximum time of the check of etcd that is part of /readyz")
	fs.DurationVar(&e.CountPeriod, "etcd-count-metric-poll-period", e.CountPeriod,
		"0 turns off the metrics with the number of stored objects; any other value turns them on: the "+
			"numbers are always current, so no interval is needed")
	fs.DurationVar(&e.sizePeriod, "etcd-db-metric-poll-interval", 30*time.Second,
		"no effect: the server asks etcd for the size of its database when a client reads /metrics")
	fs.Int64Var(&e.LeaseReuse, "lease-reuse-duration-seconds", e.LeaseReuse,
		"how many seconds the server attaches events to the same etcd lease (which deletes them when they "+
			"expire) before it creates a new lease")
	fs.StringVar(&e.backend, "storage-backend", "",
		"type of the storage: etcd3, which is the only type and also the default")
	fs.StringVar(&e.mediaType, "storage-media-type", e.mediaType,
		"encoding in which objects are stored; only application/vnd.kubernetes.protobuf is supported, but "+
			"objects that are already stored as JSON can be read")
	fs.StringSliceVar(&e.ServersOverrides, "etcd-servers-overrides", nil,
		"etcd servers for single built-in resources, as GROUP/RESOURCE#URL;URL, separated by commas; the "+
			"resource * means all resources of the group")
	fs.DurationVar(&e.initialization, "storage-initialization-timeout", time.Minute,
		"no effect: the server becomes ready when its storage is ready, however long this takes")
	fs.BoolVar(&e.watchCache, "watch-cache", true,
		"no effect: the server always has a watch cache, and answers from it are as recent as those of etcd")
	fs.StringSliceVar(&e.watchCacheSizes, "watch-cache-sizes", []string{"events#0", "events.events.k8s.io#0"},
		"RESOURCE[.GROUP]#SIZE, separated by commas; no effect: the watch cache has no size for each resource")
	fs.IntVar(&e.watchCacheSize, "default-watch-cache-size", 100, "no effect, as in Kubernetes")
	// MarkDeprecated cannot fail, because the flag exists.
	_ = fs.MarkDeprecated("default-watch-cache-size",
		"watch caches are sized automatically and this flag will be removed in a future version")
	fs.IntVar(&e.deleteWorkers, "delete-collection-workers", 1,
		"no effect: the server deletes many objects of a collection in one transaction")
	fs.BoolVar(&e.GarbageCollector, "enable-garbage-collector", e.GarbageCollector,
		"obey the propagationPolicy of delete requests; must have the same value as the controller manager's "+
			"--enable-garbage-collector")
	fs.BoolVar(&e.Snapshots, "serve-store-snapshots", false,
		"serve copies of the store at "+storesnapshot.Path+" to administrators, for ctl backup")
}

// AllResources is the value of Override.Resource.Resource in an override for a whole group.
const AllResources = "*"

// Override has the etcd servers of one resource, or of a whole group.
type Override struct {
	Resource schema.GroupResource
	Servers  []string
}

// Overrides returns the etcd servers of single resources, in the order of the configuration.
func (e *Etcd) Overrides() ([]Override, error) {
	var out []Override
	for _, s := range e.ServersOverrides {
		resource, list, ok := strings.Cut(s, "#")
		group, name, two := strings.Cut(resource, "/")
		servers := strings.Split(list, ";")
		if !ok || !two || strings.Contains(name, "/") || strings.Contains(list, "#") || slices.Contains(servers, "") {
			return nil, errors.New("--etcd-servers-overrides invalid, must be of format: " +
				"group/resource#servers, where servers are URLs, semicolon separated")
		}
		out = append(out, Override{schema.GroupResource{Group: group, Resource: name}, servers})
	}
	return out, nil
}

// validateWatchCaches validates the flag for watch cache sizes, which has no effect in this server.
func (e *Etcd) validateWatchCaches() error {
	for _, size := range e.watchCacheSizes {
		tokens := strings.Split(size, "#")
		if len(tokens) != 2 {
			return fmt.Errorf("invalid value of watch cache size: %s", size)
		}
		n, err := strconv.Atoi(tokens[1])
		switch {
		case err != nil:
			return fmt.Errorf("invalid size of watch cache size: %s", size)
		case n < 0:
			return fmt.Errorf("watch cache size cannot be negative: %s", size)
		}
	}
	return nil
}

func (e *Etcd) validate(encryptionWithoutFile bool, add func(format string, args ...any)) {
	if e.backend != "" && e.backend != "etcd3" {
		add("--storage-backend invalid, allowed values: etcd3. If not specified, it will default to 'etcd3'")
	}
	if _, err := e.Overrides(); err != nil {
		add("%w", err)
	}
	if encryptionWithoutFile {
		add("--encryption-provider-config-automatic-reload must be set with --encryption-provider-config")
	}
	if !slices.Contains([]string{"", "application/json", storedType, "application/yaml"}, e.mediaType) {
		add("--storage-media-type %q invalid, allowed values: application/json, "+
			"application/vnd.kubernetes.protobuf, application/yaml", e.mediaType)
	}
}

// validateUse returns an error for the first value that Kubernetes accepts and this server does not
// support.
func (e *Etcd) validateUse() error {
	if e.mediaType != storedType {
		return fmt.Errorf("--storage-media-type %s is not supported: objects are stored as %s",
			cmp.Or(e.mediaType, "application/json"), storedType)
	}
	return nil
}
