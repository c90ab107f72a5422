// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"fmt"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"keelson.dev/apiserver/loopback"
	"keelson.dev/keelson/pkg/follow"
)

// self is a client of the server itself. It calls the server's handlers in memory, with all rights.
// Its requests are not authenticated and no limits apply to them.
type self struct {
	ready   chan struct{}   // closed once handler is set; requests wait for it
	ended   <-chan struct{} // closed when the server ends, possibly before it is ready
	handler http.Handler

	client    kubernetes.Interface
	dynamic   dynamic.Interface
	config    *rest.Config // configuration of the aggregator's own clients, which send JSON
	informers informers.SharedInformerFactory
}

// newSelf returns the client with which a server sends requests to itself. The server runs until
// ctx is done.
func newSelf(ctx context.Context) (*self, error) {
	s := &self{ready: make(chan struct{}), ended: ctx.Done()}
	cfg := &rest.Config{
		Host:      "https://apiserver.loopback",
		Transport: loopback.RoundTripper{Handler: http.HandlerFunc(s.serve)},
		ContentConfig: rest.ContentConfig{
			ContentType:        runtime.ContentTypeProtobuf,
			AcceptContentTypes: runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON,
		},
		UserAgent:      "kube-apiserver/loopback",
		QPS:            -1, // not limited, because the number of the server's own requests is limited elsewhere
		WarningHandler: rest.NoWarnings{},
	}
	var err error
	if s.client, err = kubernetes.NewForConfig(cfg); err != nil {
		return nil, fmt.Errorf("loopback client: %w", err)
	}
	plain := rest.CopyConfig(cfg)
	plain.ContentType, plain.AcceptContentTypes = "", ""
	s.config = plain
	if s.dynamic, err = dynamic.NewForConfig(plain); err != nil {
		return nil, fmt.Errorf("loopback client: %w", err)
	}
	s.informers = follow.NewInformers(s.client, informerResync)
	return s, nil
}

// bootstrapTokens returns an informer of bootstrap token secrets. It is not one of s.informers,
// because the server is ready only when these have synced. If a bootstrap token cannot be
// decrypted, only joining nodes must be affected, and not the readiness of the server.
func (s *self) bootstrapTokens() cache.SharedIndexInformer {
	return coreinformers.NewFilteredSecretInformer(s.client, metav1.NamespaceSystem, informerResync,
		cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc},
		func(o *metav1.ListOptions) { o.FieldSelector = "type=" + string(corev1.SecretTypeBootstrapToken) })
}

// open sets the handler of the server's requests to itself, and releases the requests that wait for
// it.
func (s *self) open(h http.Handler) {
	s.handler = h
	close(s.ready)
}

func (s *self) serve(w http.ResponseWriter, r *http.Request) {
	select {
	case <-s.ready:
	case <-r.Context().Done():
	case <-s.ended: // needed because some admission plugins of Kubernetes use a context that is never done
	}
	select {
	case <-s.ready:
	default:
		http.Error(w, "apiserver is starting", http.StatusServiceUnavailable)
		return
	}
	ctx := request.WithUser(r.Context(),
		&user.DefaultInfo{Name: user.APIServerUser, Groups: []string{user.SystemPrivilegedGroup, user.AllAuthenticated}})
	s.handler.ServeHTTP(w, r.WithContext(ctx))
}
