// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/workqueue"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/kubelet/csi"
	"keelson.dev/keelson/pkg/kubelet/metrics"
	"keelson.dev/keelson/pkg/kubelet/objects"
)

// Objects gives the API objects that volumes are made from. *objects.Manager is one.
type Objects interface {
	ConfigMap(ctx context.Context, namespace, name string) (*v1.ConfigMap, error)
	Secret(ctx context.Context, namespace, name string) (*v1.Secret, error)
	ServiceAccountToken(ctx context.Context, pod *v1.Pod, sa string, audiences []string, expiry time.Duration) (*authenticationv1.TokenRequestStatus, error)
	Subscribe(changed func(ref objects.Ref, pods []*v1.Pod)) (unsubscribe func())
}

// ReasonFailedMount is the reason of the events for volumes that cannot be made.
const ReasonFailedMount = "FailedMount"

const (
	// setupWorkers is how many volumes of a pod are made at the same time.
	setupWorkers = 8
	// refreshWorkers is how many pods are refreshed at the same time.
	refreshWorkers = 4
	// renewInterval is how often all volumes are looked at: tokens and trust bundles age without an event.
	renewInterval = time.Minute
	// lastRetry is the longest delay between attempts to refresh a pod's volumes.
	lastRetry = 2 * time.Minute
)

// Config is what a Manager needs.
type Config struct {
	// RootDir is the kubelet's directory, /var/lib/kubelet.
	RootDir string
	// NodeName is the node's name.
	NodeName string
	// Client reads claims, volumes and trust bundles; these are not watched.
	Client  kubernetes.Interface
	Objects Objects
	// Drivers make the volumes that are not the kubelet's own business.
	Drivers Drivers
	// Allocatable gives the node's allocatable resources, for downward API volumes and the size
	// of memory volumes.
	Allocatable func() v1.ResourceList
	// NodeLabels gives the node's labels, for the node affinity of persistent volumes; nil means
	// only the host name is known.
	NodeLabels func() map[string]string
	// Label gives the SELinux label of the files of a container that runs with these options;
	// nil: the node has no SELinux.
	Label func(*v1.SELinuxOptions) (string, error)
	Clock clock.Clock
	Log   *slog.Logger
	// Metrics count operations; nil disables that.
	Metrics *metrics.Storage
	// Event records an event on a pod; it may be nil.
	Event func(pod *v1.Pod, eventType, reason, message string)
}

// Manager makes the volumes of the node's pods and keeps their content fresh. It is safe for concurrent use.
type Manager struct {
	cfg   Config
	queue workqueue.TypedRateLimitingInterface[types.UID]

	mu       sync.Mutex
	pods     map[types.UID]*podVolumes
	measured map[statsapi.PVCReference]bool // claims whose volumes are being measured
}

// podVolumes are the volumes of one pod as this process knows them.
type podVolumes struct {
	// pod is the latest version; nil before Prepare and from Teardown on. It has no lock, so that
	// Update never waits for volumes that are being made.
	pod atomic.Pointer[v1.Pod]

	shown atomic.Pointer[map[string]prepared] // ready, for those who do not wait for the lock

	mu    sync.Mutex          // held while the pod's volumes are made, refreshed or removed
	ready map[string]prepared // by volume name
	// inherited reports that the pod runs with volumes that an earlier process made, and this
	// one has not made its own yet.
	inherited bool
	// leaving are those that are being taken away.
	leaving []prepared
}

// prepared is a volume that is ready.
type prepared struct {
	// path is where the volume is on the node; empty for image volumes and block devices.
	path string
	// device is the node's device of a block volume.
	device string
	// readOnly reports that containers cannot write it whatever their mounts say.
	readOnly bool
	// managed reports that the volume is the pod's own, to relabel and to change the group of.
	managed bool
	// labelled reports that the files have their SELinux label already, so that nobody is to relabel them.
	labelled bool
	// driven is what a driver made the volume from; nil if none did.
	driven *csi.Volume
	// local is what a claim's volume of the node's own was made from; nil for others.
	local *v1.PersistentVolume
	// plugin is what metrics call the volume's plugin.
	plugin string
}

// New makes a Manager. It starts nothing and touches nothing.
func New(cfg Config) *Manager {
	if cfg.Metrics == nil {
		cfg.Metrics = metrics.NewStorage(nil)
	}
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[types.UID](500*time.Millisecond, lastRetry)
	return &Manager{
		cfg: cfg,
		queue: workqueue.NewTypedRateLimitingQueueWithConfig(limiter,
			workqueue.TypedRateLimitingQueueConfig[types.UID]{Name: "volumes", Clock: cfg.Clock}),
		pods: map[types.UID]*podVolumes{}, measured: map[statsapi.PVCReference]bool{},
	}
}

// Run keeps the content of prepared volumes fresh until ctx ends.
func (m *Manager) Run(ctx context.Context) error {
	unsubscribe := m.cfg.Objects.Subscribe(func(_ objects.Ref, pods []*v1.Pod) {
		for _, p := range pods {
			m.queue.Add(p.UID)
		}
	})
	defer unsubscribe()
	var workers sync.WaitGroup
	defer workers.Wait()
	defer m.queue.ShutDown()
	for range refreshWorkers {
		workers.Go(func() { m.work(ctx) })
	}
	ticker := m.cfg.Clock.NewTicker(renewInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
			for _, uid := range m.known() {
				m.queue.Add(uid)
			}
		}
	}
}

func (m *Manager) work(ctx context.Context) {
	for {
		uid, shutdown := m.queue.Get()
		if shutdown {
			return
		}
		if err := m.refresh(ctx, uid); err != nil && ctx.Err() == nil {
			m.queue.AddRateLimited(uid)
		} else {
			m.queue.Forget(uid)
		}
		m.queue.Done(uid)
	}
}

// known returns the pods whose volumes this process made, or is to make again.
func (m *Manager) known() []types.UID {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Collect(maps.Keys(m.pods))
}

// entry returns the pod's entry, made if need be.
func (m *Manager) entry(uid types.UID) *podVolumes {
	m.mu.Lock()
	defer m.mu.Unlock()
	pv, ok := m.pods[uid]
	if !ok {
		pv = &podVolumes{ready: map[string]prepared{}}
		m.pods[uid] = pv
	}
	return pv
}

// Prepare makes every volume that pod's containers use and returns when all are ready. It is
// idempotent: volumes that are there stay as they are, but for their content. An *Error tells
// the event to record.
func (m *Manager) Prepare(ctx context.Context, pod *v1.Pod) (Mounts, error) {
	pv := m.entry(pod.UID)
	pv.mu.Lock()
	defer pv.mu.Unlock()
	pv.pod.Store(pod)
	if err := m.makeAll(ctx, pv, pod); err != nil {
		return Mounts{}, err
	}
	return Mounts{podDir: m.podDir(pod.UID), ready: maps.Clone(pv.ready), log: m.cfg.Log}, nil
}

// makeAll makes those of the pod's volumes that are not ready. The caller holds pv.mu.
func (m *Manager) makeAll(ctx context.Context, pv *podVolumes, pod *v1.Pod) error {
	volumes := usedVolumes(pod)
	results := make([]prepared, len(volumes))
	errs := make([]error, len(volumes))
	slots := make(chan struct{}, setupWorkers)
	var setups sync.WaitGroup
	for i, v := range volumes {
		if _, ok := pv.ready[v.Name]; ok {
			continue
		}
		setups.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			results[i], errs[i] = m.setUp(ctx, pod, v)
		})
	}
	setups.Wait()
	for i, v := range volumes {
		if _, ok := pv.ready[v.Name]; !ok && errs[i] == nil {
			pv.ready[v.Name] = results[i]
		}
	}
	pv.show()
	err := errors.Join(errs...)
	if err == nil {
		pv.inherited = false
	}
	return err
}

// setUp makes one volume.
func (m *Manager) setUp(ctx context.Context, pod *v1.Pod, v *v1.Volume) (prepared, error) {
	p, err := m.make(ctx, pod, v)
	var already *Error
	if err == nil || errors.As(err, &already) {
		return p, err
	}
	return prepared{}, setUpError(v.Name, err)
}

// Update tells the manager of a new version of a pod (labels, annotations, resources), so that
// downward API volumes follow. A pod that runs has volumes though this process may not have made
// them: these are made again soon, as Prepare would, so that they are kept fresh from then on.
func (m *Manager) Update(pod *v1.Pod, runs bool) {
	m.mu.Lock()
	pv, ok := m.pods[pod.UID]
	if !ok && runs {
		pv = &podVolumes{ready: map[string]prepared{}, inherited: true}
		pv.pod.Store(pod)
		m.pods[pod.UID] = pv
	}
	m.mu.Unlock()
	switch {
	case ok:
		for old := pv.pod.Load(); old != nil; old = pv.pod.Load() {
			if pv.pod.CompareAndSwap(old, pod) {
				m.queue.Add(pod.UID)
				return
			}
		}
	case runs:
		m.queue.Add(pod.UID)
	}
}

// refresh writes the present content of the pod's volumes that are ready.
func (m *Manager) refresh(ctx context.Context, uid types.UID) error {
	m.mu.Lock()
	pv, ok := m.pods[uid]
	m.mu.Unlock()
	if !ok {
		return nil
	}
	pv.mu.Lock()
	defer pv.mu.Unlock()
	pod := pv.pod.Load()
	if pod == nil { // torn down meanwhile
		return nil
	}
	if pv.inherited {
		err := m.makeAll(ctx, pv, pod)
		if err != nil && ctx.Err() == nil {
			m.event(pod, err)
		}
		return err
	}
	var errs []error
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		p, ready := pv.ready[v.Name]
		var err error
		switch {
		case !ready:
		case hasContent(v):
			err = m.writeContent(ctx, pod, v, p.path)
		case p.driven != nil || p.local != nil:
			err = m.tend(ctx, pod, v, p)
		}
		if err != nil {
			err := setUpError(v.Name, err)
			m.event(pod, err)
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func (m *Manager) event(pod *v1.Pod, err error) {
	if m.cfg.Event != nil {
		m.cfg.Event(pod, v1.EventTypeWarning, ReasonFailedMount, err.Error())
	}
}

// Pods names the pods that have volumes under RootDir, including those left by an earlier process.
func (m *Manager) Pods() ([]types.UID, error) {
	entries, err := os.ReadDir(filepath.Join(m.cfg.RootDir, "pods"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("list pods' directories: %w", err)
	}
	var out []types.UID
	for _, e := range entries {
		uid := types.UID(e.Name())
		for _, dir := range []string{m.volumesDir(uid), m.devicesDir(uid), m.subpathsDir(uid)} {
			if _, err := os.Lstat(dir); err == nil {
				out = append(out, uid)
				break
			}
		}
	}
	return out, nil
}

func (m *Manager) podDir(uid types.UID) string {
	return filepath.Join(m.cfg.RootDir, "pods", string(uid))
}

func (m *Manager) volumesDir(uid types.UID) string { return filepath.Join(m.podDir(uid), "volumes") }
func (m *Manager) devicesDir(uid types.UID) string {
	return filepath.Join(m.podDir(uid), "volumeDevices")
}

func (m *Manager) subpathsDir(uid types.UID) string {
	return filepath.Join(m.podDir(uid), subpathsName)
}

// volumeDir is where a volume of a plugin is; the plugin's name is escaped as Kubernetes does.
func (m *Manager) volumeDir(uid types.UID, plugin, name string) string {
	return filepath.Join(m.volumesDir(uid), strings.ReplaceAll(plugin, "/", "~"), name)
}

// Error is why a volume could not be made ready.
type Error struct {
	// Reason is the event reason, FailedMount or another of Kubernetes'.
	Reason string
	// Volume names the volume that is to blame.
	Volume string
	// Operation is what was tried: "MountVolume.SetUp failed" and the like; empty if Err says it all.
	Operation string
	Err       error
}

func setUpError(volume string, err error) *Error {
	return &Error{Reason: ReasonFailedMount, Volume: volume, Operation: "MountVolume.SetUp failed", Err: err}
}

// Error returns the text of the event.
func (e *Error) Error() string {
	if e.Operation == "" {
		return e.Err.Error()
	}
	return fmt.Sprintf("%s for volume %q : %v", e.Operation, e.Volume, e.Err)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }
