// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"context"
	"crypto/tls"
	"log/slog"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"keelson.dev/api/clock"
	"keelson.dev/api/service"
	"keelson.dev/keelson/pkg/follow"
)

// secrets watches the Secrets that Ingresses name, each of them by its name, so that the proxy does
// not need the permission to list all Secrets of a namespace. It must be used by one goroutine
// only.
type secrets struct {
	client  kubernetes.Interface
	clock   clock.Clock
	log     *slog.Logger
	changed follow.Signal

	followed map[types.NamespacedName]*secret
	running  sync.WaitGroup
}

// secret is a watched Secret.
type secret struct {
	*follow.Cache[v1.Secret, tls.Certificate]
	stop context.CancelFunc
}

func newSecrets(client kubernetes.Interface, clk clock.Clock, log *slog.Logger, changed follow.Signal) *secrets {
	return &secrets{client: client, clock: clk, log: log, changed: changed, followed: map[types.NamespacedName]*secret{}}
}

// want watches the Secrets that the Ingresses name, and stops the other watches. In each namespace
// it watches only the Secrets that the proxy may read: the first service.MaxIngressSecrets in the
// order of their names.
func (s *secrets) want(ctx context.Context, ingresses []*networkingv1.Ingress) {
	namespaces := map[string][]string{}
	for _, ing := range ingresses {
		for _, section := range ing.Spec.TLS {
			if section.SecretName != "" {
				namespaces[ing.Namespace] = append(namespaces[ing.Namespace], section.SecretName)
			}
		}
	}
	named := map[types.NamespacedName]bool{}
	for namespace, list := range namespaces {
		slices.Sort(list)
		list = slices.Compact(list)
		for _, name := range list[:min(len(list), service.MaxIngressSecrets)] {
			named[types.NamespacedName{Namespace: namespace, Name: name}] = true
		}
	}
	for name, f := range s.followed {
		if !named[name] {
			f.stop()
			delete(s.followed, name)
		}
	}
	for name := range named {
		if s.followed[name] == nil {
			ctx, stop := context.WithCancel(ctx)
			f := &secret{s.cache(name), stop}
			s.followed[name] = f
			s.running.Go(func() { f.Run(ctx) })
		}
	}
}

// stop stops all watches and waits for their goroutines.
func (s *secrets) stop() {
	for _, f := range s.followed {
		f.stop()
	}
	s.running.Wait()
}

// cache returns a cache of the certificate in a Secret.
func (s *secrets) cache(name types.NamespacedName) *follow.Cache[v1.Secret, tls.Certificate] {
	return follow.NewCache(follow.Config[v1.Secret, tls.Certificate]{
		Source: follow.Source(s.client.CoreV1().Secrets(name.Namespace), follow.Named(name.Name)),
		Keep: func(o *v1.Secret) *tls.Certificate {
			cert, err := tls.X509KeyPair(o.Data[v1.TLSCertKey], o.Data[v1.TLSPrivateKeyKey])
			if err != nil {
				s.log.Warn("Secret does not contain a certificate with its private key", "secret", name.String(), "err", err)
				return nil
			}
			return &cert
		},
		Changed: func(types.NamespacedName, *tls.Certificate, *tls.Certificate) { s.changed.Raise() },
		Clock:   s.clock, Log: s.log,
	})
}

// certificate implements Certificates.
func (s *secrets) certificate(namespace, name string) *tls.Certificate {
	key := types.NamespacedName{Namespace: namespace, Name: name}
	f := s.followed[key]
	if f == nil {
		return nil
	}
	return f.Get(key)
}
