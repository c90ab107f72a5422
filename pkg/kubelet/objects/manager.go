// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package objects

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"keelson.dev/api/clock"
)

// Kind is a kind of object that a Ref refers to.
type Kind string

// The kinds of objects that pods refer to by name.
const (
	KindConfigMap Kind = "ConfigMap"
	KindSecret    Kind = "Secret"
)

// resource returns the kind's name in the API's errors.
func (k Kind) resource() schema.GroupResource {
	if k == KindSecret {
		return v1.Resource("secret")
	}
	return v1.Resource("configmap")
}

// Ref identifies an object.
type Ref struct {
	Kind      Kind
	Namespace string
	Name      string
}

// syncTimeout is how long a reader waits for the first list of an object's watch.
const syncTimeout = time.Second

// Config holds a Manager's settings.
type Config struct {
	Client kubernetes.Interface
	Clock  clock.Clock
	Log    *slog.Logger
	// Rand makes the times of token renewals random; nil means that the Manager creates a source.
	Rand *rand.Rand
}

// Manager watches the objects that registered pods refer to.
type Manager struct {
	cfg    Config
	tokens *tokens

	mu   sync.Mutex // guards the fields below
	rand *rand.Rand

	// The registered pods, and the objects to which they refer.

	items map[Ref]*item // one item for each object that a registered pod refers to
	pods  map[types.UID]*registration

	// Work of Run, and the subscribers that Run calls.

	// toStart holds the items whose watches Run has not started yet.
	toStart []*item
	// changed holds the objects whose changes subscribers have not been notified of yet. It
	// contains only keys of items.
	changed     map[Ref]struct{}
	subscribers map[int]func(Ref, []*v1.Pod)
	nextSub     int
	wake        chan struct{} // capacity 1; a token means that toStart or changed has entries
}

// registration is the set of objects that one pod refers to.
type registration struct {
	pod  *v1.Pod
	refs map[Ref]struct{}
}

// New returns a Manager. It starts no watches; Run does.
func New(cfg Config) *Manager {
	if cfg.Rand == nil {
		cfg.Rand = clock.NewRand()
	}
	m := &Manager{
		cfg:         cfg,
		rand:        cfg.Rand,
		items:       map[Ref]*item{},
		pods:        map[types.UID]*registration{},
		changed:     map[Ref]struct{}{},
		subscribers: map[int]func(Ref, []*v1.Pod){},
		wake:        make(chan struct{}, 1),
	}
	m.tokens = newTokens(cfg.Client, cfg.Clock, cfg.Log, m.random)
	return m
}

// random returns a random number in [0, 1).
func (m *Manager) random() float64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.rand.Float64()
}

// Run runs the watches until ctx ends, and returns when all of them have ended.
func (m *Manager) Run(ctx context.Context) error {
	var watches sync.WaitGroup
	defer watches.Wait()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-m.wake:
		}
		start, notify := m.takeWork()
		for _, it := range start {
			watches.Go(func() { it.run(ctx) })
		}
		for _, n := range notify {
			n.call(n.ref, n.pods)
		}
	}
}

// notification is a call of one subscriber that Run has to make.
type notification struct {
	call func(Ref, []*v1.Pod)
	ref  Ref
	pods []*v1.Pod
}

func (m *Manager) takeWork() ([]*item, []notification) {
	m.mu.Lock()
	defer m.mu.Unlock()
	start := m.toStart
	m.toStart = nil
	var notify []notification
	for ref := range m.changed {
		it, ok := m.items[ref]
		if !ok {
			continue
		}
		pods := make([]*v1.Pod, 0, len(it.pods))
		for uid := range it.pods {
			pods = append(pods, m.pods[uid].pod)
		}
		for _, call := range m.subscribers {
			notify = append(notify, notification{call, ref, pods})
		}
	}
	clear(m.changed)
	return start, notify
}

// wakeUp makes Run look for work. It does not block.
func (m *Manager) wakeUp() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// RegisterPod starts to watch the objects that pod refers to. If the pod is already registered,
// RegisterPod replaces its references.
func (m *Manager) RegisterPod(pod *v1.Pod) {
	refs := References(pod)
	m.mu.Lock()
	defer m.mu.Unlock()
	old := m.pods[pod.UID]
	m.pods[pod.UID] = &registration{pod: pod, refs: refs}
	for ref := range refs {
		it, ok := m.items[ref]
		if !ok {
			it = m.newItem(ref)
			m.items[ref] = it
			m.toStart = append(m.toStart, it)
		}
		it.pods[pod.UID] = struct{}{}
	}
	if old != nil {
		m.releaseLocked(pod.UID, old.refs, refs)
	}
	m.wakeUp()
}

// UnregisterPod drops the pod, and the objects and tokens that no other pod uses.
func (m *Manager) UnregisterPod(pod *v1.Pod) {
	m.mu.Lock()
	if old, ok := m.pods[pod.UID]; ok {
		delete(m.pods, pod.UID)
		m.releaseLocked(pod.UID, old.refs, nil)
	}
	m.mu.Unlock()
	m.tokens.forget(pod.UID)
}

// releaseLocked removes the pod from the items of refs, except those that the pod keeps. It drops
// items that have no pod left.
func (m *Manager) releaseLocked(pod types.UID, refs, keep map[Ref]struct{}) {
	for ref := range refs {
		if _, ok := keep[ref]; ok {
			continue
		}
		it := m.items[ref]
		delete(it.pods, pod)
		if len(it.pods) == 0 {
			delete(m.items, ref)
			it.stop()
		}
	}
}

// Subscribe registers changed as a subscriber. Run calls it in its own goroutine for each changed
// object, with the registered pods that refer to the object. It must not block for long.
// unsubscribe ends the subscription.
func (m *Manager) Subscribe(changed func(ref Ref, pods []*v1.Pod)) (unsubscribe func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	id := m.nextSub
	m.nextSub++
	m.subscribers[id] = changed
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.subscribers, id)
	}
}

// notify makes Run notify the subscribers of a changed object.
func (m *Manager) notify(ref Ref) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.changed[ref] = struct{}{}
	m.wakeUp()
}

// ConfigMap returns the named ConfigMap. It comes from the watch cache if a registered pod refers
// to it, and from the API server otherwise. If it does not exist, the error is the API's NotFound.
func (m *Manager) ConfigMap(ctx context.Context, namespace, name string) (*v1.ConfigMap, error) {
	obj, err := m.get(ctx, Ref{KindConfigMap, namespace, name})
	if err != nil {
		return nil, err
	}
	return obj.(*v1.ConfigMap), nil
}

// Secret returns the named Secret in the same way as ConfigMap.
func (m *Manager) Secret(ctx context.Context, namespace, name string) (*v1.Secret, error) {
	obj, err := m.get(ctx, Ref{KindSecret, namespace, name})
	if err != nil {
		return nil, err
	}
	return obj.(*v1.Secret), nil
}

func (m *Manager) get(ctx context.Context, ref Ref) (runtime.Object, error) {
	m.mu.Lock()
	it, ok := m.items[ref]
	m.mu.Unlock()
	if !ok {
		return m.read(ctx, ref)
	}
	timeout := m.cfg.Clock.NewTimer(syncTimeout)
	defer timeout.Stop()
	select {
	case <-it.synced:
	case <-ctx.Done():
		return nil, fmt.Errorf("sync %s cache: %w", ref.Kind.resource(), context.Cause(ctx))
	case <-timeout.C():
		return nil, fmt.Errorf("failed to sync %s cache: timed out waiting for the condition", ref.Kind.resource())
	}
	if obj := it.object(); obj != nil {
		return obj, nil
	}
	return nil, apierrors.NewNotFound(ref.Kind.resource(), ref.Name)
}

// read reads an object from the API server. It is used for an object that no registered pod refers
// to.
func (m *Manager) read(ctx context.Context, ref Ref) (runtime.Object, error) {
	if ref.Kind == KindSecret {
		return m.cfg.Client.CoreV1().Secrets(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	}
	return m.cfg.Client.CoreV1().ConfigMaps(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
}
