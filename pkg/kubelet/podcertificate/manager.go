// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package podcertificate

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	certificatesclient "k8s.io/client-go/kubernetes/typed/certificates/v1"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/kubelet/metrics"
)

// requestTimeout is how long one request to the API server may take.
const requestTimeout = 30 * time.Second

// Config holds a Manager's settings. All fields are required.
type Config struct {
	NodeName string
	// Node returns the Node object, or nil before the node is registered.
	Node func() *v1.Node
	// Requests creates and watches requests.
	Requests certificatesclient.PodCertificateRequestsGetter
	// Accounts reads the service accounts of pods.
	Accounts coreclient.ServiceAccountsGetter
	// Changed is called after the result of Credentials has changed for a source of a pod. It must
	// not block.
	Changed func(pod types.UID)
	// Event records an event on a pod. It must not block.
	Event func(pod *v1.Pod, eventType, reason, message string)
	Clock clock.Clock
	Log   *slog.Logger
	// Rand makes the times of renewals random. Only the Manager may use it.
	Rand *rand.Rand
}

// key identifies a podCertificate source: the pod, the name of the volume, and the index of the
// source in it.
type key struct {
	pod    types.UID
	volume string
	index  int
}

// Manager provides the private keys and certificates of the node's pods. It is safe for concurrent
// use.
type Manager struct {
	cfg  Config
	wake chan struct{} // capacity 1; a token means that there may be a new source

	mu      sync.Mutex // guards cfg.Rand, sources and what these point to
	sources map[key]*source
}

// New returns a Manager. It requests no certificates; Run does.
func New(cfg Config) *Manager {
	return &Manager{cfg: cfg, wake: make(chan struct{}, 1), sources: map[key]*source{}}
}

// Run requests certificates until ctx ends.
func (m *Manager) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-m.wake:
		}
		if len(m.keys()) > 0 {
			newFollower(m).run(ctx)
		}
	}
}

// Credentials returns the private key and the certificates of a source of the pod, as PEM. index is
// the source's position in the volume. The first call starts to track the source, so that Run
// requests its certificate; until that is issued, Credentials returns an error. If the request is
// denied or fails, Credentials returns an error from then on.
func (m *Manager) Credentials(pod *v1.Pod, volume string, index int,
	spec *v1.PodCertificateProjection) (privateKey, chain []byte, err error) {
	k := key{pod.UID, volume, index}
	m.mu.Lock()
	defer m.mu.Unlock()
	s, ok := m.sources[k]
	if !ok {
		s = &source{pod: pod, spec: spec}
		m.sources[k] = s
		select {
		case m.wake <- struct{}{}:
		default:
		}
	}
	return s.credentials()
}

// Forget drops the pod's sources with their keys. The caller must call it when the pod's volumes
// have been removed.
func (m *Manager) Forget(pod types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.sources, func(k key, _ *source) bool { return k.pod == pod })
}

// States returns the number of podCertificate sources of volumes by signer and state.
func (m *Manager) States() map[metrics.PodCertificate]int {
	now := m.cfg.Clock.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	out := map[metrics.PodCertificate]int{}
	for _, s := range m.sources {
		out[metrics.PodCertificate{Signer: s.spec.SignerName, State: s.state(now)}]++
	}
	return out
}

// keys returns the keys of all podCertificate sources.
func (m *Manager) keys() []key {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Collect(maps.Keys(m.sources))
}

// keysOf returns the keys of a pod's podCertificate sources.
func (m *Manager) keysOf(pod types.UID) []key {
	return slices.DeleteFunc(m.keys(), func(k key) bool { return k.pod != pod })
}

// jitterLocked returns a random duration of less than maxJitter.
func (m *Manager) jitterLocked() time.Duration {
	return time.Duration(m.cfg.Rand.Int64N(int64(maxJitter)))
}

// process advances a source by one step. find returns the outcome of a request, or nil if the
// request does not exist. Only one call at a time may process the same source.
func (m *Manager) process(ctx context.Context, k key, find func(types.NamespacedName) *outcome) error {
	now := m.cfg.Clock.Now()
	m.mu.Lock()
	s, ok := m.sources[k]
	if !ok {
		m.mu.Unlock()
		return nil
	}
	var found *outcome
	if s.awaited != nil {
		found = find(s.awaited.name)
	}
	next := s.advance(now, found, m.jitterLocked())
	m.mu.Unlock()
	for _, e := range next.events {
		m.cfg.Event(s.pod, v1.EventTypeWarning, e.reason, e.message)
	}
	if next.changed {
		m.cfg.Changed(k.pod)
	}
	if !next.create {
		return nil
	}
	created, err := m.create(ctx, s.pod, s.spec)
	m.mu.Lock()
	defer m.mu.Unlock()
	s.awaited, s.failure = created, err // has no effect if the source has been forgotten
	return err
}

// create generates a private key and creates a request for its certificate.
func (m *Manager) create(ctx context.Context, pod *v1.Pod, spec *v1.PodCertificateProjection) (*awaited, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	node := m.cfg.Node()
	if node == nil {
		return nil, errors.New("node is not registered yet")
	}
	account, err := m.cfg.Accounts.ServiceAccounts(pod.Namespace).Get(ctx, pod.Spec.ServiceAccountName,
		metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("service account: %w", err)
	}
	privateKey, stub, err := newKey(spec.KeyType)
	if err != nil {
		return nil, err
	}
	r, err := m.cfg.Requests.PodCertificateRequests(pod.Namespace).Create(ctx, &certificatesv1.PodCertificateRequest{
		ObjectMeta: metav1.ObjectMeta{
			GenerateName: "req-", Namespace: pod.Namespace,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID}},
		},
		Spec: certificatesv1.PodCertificateRequestSpec{
			SignerName: spec.SignerName, PodName: pod.Name, PodUID: pod.UID,
			ServiceAccountName: account.Name, ServiceAccountUID: account.UID,
			NodeName: types.NodeName(m.cfg.NodeName), NodeUID: node.UID,
			MaxExpirationSeconds: spec.MaxExpirationSeconds, StubPKCS10Request: stub,
			UnverifiedUserAnnotations: spec.UserAnnotations,
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("create PodCertificateRequest: %w", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return &awaited{
		name: types.NamespacedName{Namespace: r.Namespace, Name: r.Name}, key: privateKey,
		lostAt: m.cfg.Clock.Now().Add(lostAfter + m.jitterLocked()),
	}, nil
}
