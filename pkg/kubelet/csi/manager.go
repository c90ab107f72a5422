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

// sweepPeriod is how often it is tried again to undo what nobody uses.
const sweepPeriod = 10 * time.Second

// Config is what a Manager needs.
type Config struct {
	// RootDir is the kubelet's directory, /var/lib/kubelet.
	RootDir  string
	NodeName string
	// Client reads drivers, attachments and secrets, which are not watched, and
	// writes the node's CSINode.
	Client kubernetes.Interface
	// Token gives a token of the pod's service account.
	Token func(ctx context.Context, pod *v1.Pod, account string, audiences []string, expiry time.Duration) (*authenticationv1.TokenRequestStatus, error)
	// Changed has the node's status written: what is in use has changed.
	Changed func()
	// UpdatePeriod is how often a driver wants to be asked how many volumes the node takes
	// (zero: never), and Attaches reports whether its volumes are attached, as its CSIDriver
	// says. When that changes, Look is called.
	UpdatePeriod func(driver string) time.Duration
	Attaches     func(driver string) bool
	// Metrics count what drivers are asked; nil disables that.
	Metrics *metrics.Storage
	Clock   clock.Clock
	Log     *slog.Logger
}

// Manager has drivers make the volumes of the node's pods. It is safe for concurrent use.
type Manager struct {
	cfg        Config
	wake       chan struct{}
	publishing sync.Mutex // held while the CSINode is written; taken before mu

	mu      sync.Mutex
	drivers map[string]*driver
	gone    map[string]bool // drivers to be taken out of the CSINode
	volumes map[id]*volume  // all that is on the disk, or about to be
}

// volume is a volume as this node knows it. Its fields but the lock are guarded by
// the lock of the Manager.
type volume struct {
	id id
	// asking is held while a driver is asked about the volume; taken before the Manager's.
	asking sync.Mutex
	// users are the pods that have it, or have begun to.
	users map[place]bool
	// staged is where it is staged, or was begun to be; nil if it is not.
	staged *stage
	// surely reports that it was staged once, by this process or perhaps by an earlier one, and not only
	// tried to; guarded by asking.
	surely bool
	// context is the SELinux label that it is staged and published with, if with any.
	context string
	// wanted counts the pods that are about to use it.
	wanted int
	inline bool
}

func (v *volume) idle() bool { return len(v.users) == 0 && v.wanted == 0 }

// New makes a Manager with what the disk remembers. It starts nothing.
func New(cfg Config) (*Manager, error) {
	if cfg.Metrics == nil {
		cfg.Metrics = metrics.NewStorage(nil)
	}
	m := &Manager{
		cfg: cfg, wake: make(chan struct{}, 1), drivers: map[string]*driver{}, gone: map[string]bool{}, volumes: map[id]*volume{},
	}
	return m, m.load()
}

// Run keeps the CSINode, also when drivers want to be asked again, and unstages what no pod
// uses, until ctx ends. Volumes stay then.
func (m *Manager) Run(ctx context.Context) error {
	t := m.cfg.Clock.NewTicker(sweepPeriod)
	defer t.Stop()
	known := false
	for {
		if !known {
			// The scheduler tells by it that the node's drivers are known.
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

// pause waits until there is something to do, at the latest until then (zero: whenever), or a tick.
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

// Look has Run look again.
func (m *Manager) Look() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// sweep unstages volumes that no pod has any more: an earlier process was killed
// between the two steps, or the driver was away.
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

// volume returns the entry of a volume, made if need be. The caller holds mu, or is alone.
func (m *Manager) volume(i id) *volume {
	v := m.volumes[i]
	if v == nil {
		v = &volume{id: i, users: map[place]bool{}}
		m.volumes[i] = v
	}
	return v
}

// want notes that a pod is about to use a volume; the result takes that back.
func (m *Manager) want(i id, inline bool) (*volume, func()) {
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
		m.tidy(v)
	}
}

// tidy forgets a volume of which nothing is on the node. The caller holds mu.
func (m *Manager) tidy(v *volume) {
	if v.idle() && v.staged == nil {
		delete(m.volumes, v.id)
		if !v.inline {
			m.cfg.Changed()
		}
	}
}

// note changes what is known of a volume.
func (m *Manager) note(v *volume, change func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change()
	m.tidy(v)
}

// InUse are the volumes that must not be detached from the node, sorted: of drivers that attach theirs.
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
