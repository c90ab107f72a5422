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
)

// storedType is the encoding of what is stored, which is that of Kubernetes.
const storedType = "application/vnd.kubernetes.protobuf"

// Etcd says how the server treats its store.
type Etcd struct {
	// CompactionInterval is how often history is dropped, and how much is kept; not
	// positive: somebody else drops it.
	CompactionInterval time.Duration
	// HealthTimeout and ReadyTimeout are how long it may take to answer /livez and /readyz.
	HealthTimeout, ReadyTimeout time.Duration
	// CountPeriod has metrics tell of its objects; 0: they do not.
	CountPeriod time.Duration
	// LeaseReuse is for how many seconds a lease takes in further keys.
	LeaseReuse int64

	// GarbageCollector says that there is one: what a delete has it do is taken down.
	GarbageCollector bool
	// ServersOverrides are etcd servers of single resources, as "group/resource#servers",
	// where servers are URLs with semicolons between them.
	ServersOverrides []string

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
		CompactionInterval: 5 * time.Minute, HealthTimeout: 2 * time.Second, ReadyTimeout: 2 * time.Second,
		CountPeriod: time.Minute, LeaseReuse: 60,
		mediaType: storedType, GarbageCollector: true,
	}
}

func (e *Etcd) addFlags(fs *pflag.FlagSet) {
	fs.DurationVar(&e.CompactionInterval, "etcd-compaction-interval", e.CompactionInterval, "how often history is dropped from etcd, and how much is kept; 0: somebody else drops it")
	fs.DurationVar(&e.HealthTimeout, "etcd-healthcheck-timeout", e.HealthTimeout, "how long etcd may take to answer for /livez and /healthz")
	fs.DurationVar(&e.ReadyTimeout, "etcd-readycheck-timeout", e.ReadyTimeout, "how long etcd may take to answer for /readyz")
	fs.DurationVar(&e.CountPeriod, "etcd-count-metric-poll-period", e.CountPeriod, "0: no metrics of how many objects there are; else without effect: they are counted as they change")
	fs.DurationVar(&e.sizePeriod, "etcd-db-metric-poll-interval", 30*time.Second, "how often etcd is asked for the size of its database; without effect: it is when somebody asks for metrics")
	fs.Int64Var(&e.LeaseReuse, "lease-reuse-duration-seconds", e.LeaseReuse, "for how many seconds a lease of etcd takes in further events")
	fs.StringVar(&e.backend, "storage-backend", "", "what objects are stored in: etcd3")
	fs.StringVar(&e.mediaType, "storage-media-type", e.mediaType, "encoding of stored objects: application/vnd.kubernetes.protobuf; objects that are stored as JSON are read")
	fs.StringSliceVar(&e.ServersOverrides, "etcd-servers-overrides", nil, "etcd servers of single resources that are built in: group/resource#URL;URL, separated by commas; the resource * is all of a group")
	fs.DurationVar(&e.initialization, "storage-initialization-timeout", time.Minute, "how long a server waits for its storage before it is ready nevertheless; without effect: it is not ready before")
	fs.BoolVar(&e.watchCache, "watch-cache", true, "keep objects in memory for lists and watches; without effect: the store has one cache, whose answers are as fresh as etcd's")
	fs.StringSliceVar(&e.watchCacheSizes, "watch-cache-sizes", []string{"events#0", "events.events.k8s.io#0"}, "resource[.group]#size; without effect: the store has one cache")
	fs.IntVar(&e.watchCacheSize, "default-watch-cache-size", 100, "without effect, as in Kubernetes")
	_ = fs.MarkDeprecated("default-watch-cache-size", "watch caches are sized automatically and this flag will be removed in a future version") // which there is
	fs.IntVar(&e.deleteWorkers, "delete-collection-workers", 1, "how many objects of a collection are deleted at once; without effect: many are deleted in one transaction")
	fs.BoolVar(&e.GarbageCollector, "enable-garbage-collector", e.GarbageCollector, "have deletes ask the garbage collector for what they say of dependents; to be as the controller manager has it")
}

// AllResources is the resource of an Override that is of all of a group.
const AllResources = "*"

// Override says in which etcd servers the objects of a resource are.
type Override struct {
	Resource schema.GroupResource
	Servers  []string
}

// Overrides are the etcd servers of single resources, in the order in which they were named.
func (e *Etcd) Overrides() ([]Override, error) {
	var out []Override
	for _, s := range e.ServersOverrides {
		resource, list, ok := strings.Cut(s, "#")
		group, name, two := strings.Cut(resource, "/")
		servers := strings.Split(list, ";")
		if !ok || !two || strings.Contains(name, "/") || strings.Contains(list, "#") || slices.Contains(servers, "") {
			return nil, errors.New("--etcd-servers-overrides invalid, must be of format: group/resource#servers, where servers are URLs, semicolon separated")
		}
		out = append(out, Override{schema.GroupResource{Group: group, Resource: name}, servers})
	}
	return out, nil
}

// validateWatchCaches looks at sizes that have no effect here.
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
		add("--storage-media-type %q invalid, allowed values: application/json, application/vnd.kubernetes.protobuf, application/yaml", e.mediaType)
	}
}

// validateUse tells what cannot be done though it may be said.
func (e *Etcd) validateUse() error {
	if e.mediaType != storedType {
		return fmt.Errorf("--storage-media-type %s is not supported: objects are stored as %s", cmp.Or(e.mediaType, "application/json"), storedType)
	}
	return nil
}
