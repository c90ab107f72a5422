// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"fmt"
	"io"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"keelson.dev/apiserver/registry"
	"keelson.dev/apiserver/resource"
	"keelson.dev/apiserver/store"
	"keelson.dev/apiserver/store/kv"
	"keelson.dev/apiserver/store/kv/etcd"
	"keelson.dev/apiserver/transcode"
	"keelson.dev/keelson/pkg/api"
	"keelson.dev/keelson/pkg/apiserver/encryption"
)

// openKV opens the key-value store that the configuration names.
func (s *Server) openKV(ctx context.Context) (kv.Store, io.Closer, error) {
	if cfg := &s.cfg; len(cfg.EtcdServers) > 0 {
		e, err := etcd.Dial(etcd.External{
			Endpoints: cfg.EtcdServers, CAFile: cfg.EtcdCAFile, CertFile: cfg.EtcdCertFile, KeyFile: cfg.EtcdKeyFile,
			Options: s.tracing.Dial(), LeaseReuse: cfg.Etcd.LeaseReuse, Clock: s.deps.Clock, Log: s.log,
		})
		return e, e, wrap("etcd client", err)
	}
	e, err := etcd.Start(ctx, etcd.Embedded{Dir: s.cfg.DataDir, LeaseReuse: s.cfg.Etcd.LeaseReuse, Clock: s.deps.Clock, Log: s.log})
	return e, e, wrap("embedded etcd", err)
}

// openEncryption puts encryption before kvs, if it is configured.
func (s *Server) openEncryption(ctx context.Context, kvs kv.Store) (kv.Store, *encryption.Encryption, error) {
	if s.cfg.EncryptionConfig == "" {
		return kvs, nil, nil
	}
	e, err := encryption.Open(ctx, encryption.Config{
		File: s.cfg.EncryptionConfig, Reload: s.cfg.EncryptionReload, Root: s.cfg.EtcdPrefix, Rows: api.Rows(),
	}, kvs)
	if err != nil {
		return nil, nil, err
	}
	s.keyServers = e.Checks()
	return e.Store, e, nil
}

func wrap(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}

// stores makes the store of each row over one backend.
type stores struct {
	backend *store.Backend
	types   *transcode.Types
	shared  map[schema.GroupVersionKind]*shared // by what is stored
}

// shared is the store of a row whose objects other rows serve in other forms.
type shared struct {
	store *store.Store
	forms []resource.Other
}

func (s stores) of(row *resource.Row) store.Interface {
	cfg := store.Config{
		Backend: s.backend, Prefix: row.StoragePrefix, GroupResource: row.GroupResource(),
		Codec: registry.Codec(row), Attrs: registry.Attrs(row), Peek: registry.Peek(row, s.types),
		End: registry.End(row),
	}
	if isPods(row) {
		// Every kubelet watches the pods of its own node.
		cfg.IndexFields = []string{"spec.nodeName"}
	}
	if ttl := row.TTL; ttl != nil {
		cfg.TTL = func(obj store.Object) int64 { return ttl(obj) }
	}
	cfg.Twin = s.twin(row)
	made := store.New(cfg)
	if len(row.Others) > 0 && row.StoredAs.Empty() {
		s.shared[row.GroupVersionKind()] = &shared{made, row.Others}
	}
	return made
}

// twin says whose objects a row serves, if another one has them; that row may not be served.
func (s stores) twin(row *resource.Row) *store.Twin {
	of := s.shared[row.StoredAs]
	if of == nil || row.StoredFields == nil {
		return nil
	}
	for _, form := range of.forms {
		if form.Kind == row.GroupVersionKind() {
			return &store.Twin{Of: of.store, Fields: row.StoredFields, Convert: func(obj store.Object) (store.Object, error) { return form.ToStorage(obj) }}
		}
	}
	return nil
}

func isPods(row *resource.Row) bool { return row.Resource == "pods" && row.Group == "" }

// hidden returns the row of objects that are stored but not served.
func hidden[T, L any](kind, prefix string, ttl int64) *resource.Row {
	k := resource.Kind[T, L]{
		Version: "v1", Resource: prefix, Kind: kind, StoragePrefix: prefix,
		Fields: func(*T) fields.Set { return nil },
	}
	if ttl > 0 {
		k.TTL = func(*T) int64 { return ttl }
	}
	return k.Row()
}

// portRanges holds the bitmap of node ports.
func (s stores) portRanges() store.Interface {
	return s.of(hidden[corev1.RangeAllocation, corev1.RangeAllocation]("RangeAllocation", "ranges", 0))
}

// serverLeases holds one short-lived object for each running server.
func (s stores) serverLeases(ttl int64) store.Interface {
	return s.of(hidden[corev1.Endpoints, corev1.EndpointsList]("Endpoints", "masterleases", ttl))
}
