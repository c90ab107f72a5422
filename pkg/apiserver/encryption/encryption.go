// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package encryption

import (
	"context"
	"net/http"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/apiserver/pkg/server/options/encryptionconfig"
	"k8s.io/apiserver/pkg/server/options/encryptionconfig/controller"
	"k8s.io/apiserver/pkg/server/options/encryptionconfig/metrics"

	"keelson.dev/apiserver/resource"
	"keelson.dev/apiserver/store/kv"
	"keelson.dev/keelson/pkg/daemon"
	"keelson.dev/keelson/pkg/health"
)

// Config configures the encryption of values.
type Config struct {
	// File is the path of the EncryptionConfiguration. If Reload is true, it is reloaded when it
	// changes.
	File   string
	Reload bool
	// Root is the prefix of all keys. With the field Rows, it determines the resource of a key.
	Root string
	Rows []*resource.Row
}

// Encryption encrypts and decrypts values as an EncryptionConfiguration specifies.
type Encryption struct {
	source   source
	resource func(key string) (schema.GroupResource, bool)
	checks   []health.Check
	follow   *controller.DynamicEncryptionConfigContent // reloads the file; nil if it is not reloaded
	reloaded atomic.Bool                                // the file has changed, and was reloaded
}

// Open reads the configuration and connects to key servers. Connections and health probes end when
// ctx is done.
func Open(ctx context.Context, cfg Config) (*Encryption, error) {
	id := daemon.ServerID()
	ctx, closeProviders := context.WithCancel(ctx)
	loaded, err := encryptionconfig.LoadEncryptionConfig(ctx, cfg.File, cfg.Reload, id)
	if err != nil {
		closeProviders()
		return nil, err
	}
	metrics.RecordEncryptionConfigLastConfigInfo(id, loaded.EncryptionFileContentHash)
	e := &Encryption{resource: newResources(cfg.Root, cfg.Rows).of}
	if !cfg.Reload {
		e.source = encryptionconfig.StaticTransformers(loaded.Transformers)
		for _, c := range loaded.HealthChecks {
			e.checks = append(e.checks, check(c))
		}
		context.AfterFunc(ctx, closeProviders)
		return e, nil
	}
	// The library calls the function that closes the first providers soon after it has replaced them.
	replaced := func() {
		e.reloaded.Store(true)
		closeProviders()
	}
	dynamic := encryptionconfig.NewDynamicTransformers(loaded.Transformers, loaded.HealthChecks[0],
		replaced, loaded.KMSCloseGracePeriod)
	e.source = dynamic
	e.checks = []health.Check{check(dynamic)}
	e.follow = controller.NewDynamicEncryptionConfiguration("encryption-provider-config-automatic-reload-controller",
		cfg.File, dynamic, loaded.EncryptionFileContentHash, id)
	return e, nil
}

// Over returns a store that keeps its values encrypted in inner.
func (e *Encryption) Over(inner kv.Store) *Store {
	return &Store{inner: inner, source: e.source, resource: e.resource}
}

// Reloaded reports whether the configuration has changed since Open. A value that could be decrypted
// before may be unreadable now.
func (e *Encryption) Reloaded() bool { return e.reloaded.Load() }

// Checks returns the health checks of the key servers. They belong to readiness and not to
// liveness, because a restart of the API server would not repair a key server.
func (e *Encryption) Checks() []health.Check { return e.checks }

// Run reloads the configuration when its file changes, until ctx is done.
func (e *Encryption) Run(ctx context.Context) {
	if e.follow != nil {
		e.follow.Run(ctx)
	}
}

// check converts a health check of the library, which needs an HTTP request.
func check(c healthz.HealthChecker) health.Check {
	return health.Check{Name: c.Name(), Run: func(ctx context.Context) error {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "/healthz/"+c.Name(), nil)
		if err != nil {
			return err
		}
		return c.Check(r)
	}}
}
