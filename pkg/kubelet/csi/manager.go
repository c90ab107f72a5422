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

// sweepPeriod is how often unstaging unused volumes is tried again.
const sweepPeriod = 10 * time.Second

// Config holds a Manager's settings.
type Config struct {
	// RootDir is the kubelet's directory, /var/lib/kubelet.
	RootDir  string
	NodeName string
	// Client reads drivers, attachments and secrets, because these are not watched, and writes the
	// node's CSINode.
	Client kubernetes.Interface
	// Token returns a token of the pod's service account.
	Token func(ctx context.Context, pod *v1.Pod, account string, audiences []string,
		expiry time.Duration) (*authenticationv1.TokenRequestStatus, error)
	// Changed is called when the list of volumes in use changes, so that the node's status must be
	// written.
	Changed func()
	// UpdatePeriod returns how often the kubelet asks a driver how many volumes the node can have,
	// or zero for never. Attaches reports whether its volumes are attached. Both come from its
	// CSIDriver; when that changes, Resync is called.
	UpdatePeriod func(driver string) time.Duration
	Attaches     func(driver string) bool
	// Metrics count and time the calls to drivers; nil disables them.
	Metrics *metrics.Storage
	Clock   clock.Clock
	Log     *slog.Logger
}

// Manager mounts the CSI volumes of the node's pods. It is safe for concurrent use.
type Manager struct {
	cfg        Config
	wake       chan struct{}
	publishing sync.Mutex // locked while the CSINode is written; locked before mu

	mu      sync.Mutex
	drivers map[string]*driver
	gone    map[string]bool // drivers to be removed from the CSINode
	volumes map[id]*volume  // all volumes that have a record on the disk, or soon will
}

// volume is the state of a volume on this node. The Manager's lock guards its fields, except asking
// and surely.
type volume struct {
	id id
	// asking is locked during calls to the driver about the volume. It is taken before the
	// Manager's lock.
	asking sync.Mutex
	// users are the pods that the volume is published to, or may be.
	users map[place]bool
	// staged is the place where the volume is staged, or may be staged. It is nil if the volume is
	// not staged.
	staged *stage
	// surely reports whether staging has succeeded once, perhaps in an earlier process. It is
	// guarded by asking.
	surely bool
	// context is the SELinux label that the volume is staged and published with, or "".
	context string
	// wanted counts the pods that are about to use the volume.
	wanted int
	inline bool
}

func (v *volume) idle() bool { return len(v.users) == 0 && v.wanted == 0 }

// New returns a Manager with the volumes that are recorded on the disk. It starts nothing.
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

// Run keeps the CSINode up to date and unstages volumes that no pod uses, until ctx ends. Volumes
// that pods use stay mounted when it returns.
func (m *Manager) Run(ctx context.Context) error {
	t := m.cfg.Clock.NewTicker(sweepPeriod)
	defer t.Stop()
	known := false
	for {
		if !known {
			// Create the CSINode first: the scheduler takes its existence as a sign that the node's
			// drivers are known.
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

// pause waits for a wake-up, for a tick, or for the time in until unless that is zero. It reports
// false if ctx ends.
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

// Resync makes Run check all drivers and volumes again.
func (m *Manager) Resync() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// sweep unstages volumes that no pod uses any more. They exist if an earlier process was killed
// before it unstaged them, or if the driver was not available.
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

// volume returns the entry of a volume and creates it if necessary. The caller holds mu, unless no
// other goroutine uses the Manager yet.
func (m *Manager) volume(i id) *volume {
	v := m.volumes[i]
	if v == nil {
		v = &volume{id: i, users: map[place]bool{}}
		m.volumes[i] = v
	}
	return v
}

// reserve records that a pod is about to use a volume. The returned function removes this record.
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

// dropUnused drops the entry of a volume that is not on the node any more. The caller holds mu.
func (m *Manager) dropUnused(v *volume) {
	if v.idle() && v.staged == nil {
		delete(m.volumes, v.id)
		if !v.inline {
			m.cfg.Changed()
		}
	}
}

// note changes the entry of a volume under the Manager's lock, and drops the entry if it is unused.
func (m *Manager) note(v *volume, change func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change()
	m.dropUnused(v)
}

// InUse returns the volumes that must not be detached from the node, sorted. It leaves out drivers
// whose volumes are not attached.
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
