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

// Objects provides the API objects from which volumes get their content. *objects.Manager
// implements it.
type Objects interface {
	ConfigMap(ctx context.Context, namespace, name string) (*v1.ConfigMap, error)
	Secret(ctx context.Context, namespace, name string) (*v1.Secret, error)
	ServiceAccountToken(ctx context.Context, pod *v1.Pod, sa string, audiences []string,
		expiry time.Duration) (*authenticationv1.TokenRequestStatus, error)
	Subscribe(changed func(ref objects.Ref, pods []*v1.Pod)) (unsubscribe func())
}

// Certificates provides the certificates of pods. *podcertificate.Manager implements it.
type Certificates interface {
	// Credentials returns the private key and the certificates of the podCertificate source with
	// this index in a projected volume, as PEM. It returns an error while these are not issued.
	Credentials(pod *v1.Pod, volume string, index int, source *v1.PodCertificateProjection) (key, chain []byte, err error)
	// Forget drops the pod's keys and certificates.
	Forget(pod types.UID)
}

// ReasonFailedMount is the reason of events about volumes that cannot be set up.
const ReasonFailedMount = "FailedMount"

const (
	// setupWorkers is how many volumes of a pod are set up concurrently.
	setupWorkers = 8
	// refreshWorkers is how many pods are refreshed concurrently.
	refreshWorkers = 4
	// renewInterval is how often all volumes are refreshed, because tokens and trust bundles change
	// without an event.
	renewInterval = time.Minute
	// lastRetry is the longest delay between attempts to refresh a pod's volumes.
	lastRetry = 2 * time.Minute
)

// Config holds a Manager's settings.
type Config struct {
	// Properties of the node.

	// RootDir is the kubelet's directory, /var/lib/kubelet.
	RootDir string
	// NodeName is the node's name.
	NodeName string
	// Allocatable returns the node's allocatable resources, for downward API volumes and the size
	// of memory volumes.
	Allocatable func() v1.ResourceList
	// NodeLabels returns the node's labels, for the node affinity of persistent volumes. If it is
	// nil, node affinity is not checked.
	NodeLabels func() map[string]string
	// Label returns the SELinux label for the files of a container with these options. It is nil
	// on a node without SELinux.
	Label func(*v1.SELinuxOptions) (string, error)

	// The API objects and drivers from which volumes are made.

	// Client reads claims, volumes and trust bundles, which are not watched.
	Client  kubernetes.Interface
	Objects Objects
	// Certificates provides the certificates of pods.
	Certificates Certificates
	// Drivers mounts the volumes of CSI drivers.
	Drivers Drivers

	// Where events, metrics and logs go.

	// Event records an event on a pod; it may be nil.
	Event func(pod *v1.Pod, eventType, reason, message string)
	// Metrics records the duration of operations; nil disables that.
	Metrics *metrics.Storage
	Clock   clock.Clock
	Log     *slog.Logger
}

// Manager sets up the volumes of the node's pods and updates their content. It is safe for
// concurrent use.
type Manager struct {
	cfg   Config
	queue workqueue.TypedRateLimitingInterface[types.UID]

	mu       sync.Mutex
	pods     map[types.UID]*podVolumes
	measured map[statsapi.PVCReference]*measurement // running measurements of ClaimStats
}

// podVolumes is what the Manager stores about the volumes of one pod.
type podVolumes struct {
	// pod is the latest version of the pod. It is nil before Prepare and after Teardown. It is
	// atomic so that Update need not wait for mu.
	pod atomic.Pointer[v1.Pod]

	// shown is a copy of ready for functions that must not wait for mu.
	shown atomic.Pointer[map[string]prepared]

	mu    sync.Mutex          // locked while the pod's volumes are set up, refreshed or removed
	ready map[string]prepared // mounted volumes, by volume name
	asked time.Time           // time of the first attempt to set up the volumes; zero before that
	// inherited reports whether the pod was running when this process started, and this process
	// has not yet set up its volumes.
	inherited bool
	// leaving are the volumes that Teardown is removing.
	leaving []prepared
}

// prepared is a volume that has been set up.
type prepared struct {
	// path is the volume's path on the node. It is empty for image volumes and block devices.
	path string
	// device is the path of a block volume's device on the node.
	device string
	// readOnly reports whether all containers mount the volume read-only, even if their
	// volumeMounts do not say so.
	readOnly bool
	// managed reports whether the runtime may change the SELinux labels of the volume's files.
	managed bool
	// labelled reports whether the volume was mounted with its SELinux label, so that the runtime
	// must not relabel its files.
	labelled bool
	// driven is the CSI volume from which this volume was prepared, or nil.
	driven *csi.Volume
	// local is the local persistent volume from which this volume was prepared, or nil.
	local *v1.PersistentVolume
	// plugin is the plugin's name as it is used in metrics.
	plugin string
}

// New returns a Manager. It changes nothing on the node, and starts only the goroutines of its work
// queue. Run stops them when it returns.
func New(cfg Config) *Manager {
	if cfg.Metrics == nil {
		cfg.Metrics = metrics.NewStorage(nil)
	}
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[types.UID](500*time.Millisecond, lastRetry)
	return &Manager{
		cfg: cfg,
		queue: workqueue.NewTypedRateLimitingQueueWithConfig(limiter,
			workqueue.TypedRateLimitingQueueConfig[types.UID]{Name: "volumes", Clock: cfg.Clock}),
		pods: map[types.UID]*podVolumes{}, measured: map[statsapi.PVCReference]*measurement{},
	}
}

// Run updates the content of the volumes that are set up, until ctx ends.
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
			for _, uid := range m.knownPods() {
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

// knownPods returns the pods whose volumes this process manages: those passed to Prepare, and pods
// passed to Update that were already running when the process started.
func (m *Manager) knownPods() []types.UID {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Collect(maps.Keys(m.pods))
}

// entry returns the podVolumes of a pod, and creates them if necessary.
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

// Prepare sets up all volumes that pod's containers use and returns when they are ready. It may be
// repeated: volumes that are already set up stay as they are. An error of type *Error contains the
// reason of the event that the caller must record.
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

// makeAll sets up those volumes of the pod that are not ready. The caller holds pv.mu.
func (m *Manager) makeAll(ctx context.Context, pv *podVolumes, pod *v1.Pod) error {
	volumes := usedVolumes(pod)
	results := make([]prepared, len(volumes))
	errs := make([]error, len(volumes))
	if pv.asked.IsZero() {
		pv.asked = m.cfg.Clock.Now()
	}
	slots := make(chan struct{}, setupWorkers)
	var setups sync.WaitGroup
	for i, v := range volumes {
		if _, ok := pv.ready[v.Name]; ok {
			continue
		}
		setups.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			if results[i], errs[i] = m.setUp(ctx, pod, v); errs[i] == nil && results[i].device == "" {
				m.cfg.Metrics.Mounted(results[i].plugin, m.cfg.Clock.Since(pv.asked))
			}
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

// setUp sets up one volume and converts errors to *Error.
func (m *Manager) setUp(ctx context.Context, pod *v1.Pod, v *v1.Volume) (prepared, error) {
	p, err := m.make(ctx, pod, v)
	var already *Error
	if err == nil || errors.As(err, &already) {
		return p, err
	}
	return prepared{}, setUpError(v.Name, err)
}

// Update stores a new version of a pod, and queues the pod so that its downward API volumes show
// the new labels, annotations and resources. If the pod is running but this process has not set up
// its volumes, the worker sets them up first, as Prepare would.
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

// Refresh queues the pod, so that its volumes get their current content soon. It has no effect on a
// pod that has no volumes.
func (m *Manager) Refresh(pod types.UID) { m.queue.Add(pod) }

// refresh updates the content of the pod's ready volumes, and repeats the mounts that CSI drivers
// require periodically.
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
	if pod == nil { // Teardown has removed the pod's volumes since the pod was queued
		return nil
	}
	var errs []error
	if pv.inherited {
		err := m.makeAll(ctx, pv, pod)
		if err == nil || ctx.Err() != nil {
			return err
		}
		// The volumes that have been set up are refreshed nevertheless.
		m.event(pod, err)
		errs = append(errs, err)
	}
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		p, ready := pv.ready[v.Name]
		var err error
		switch {
		case !ready:
		case hasContent(v):
			err = m.writeContent(ctx, pod, v, p.path)
		case p.driven != nil || p.local != nil:
			err = m.maintain(ctx, pod, v, p)
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

// Pods returns the pods that have volumes under RootDir, including pods of an earlier process.
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

// volumeDir returns the directory of a volume. As in Kubernetes, "/" in the plugin's name becomes
// "~".
func (m *Manager) volumeDir(uid types.UID, plugin, name string) string {
	return filepath.Join(m.volumesDir(uid), strings.ReplaceAll(plugin, "/", "~"), name)
}

// Error is the error of a volume that could not be set up.
type Error struct {
	// Reason is the reason of the event: FailedMount, or another reason that Kubernetes uses.
	Reason string
	// Volume is the name of the volume that failed.
	Volume string
	// Operation is the operation that failed, such as "MountVolume.SetUp failed". It is empty if
	// the message of Err already names the operation.
	Operation string
	Err       error
}

func setUpError(volume string, err error) *Error {
	return &Error{Reason: ReasonFailedMount, Volume: volume, Operation: "MountVolume.SetUp failed", Err: err}
}

// Error returns the text that the event contains.
func (e *Error) Error() string {
	if e.Operation == "" {
		return e.Err.Error()
	}
	return fmt.Sprintf("%s for volume %q : %v", e.Operation, e.Volume, e.Err)
}

// Unwrap returns the error that caused this one.
func (e *Error) Unwrap() error { return e.Err }
