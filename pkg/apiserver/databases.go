// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"errors"
	"io"
	"path"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"keelson.dev/apiserver/resource"
	"keelson.dev/apiserver/store"
	"keelson.dev/apiserver/store/kv"
	"keelson.dev/apiserver/store/kv/etcd"
	"keelson.dev/keelson/pkg/api"
	"keelson.dev/keelson/pkg/apiserver/config"
	"keelson.dev/keelson/pkg/apiserver/encryption"
	"keelson.dev/keelson/pkg/apiserver/storehealth"
)

// database is a key-value store, and the backend that reads and watches it for all its resources.
type database struct {
	kv       kv.Store
	external bool // kv is a client of external etcd servers
	backend  *store.Backend
	// maintenance and keeper are nil if the server did not open the database itself.
	maintenance *etcd.Store
	keeper      *storehealth.Keeper
}

// databases are the databases of a server. The fields do not change while requests are served.
type databases struct {
	// all begins with the default database, which has all resources without a database of their
	// own. The others follow in the order of the configuration.
	all []*database
	// sized reports the size of the default database. It is nil if the server did not open that
	// database itself.
	sized sized
	// of has the databases that are configured for single resources. The key with the resource "*"
	// is for all other resources of its group.
	of        map[schema.GroupResource]*database
	locations []schema.GroupResource // keys of databases.of, in the order of the configuration
	sealed    *encryption.Encryption // nil if values are not encrypted
	epoch     int64                  // the cluster's epoch; Server.Run sets it
	close     []io.Closer
	// notify is called with notices of the keepers. It is set before they run.
	notify func(context.Context, storehealth.Notice) error
}

// openDatabases opens the configured key-value stores. The caller then calls databases.follow.
func (s *Server) openDatabases(ctx context.Context) (*databases, error) {
	d := &databases{of: map[schema.GroupResource]*database{}}
	if err := d.open(ctx, s); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

func (d *databases) open(ctx context.Context, s *Server) error {
	first := &database{kv: s.deps.KV}
	if first.kv == nil {
		opened, err := s.openFirst(ctx)
		if err != nil {
			return err
		}
		first = &database{kv: opened, maintenance: opened, external: len(s.cfg.EtcdServers) > 0}
		d.sized = opened
		d.close = append(d.close, opened)
	}
	d.all = []*database{first}
	overrides, err := s.cfg.Etcd.Overrides()
	if err != nil {
		return err
	}
	known := map[string]*database{} // the key is the list of the database's servers, sorted
	for _, o := range overrides {
		key := strings.Join(slices.Sorted(slices.Values(o.Servers)), ";")
		if known[key] == nil {
			opened, err := s.dial(o.Servers)
			if err != nil {
				return err
			}
			d.close = append(d.close, opened)
			known[key] = &database{kv: opened, maintenance: opened, external: true}
			d.all = append(d.all, known[key])
		}
		if d.of[o.Resource] == nil {
			d.locations = append(d.locations, o.Resource)
		}
		d.of[o.Resource] = known[key]
	}
	return nil
}

func (s *Server) openFirst(ctx context.Context) (*etcd.Store, error) {
	if len(s.cfg.EtcdServers) > 0 {
		return s.dial(s.cfg.EtcdServers)
	}
	readable := ""
	if s.cfg.Features.Emulated.Before(37) {
		readable = "3.6" // the release of etcd that Keelson embedded while it followed Kubernetes 1.36
	}
	if s.deps.StartEtcd == nil {
		return nil, errors.New("no etcd servers are configured, and this program contains no etcd")
	}
	e, err := s.deps.StartEtcd(ctx, etcd.Embedded{Dir: s.cfg.DataDir, QuotaBytes: s.cfg.Store.EmbeddedQuota,
		LeaseReuse: s.cfg.Etcd.LeaseReuse, Readable: readable, Clock: s.deps.Clock, Log: s.log})
	return e, wrap("embedded etcd", err)
}

func (s *Server) dial(servers []string) (*etcd.Store, error) {
	cfg := &s.cfg
	e, err := etcd.Dial(etcd.External{
		Endpoints: servers, CAFile: cfg.EtcdCAFile, CertFile: cfg.EtcdCertFile, KeyFile: cfg.EtcdKeyFile,
		Options: s.tracing.Dial(), LeaseReuse: cfg.Etcd.LeaseReuse, Clock: s.deps.Clock, Log: s.log,
	})
	return e, wrap("error creating storage factory", err)
}

// follow adds a backend to each database. If encryption is configured, the backend stores encrypted
// values.
func (d *databases) follow(ctx context.Context, s *Server) error {
	cfg := &s.cfg
	root := path.Join("/", cfg.EtcdPrefix) // as in Kubernetes, the slash at the start may be missing
	metrics := newStoreMetrics(s.deps.Metrics, s.deps.Clock, root, api.Rows(api.Deps{}))
	levels := storehealth.NewMetrics(s.deps.Metrics)
	if cfg.EncryptionConfig != "" {
		sealed, err := encryption.Open(ctx, encryption.Config{
			File: cfg.EncryptionConfig, Reload: cfg.EncryptionReload, Root: root, Rows: api.Rows(api.Deps{}),
		})
		if err != nil {
			return err
		}
		d.sealed, s.keyServers = sealed, sealed.Checks()
	}
	for i, db := range d.all {
		backend := store.BackendConfig{KV: measuredStore{s.traced(db), metrics}, Root: root,
			Clock: s.deps.Clock, Log: s.log, Undecodable: metrics.undecodable}
		db.keeper = d.newKeeper(s, db, i, levels, metrics.locate)
		if db.keeper != nil && cfg.Store.RefusalPercent > 0 {
			backend.Admit = db.keeper.Admit
		}
		if d.sealed != nil {
			values := d.sealed.Over(backend.KV)
			backend.KV, backend.Outdated, backend.Recheck = values, values.Outdated, d.sealed.Reloaded
		}
		db.backend = store.NewBackend(backend)
	}
	return nil
}

// run runs the backends, and compacts the databases if configured, until ctx is done.
func (d *databases) run(ctx context.Context, s *Server) {
	var wg sync.WaitGroup
	defer wg.Wait()
	for _, db := range d.all {
		wg.Go(func() {
			if err := db.backend.Run(ctx); err != nil {
				s.log.Error("Storage backend stopped", "err", err)
			}
		})
		if every := s.cfg.Etcd.CompactionInterval; every > 0 {
			compactor := &kv.Compactor{Store: db.kv, Clock: s.deps.Clock, Interval: every, Log: s.log,
				Compacted: db.backend.Compacted}
			wg.Go(func() { compactor.Run(ctx) })
		}
	}
}

// Close closes the stores that openDatabases opened.
func (d *databases) Close() error {
	var errs []error
	for _, c := range d.close {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

// first returns the default database.
func (d *databases) first() *database { return d.all[0] }

// have returns the database of a built-in resource: that of the resource, of its group, or the
// default database.
func (d *databases) have(gr schema.GroupResource) *database {
	if db := d.of[gr]; db != nil {
		return db
	}
	if db := d.of[schema.GroupResource{Group: gr.Group, Resource: config.AllResources}]; db != nil {
		return db
	}
	return d.first()
}

// location returns the resource by which the configuration selects the database of the resource
// that row declares. For events of both groups, it is the resource of the core group.
// CustomResourceDefinitions and APIServices are always in the default database: in Kubernetes,
// separate servers store them, and these servers ignore --etcd-servers-overrides.
func location(row *resource.Row) schema.GroupResource {
	gr := row.GroupResource()
	switch gr.Group {
	case apiextensionsv1.GroupName, apiregistrationv1.GroupName:
		return schema.GroupResource{}
	}
	if !row.StoredAs.Empty() {
		gr.Group = row.StoredAs.Group
	}
	return gr
}

// Some objects are stored but not served: the allocated node ports and the leases of API servers.
// The configuration selects their database by the names of these resources. For example, the entry of
// services in --etcd-servers-overrides also applies to the allocated node ports.
var (
	portRangesLocation   = corev1.Resource("services")
	serverLeasesLocation = corev1.Resource("apiServerIPInfo")
)

// named returns the default database and one entry per override, even if overrides share a
// database. Kubernetes has one component status for each of these entries.
func (d *databases) named() []*database {
	out := []*database{d.first()}
	for _, gr := range d.locations {
		out = append(out, d.of[gr])
	}
	return out
}

// ready returns an error unless the watches of all backends on their databases are up to date.
func (d *databases) ready() error {
	for _, db := range d.all {
		if err := db.backend.Ready(); err != nil {
			return err
		}
	}
	return nil
}
