// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/workqueue"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/kubelet/metrics"
	"keelson.dev/keelson/pkg/kubelet/source"
)

const writers = 8

// Config holds a Manager's settings.
type Config struct {
	Client kubernetes.Interface
	Clock  clock.Clock
	Log    *slog.Logger
	// Metrics counts terminated containers; nil disables that.
	Metrics *metrics.Pods
	// Mirror returns the mirror pod of a static pod from the API, or nil if there is none.
	Mirror func(pod *v1.Pod) *v1.Pod
	// Resumed is called once for a static pod, when its mirror pod is found and has a status s that
	// an earlier process wrote. From then on, Get returns s. The Manager writes nothing to the
	// mirror before Resumed returns. It may be nil.
	Resumed func(uid types.UID, s v1.PodStatus)
	// Changed is called with each new status of a pod. It may be nil.
	Changed func(pod *v1.Pod, s v1.PodStatus)
	// Deleted is called when a pod no longer exists in the API, or another pod has its name there.
	Deleted func(uid types.UID)
}

// Manager writes pod statuses. It is safe for concurrent use.
type Manager struct {
	cfg   Config
	queue workqueue.TypedRateLimitingInterface[types.UID]

	mu   sync.Mutex
	pods map[types.UID]*entry // by UID; guarded by mu
}

type entry struct {
	known  *v1.Pod // the newest version read from the API
	want   v1.PodStatus
	wanted bool
	// since is the time when want became different from the status in the API. It is zero if want
	// is not known to differ. changes counts the changes of want.
	since   time.Time
	changes int
	resumed bool // true if the status of a static pod's mirror was adopted, or the mirror had no status
	delete  bool // the pod's resources are released: delete the pod from the API after want is written
}

// NewManager returns a Manager. It starts only the goroutines of its work queue. Run stops them.
func NewManager(cfg Config) *Manager {
	if cfg.Metrics == nil {
		cfg.Metrics = metrics.NewPods(nil)
	}
	limits := workqueue.NewTypedItemExponentialFailureRateLimiter[types.UID](50*time.Millisecond, 10*time.Second)
	return &Manager{
		cfg: cfg, pods: map[types.UID]*entry{},
		queue: workqueue.NewTypedRateLimitingQueueWithConfig(limits,
			workqueue.TypedRateLimitingQueueConfig[types.UID]{Clock: cfg.Clock}),
	}
}

// Run writes statuses until ctx ends. It returns when all writes in progress have ended.
func (m *Manager) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	for range writers {
		wg.Go(func() { m.work(ctx) })
	}
	<-ctx.Done()
	m.queue.ShutDown()
	wg.Wait()
	return nil
}

func (m *Manager) work(ctx context.Context) {
	for {
		uid, stop := m.queue.Get()
		if stop || ctx.Err() != nil {
			return
		}
		err := m.write(ctx, uid)
		switch {
		case err == nil:
			m.queue.Forget(uid)
		case ctx.Err() == nil:
			m.cfg.Log.Debug("Failed to write a pod status", "uid", uid, "err", err)
			m.queue.AddRateLimited(uid)
		}
		m.queue.Done(uid)
	}
}

// Observe records a version of the pod that was read from the API. It ignores a version older than
// the known one.
func (m *Manager) Observe(pod *v1.Pod) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.entry(pod.UID)
	if e.known == nil || newer(pod, e.known) {
		e.known = pod
	}
	if e.wanted || e.delete {
		m.queue.Add(pod.UID)
	}
}

// Forget drops the state of a pod that no longer exists in the API.
func (m *Manager) Forget(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.pods, uid)
}

// Set sets the status that Run writes for the pod.
func (m *Manager) Set(pod *v1.Pod, s v1.PodStatus) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.entry(pod.UID)
	if e.known == nil {
		e.known = pod
	}
	if e.wanted && equality.Semantic.DeepEqual(e.want, s) {
		return
	}
	before := &e.want
	if !e.wanted {
		before = m.shown(e.known)
	}
	m.cfg.Metrics.Ended(before, &s)
	if e.since.IsZero() {
		e.since = m.cfg.Clock.Now()
	}
	e.want, e.wanted = s, true
	e.changes++
	m.queue.Add(pod.UID)
	if m.cfg.Changed != nil {
		m.cfg.Changed(pod, s)
	}
}

// shown returns the status that the API has of a pod. It is used for a pod for which this process
// has not yet set a status.
func (m *Manager) shown(pod *v1.Pod) *v1.PodStatus {
	if source.Static(pod) {
		if mirror := m.cfg.Mirror(pod); mirror != nil {
			return &mirror.Status
		}
	}
	return &pod.Status
}

// Delete makes Run delete a terminating pod from the API. The caller calls it when the node has
// released all resources that the pod used.
func (m *Manager) Delete(pod *v1.Pod) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.entry(pod.UID)
	if e.known == nil {
		e.known = pod
	}
	e.delete = true
	m.queue.Add(pod.UID)
}

// Get returns the newest status of a pod, even if it has not been written to the API yet.
func (m *Manager) Get(uid types.UID) (v1.PodStatus, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e, ok := m.pods[uid]; ok && e.wanted {
		return *e.want.DeepCopy(), true
	}
	return v1.PodStatus{}, false
}

func (m *Manager) entry(uid types.UID) *entry {
	e, ok := m.pods[uid]
	if !ok {
		e = &entry{}
		m.pods[uid] = e
	}
	return e
}

func (m *Manager) write(ctx context.Context, uid types.UID) error {
	m.mu.Lock()
	e, ok := m.pods[uid]
	if !ok || e.known == nil {
		m.mu.Unlock()
		return nil
	}
	known, want, wanted, del, changes := e.known, e.want, e.wanted, e.delete, e.changes
	m.mu.Unlock()
	if source.Static(known) {
		if m.resume(known) {
			return nil // the pod worker computes a new status from the adopted one
		}
		written, err := m.reflect(ctx, known, want)
		if written {
			m.written(uid, changes, true)
		}
		return err
	}
	if wanted {
		written, err := m.patch(ctx, known, want)
		if err != nil {
			return err
		}
		m.written(uid, changes, written)
	}
	if !del {
		return nil
	}
	zero := int64(0)
	err := m.cfg.Client.CoreV1().Pods(known.Namespace).Delete(ctx, known.Name, metav1.DeleteOptions{
		GracePeriodSeconds: &zero, Preconditions: &metav1.Preconditions{UID: &known.UID},
	})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete pod: %w", err)
	}
	m.podDeleted(uid)
	return nil
}

// written records that the API has the status that want had after this number of changes. It does
// nothing if want has changed again since then. If told is true, a request was needed, and written
// records in a metric how long the API had an older status.
func (m *Manager) written(uid types.UID, changes int, told bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.pods[uid]
	if e == nil || e.changes != changes || e.since.IsZero() {
		return
	}
	if told {
		m.cfg.Metrics.StatusWritten(m.cfg.Clock.Since(e.since))
	}
	e.since = time.Time{}
}

// resume adopts the status in the mirror of a static pod, and reports whether it did. It is needed
// because the kubelet starts static pods before it has read the API, and then computes the status
// of a new pod for them.
func (m *Manager) resume(pod *v1.Pod) bool {
	mirror := m.cfg.Mirror(pod)
	if mirror == nil {
		return false
	}
	s := *mirror.Status.DeepCopy()
	if terminal(s.Phase) { // an earlier run of this pod has ended; this run starts without a phase
		s.Phase, s.Reason, s.Message = "", "", ""
	}
	m.mu.Lock()
	e := m.pods[pod.UID]
	first := e != nil && !e.resumed && m.cfg.Resumed != nil
	if first {
		e.resumed = true
	}
	first = first && s.StartTime != nil
	if first {
		e.want, e.since = s, time.Time{} // the API already has this status
	}
	m.mu.Unlock()
	if first {
		m.cfg.Resumed(pod.UID, s)
	}
	return first
}

// reflect writes the status of a static pod to its mirror pod, and reports whether it did. Without
// a mirror it writes nothing. When a mirror appears, SyncMirrors queues the pod again.
func (m *Manager) reflect(ctx context.Context, pod *v1.Pod, want v1.PodStatus) (bool, error) {
	mirror := m.cfg.Mirror(pod)
	if mirror == nil {
		return false, nil
	}
	body, err := Patch(mirror, want)
	if err != nil || body == nil {
		return false, err
	}
	_, err = m.cfg.Client.CoreV1().Pods(mirror.Namespace).Patch(ctx, mirror.Name, types.StrategicMergePatchType,
		body, metav1.PatchOptions{}, "status")
	if err != nil && !apierrors.IsNotFound(err) {
		return false, fmt.Errorf("patch status of the mirror: %w", err)
	}
	return true, nil
}

// SyncMirrors queues all static pods. Run then writes the status of each of them whose mirror pod
// does not show it.
func (m *Manager) SyncMirrors() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for uid, e := range m.pods {
		if e.wanted && source.Static(e.known) {
			m.queue.Add(uid)
		}
	}
}

// patch writes the status of a pod to the API. It reports whether the status differed, so that a
// request was sent.
func (m *Manager) patch(ctx context.Context, known *v1.Pod, want v1.PodStatus) (bool, error) {
	body, err := Patch(known, want)
	if err != nil || body == nil {
		return false, err
	}
	got, err := m.cfg.Client.CoreV1().Pods(known.Namespace).Patch(ctx, known.Name,
		types.StrategicMergePatchType, body, metav1.PatchOptions{}, "status")
	switch {
	case apierrors.IsNotFound(err) || apierrors.IsConflict(err) && m.replaced(ctx, known):
		m.podDeleted(known.UID)
		return false, nil
	case err != nil:
		return false, fmt.Errorf("patch status: %w", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if e, ok := m.pods[known.UID]; ok && newer(got, e.known) {
		e.known = got
	}
	return true, nil
}

// replaced reports whether the API now has another pod, or none, under the name of the known pod.
func (m *Manager) replaced(ctx context.Context, known *v1.Pod) bool {
	got, err := m.cfg.Client.CoreV1().Pods(known.Namespace).Get(ctx, known.Name, metav1.GetOptions{})
	return apierrors.IsNotFound(err) || err == nil && got.UID != known.UID
}

func (m *Manager) podDeleted(uid types.UID) {
	m.Forget(uid)
	if m.cfg.Deleted != nil {
		m.cfg.Deleted(uid)
	}
}

// Patch returns the patch that changes the status of a pod to want, or nil if they are equal.
func Patch(known *v1.Pod, want v1.PodStatus) ([]byte, error) {
	before, err := json.Marshal(v1.Pod{Status: known.Status})
	if err != nil {
		return nil, err
	}
	after := v1.Pod{Status: *want.DeepCopy()}
	after.Status.Conditions = merge(known.Status.Conditions, after.Status.Conditions)
	b, err := json.Marshal(after)
	if err != nil {
		return nil, err
	}
	patch, err := strategicpatch.CreateTwoWayMergePatch(before, b, v1.Pod{})
	if err != nil || string(patch) == "{}" {
		return nil, err
	}
	var body map[string]any
	if err := json.Unmarshal(patch, &body); err != nil {
		return nil, err
	}
	// With the UID in the patch, the API server rejects it if another pod has the name now.
	body["metadata"] = map[string]any{"uid": known.UID}
	return json.Marshal(body)
}

// merge returns the conditions to write: the kubelet's own conditions from want, and the conditions
// of other clients from those that the API has. Both may write DisruptionTarget; want takes
// precedence if it has it.
func merge(known, want []v1.PodCondition) []v1.PodCondition {
	own := map[v1.PodConditionType]bool{
		v1.PodReadyToStartContainers: true, v1.PodInitialized: true, v1.PodReady: true, v1.ContainersReady: true,
		v1.PodScheduled: true, v1.PodResizePending: true, v1.PodResizeInProgress: true, v1.AllContainersRestarting: true,
	}
	own[v1.DisruptionTarget] = slices.ContainsFunc(want,
		func(c v1.PodCondition) bool { return c.Type == v1.DisruptionTarget })
	var out []v1.PodCondition
	for _, c := range known {
		if !own[c.Type] {
			out = append(out, c)
		}
	}
	for _, c := range want {
		if own[c.Type] {
			out = append(out, c)
		}
	}
	return out
}

// newer compares the resource versions of two versions of a pod. The API server increases the
// resource version with each write.
func newer(a, b *v1.Pod) bool {
	x, errX := strconv.ParseUint(a.ResourceVersion, 10, 64)
	y, errY := strconv.ParseUint(b.ResourceVersion, 10, 64)
	return errX != nil || errY != nil || x >= y
}
