// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package objects

import (
	"context"
	"log/slog"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"

	"keelson.dev/api/clock"
)

// Kind names what a Ref refers to.
type Kind string

// The kinds of objects that pods refer to by name.
const (
	KindConfigMap Kind = "ConfigMap"
	KindSecret    Kind = "Secret"
)

// Ref names one object.
type Ref struct {
	Kind      Kind
	Namespace string
	Name      string
}

// Config is what a Manager needs.
type Config struct {
	Client kubernetes.Interface
	Clock  clock.Clock
	Log    *slog.Logger
}

// Manager watches the objects that registered pods refer to.
type Manager struct {
	cfg Config
}

// New makes a Manager. It starts nothing.
func New(cfg Config) *Manager { return &Manager{cfg: cfg} }

// Run watches until ctx ends, and returns when every watch has ended.
func (m *Manager) Run(ctx context.Context) error { <-ctx.Done(); return nil }

// RegisterPod starts to watch what pod refers to. Registering a pod again replaces what it referred to.
func (m *Manager) RegisterPod(pod *v1.Pod) {}

// UnregisterPod forgets the pod, and the objects and tokens that only it needed.
func (m *Manager) UnregisterPod(pod *v1.Pod) {}

// Subscribe has changed called, from one goroutine, for each object that changed with the registered
// pods that refer to it. It must not block for long. The returned function ends the subscription.
func (m *Manager) Subscribe(changed func(ref Ref, pods []*v1.Pod)) (unsubscribe func()) {
	return func() {}
}

// ConfigMap returns the named object, from memory when a registered pod refers to it.
// An object that does not exist gives a NotFound error of the API.
func (m *Manager) ConfigMap(ctx context.Context, namespace, name string) (*v1.ConfigMap, error) {
	return nil, nil
}

// Secret is ConfigMap for Secrets.
func (m *Manager) Secret(ctx context.Context, namespace, name string) (*v1.Secret, error) {
	return nil, nil
}

// ServiceAccountToken returns a token of pod's namespace's service account sa, bound to pod, for the given
// audiences (none means the API server's own), valid for expiry when it was made.
func (m *Manager) ServiceAccountToken(ctx context.Context, pod *v1.Pod, sa string, audiences []string, expiry time.Duration) (*authenticationv1.TokenRequestStatus, error) {
	return nil, nil
}
