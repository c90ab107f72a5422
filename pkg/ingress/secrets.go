// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"context"
	"crypto/tls"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"

	v1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"keelson.dev/api/service"
)

// secrets follows the Secrets that Ingresses name, each by itself: nobody need
// let us list those of a namespace. It belongs to one goroutine.
type secrets struct {
	client  kubernetes.Interface
	log     *slog.Logger
	changed func()

	followed map[types.NamespacedName]*secret
	running  sync.WaitGroup
}

// secret is a Secret that is followed.
type secret struct {
	name        types.NamespacedName
	stop        context.CancelFunc
	certificate atomic.Pointer[tls.Certificate]
}

func newSecrets(client kubernetes.Interface, log *slog.Logger, changed func()) *secrets {
	return &secrets{client: client, log: log, changed: changed, followed: map[types.NamespacedName]*secret{}}
}

// want watches the Secrets that the Ingresses name. In each namespace it watches only those that the
// proxy has the right to read: the first service.MaxIngressSecrets by name.
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
			f := &secret{name: name, stop: stop}
			s.followed[name] = f
			s.running.Go(func() { s.follow(ctx, f) })
		}
	}
}

// stop ends what want began.
func (s *secrets) stop() {
	for _, f := range s.followed {
		f.stop()
	}
	s.running.Wait()
}

// follow keeps the certificate of one Secret until ctx ends.
func (s *secrets) follow(ctx context.Context, f *secret) {
	_, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: cache.NewListWatchFromClient(s.client.CoreV1().RESTClient(), "secrets", f.name.Namespace, fields.OneTermEqualSelector("metadata.name", f.name.Name)),
		ObjectType:    &v1.Secret{},
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    func(obj any) { s.take(f, obj) },
			UpdateFunc: func(_, obj any) { s.take(f, obj) },
			DeleteFunc: func(any) { s.set(f, nil) },
		},
	})
	informer.RunWithContext(ctx)
}

// take reads the certificate out of a Secret.
func (s *secrets) take(f *secret, obj any) {
	o, ok := obj.(*v1.Secret)
	if !ok {
		return
	}
	cert, err := tls.X509KeyPair(o.Data[v1.TLSCertKey], o.Data[v1.TLSPrivateKeyKey])
	if err != nil {
		s.log.Warn("A Secret has no certificate and key that fit", "secret", f.name.String(), "err", err)
		s.set(f, nil)
		return
	}
	s.set(f, &cert)
}

func (s *secrets) set(f *secret, cert *tls.Certificate) {
	f.certificate.Store(cert)
	s.changed()
}

// certificate implements Certificates.
func (s *secrets) certificate(namespace, name string) *tls.Certificate {
	f := s.followed[types.NamespacedName{Namespace: namespace, Name: name}]
	if f == nil {
		return nil
	}
	return f.certificate.Load()
}
