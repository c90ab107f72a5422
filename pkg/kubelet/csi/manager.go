// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package csi

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/client-go/kubernetes"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/kubelet/metrics"
)

// sweepPeriod is how often Run tries to unstage volumes that no pod uses.
const sweepPeriod = 10 * time.Second

// Config holds a Manager's settings.
type Config struct {
	// RootDir is the kubelet's directory, normally /var/lib/kubelet.
	RootDir  string
	NodeName string
	// Client reads CSIDrivers, VolumeAttachments and Secrets, which are not watched. It also writes
	// the node's CSINode and the Node.
	Client kubernetes.Interface
	// Token returns a token of the pod's service account for the given audiences.
	Token func(ctx context.Context, pod *v1.Pod, account string, audiences []string,
		expiry time.Duration) (*authenticationv1.TokenRequestStatus, error)
	// Changed is called when the list of volumes in use has changed. The kubelet must then update
	// the Node's status.
	Changed func()
	// UpdatePeriod returns how often the kubelet asks a driver how many volumes the node can have;
	// zero means never. Attaches reports whether a driver's volumes are attached to nodes. Both
	// depend on the driver's CSIDriver object; the caller must call Resync when the object changes.
	UpdatePeriod func(driver string) time.Duration
	Attaches     func(driver string) bool
	// Metrics measures the calls to drivers. If it is nil, they are not measured.
	Metrics *metrics.Storage
	Clock   clock.Clock
	Log     *slog.Logger
}

// Manager mounts the CSI volumes of the node's pods. It is safe for concurrent use.
type Manager struct {
	cfg        Config
	wake       chan struct{}
	publishing sync.Mutex // held while the CSINode is written; locked before mu

	mu      sync.Mutex
	drivers map[string]*driver
	gone    map[string]bool // unregistered drivers that must be removed from the CSINode
	volumes map[id]*volume  // volumes that have a record on the disk or will have one soon
}

// volume is the state of a volume on this node. Manager.mu guards the fields of the volume, except
// asking, surely and counted.
type volume struct {
	id id
	// asking is held during calls to the driver that change this volume. It is locked before the
	// Manager's mutex mu.
	asking sync.Mutex
	// users are the pods for which the volume is published, or may be published.
	users map[place]bool
	// staged is the place where the volume is staged, or may be staged. It is nil if the volume is
	// certainly not staged.
	staged *stage
	// surely means that the volume was staged successfully, or that an earlier process may have
	// staged it. It is guarded by asking.
	surely bool
	// context is the SELinux label with which the volume is staged and published. It is empty if
	// there is no label.
	context string
	// counted reports whether a metric has counted the volume as mounted with its label. It is guarded by
	// asking.
	counted bool
	// wanted is the number of calls that are about to use the volume.
	wanted int
	inline bool
}

func (v *volume) idle() bool { return len(v.users) == 0 && v.wanted == 0 }

// New returns a Manager that starts with the volumes recorded on the disk.
func New(cfg Config) (*Manager, error) {
	if cfg.Metrics == nil {
		cfg.Metrics = metrics.NewStorage(nil)
	}
	m := &Manager{
		cfg: cfg, wake: make(chan struct{}, 1), drivers: map[string]*driver{}, gone: map[string]bool{},
		volumes: map[id]*volume{},
	}
	return m, m.load()
}

// Run keeps the CSINode up to date and unstages volumes that no pod uses, until ctx ends. It does
// not unmount the volumes of pods when it returns.
func (m *Manager) Run(ctx context.Context) error {
	t := m.cfg.Clock.NewTicker(sweepPeriod)
	defer t.Stop()
	known := false
	for {
		if !known {
			// Create the CSINode before anything else. The scheduler takes its existence as a sign
			// that it lists the node's drivers.
			err := m.csiNode(ctx, func(*storagev1.CSINode) {})
			known = err == nil
		}
		next, err := m.renew(ctx)
		if err := errors.Join(err, m.withdraw(ctx), m.sweep(ctx)); err != nil && ctx.Err() == nil {
			m.cfg.Log.Warn("Failed to clean up CSI volumes", "err", err)
		}
		if !m.pause(ctx, t.C(), next) {
			return nil
		}
	}
}

// pause waits until Resync is called, until the next tick, or until the given time if that is not
// zero. It returns false if ctx ends first.
func (m *Manager) pause(ctx context.Context, tick <-chan time.Time, until time.Time) bool {
	var due <-chan time.Time
	if !until.IsZero() {
		t := m.cfg.Clock.NewTimer(max(until.Sub(m.cfg.Clock.Now()), 0))
		defer t.Stop()
		due = t.C()
	}
	select {
	case <-ctx.Done():
		return false
	case <-m.wake:
	case <-tick:
	case <-due:
	}
	return true
}

// Resync makes Run check all drivers and volumes immediately.
func (m *Manager) Resync() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// sweep unstages volumes that no pod uses. A volume is left staged if an earlier process was killed
// before it unstaged the volume, or if the driver was not available at that time.
func (m *Manager) sweep(ctx context.Context) error {
	m.mu.Lock()
	var idle []*volume
	for _, v := range m.volumes {
		if v.idle() && v.staged != nil {
			idle = append(idle, v)
		}
	}
	m.mu.Unlock()
	var errs []error
	for _, v := range idle {
		v.asking.Lock()
		errs = append(errs, m.unstage(ctx, v))
		v.asking.Unlock()
	}
	return errors.Join(errs...)
}

// volume returns the entry of a volume, and creates the entry if necessary. The caller holds mu,
// unless no other goroutine uses the Manager yet.
func (m *Manager) volume(i id) *volume {
	v := m.volumes[i]
	if v == nil {
		v = &volume{id: i, users: map[place]bool{}}
		m.volumes[i] = v
	}
	return v
}

// reserve records that a call is about to use a volume. The caller calls the returned function when
// the call has ended.
func (m *Manager) reserve(i id, inline bool) (*volume, func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	v := m.volume(i)
	v.wanted++
	v.inline = inline
	if !inline && v.wanted == 1 && len(v.users) == 0 && v.staged == nil {
		m.cfg.Changed()
	}
	return v, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		v.wanted--
		m.dropUnused(v)
	}
}

// dropUnused drops the entry of a volume that is neither used by a pod nor staged (mounted for the
// whole node). The caller holds mu.
func (m *Manager) dropUnused(v *volume) {
	if v.idle() && v.staged == nil {
		delete(m.volumes, v.id)
		if !v.inline {
			m.cfg.Changed()
		}
	}
}

// note applies change to the entry of a volume while holding mu. It drops the entry if the volume
// is no longer used or staged.
func (m *Manager) note(v *volume, change func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change()
	m.dropUnused(v)
}

// InUse returns the volumes that must not be detached from the node, sorted by name. It leaves out
// volumes of drivers whose volumes are not attached.
func (m *Manager) InUse() []v1.UniqueVolumeName {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []v1.UniqueVolumeName
	for i, v := range m.volumes {
		if !v.inline && m.cfg.Attaches(i.driver) {
			out = append(out, v1.UniqueVolumeName(i.String()))
		}
	}
	slices.Sort(out)
	return out
}
