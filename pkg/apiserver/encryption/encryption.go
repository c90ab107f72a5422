// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package encryption

import (
	"context"
	"net/http"

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

// Config says how values are encrypted.
type Config struct {
	// File is the EncryptionConfiguration; Reload follows it.
	File   string
	Reload bool
	// Root and Rows tell which keys are of which resource.
	Root string
	Rows []*resource.Row
}

// Encryption is an EncryptionConfiguration at work.
type Encryption struct {
	source   source
	resource func(key string) (schema.GroupResource, bool)
	checks   []health.Check
	follow   *controller.DynamicEncryptionConfigContent // nil: the file is not followed
}

// Open reads the configuration. What it starts, connections to key servers and their
// probes, ends with ctx.
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
	dynamic := encryptionconfig.NewDynamicTransformers(loaded.Transformers, loaded.HealthChecks[0], closeProviders, loaded.KMSCloseGracePeriod)
	e.source = dynamic
	e.checks = []health.Check{check(dynamic)}
	e.follow = controller.NewDynamicEncryptionConfiguration("encryption-provider-config-automatic-reload-controller",
		cfg.File, dynamic, loaded.EncryptionFileContentHash, id)
	return e, nil
}

// Over is a store to be used in the place of inner, which it is over.
func (e *Encryption) Over(inner kv.Store) *Store {
	return &Store{inner: inner, source: e.source, resource: e.resource}
}

// Checks are whether key servers answer. A server whose key server does not is
// not ready; to restart it would not help.
func (e *Encryption) Checks() []health.Check { return e.checks }

// Run follows the configuration until ctx is done.
func (e *Encryption) Run(ctx context.Context) {
	if e.follow != nil {
		e.follow.Run(ctx)
	}
}

// check asks one of the library's health checks, which want to see a request.
func check(c healthz.HealthChecker) health.Check {
	return health.Check{Name: c.Name(), Run: func(ctx context.Context) error {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "/healthz/"+c.Name(), nil)
		if err != nil {
			return err
		}
		return c.Check(r)
	}}
}
