// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package static

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"keelson.dev/api/clock"
)

// Pool runs pods.
type Pool interface {
	Set(pod *v1.Pod)
	Remove(uid types.UID)
	// Knows reports whether something of a pod may be left on the node.
	Knows(uid types.UID) bool
}

// Config is what a Manager needs.
type Config struct {
	// Path is a file with a pod, or a directory of such files; "": there are none.
	Path string
	// Period is how often it is read without a reason.
	Period time.Duration
	// URL gives a pod, or a list of pods, to whom asks with Header; "": there are none.
	// URLPeriod is how often it is asked.
	URL       string
	Header    http.Header
	URLPeriod time.Duration
	NodeName  string
	Client    kubernetes.Interface
	// Node is the node as the API has it, or nil.
	Node func() *v1.Node
	// Seen are the pods that the API binds to the node, once they are known.
	Seen func() (pods []*v1.Pod, known bool)
	// Reflect has the statuses of static pods written to their mirrors.
	Reflect func()
	// Restarted is told of pods that start again since their file was away for a while; it may be nil.
	Restarted func()
	Clock     clock.Clock
	Log       *slog.Logger
}

// retryMirror is how soon a mirror is tried again that could not be made or deleted.
const retryMirror = 2 * time.Second

// Manager keeps static pods running. It is safe for concurrent use.
type Manager struct {
	cfg  Config
	pool Pool
	wake chan struct{}

	mu   sync.Mutex
	want map[string]*v1.Pod // as the files have it
	runs map[string]*v1.Pod // that the pool has, or had last; an ended one until its follower starts
	bad  string             // what was last wrong with the files
	// ending are those of the pool that were not wanted once: they end even if they are wanted again.
	ending map[types.UID]bool

	files, served map[string]*v1.Pod // as each source last had them
	complaint     string             // what was last wrong with the URL
}

// New makes a Manager. It reads nothing yet.
func New(cfg Config) *Manager {
	return &Manager{cfg: cfg, wake: make(chan struct{}, 1), want: map[string]*v1.Pod{}, runs: map[string]*v1.Pod{}, ending: map[types.UID]bool{}}
}

// Start hands the pods of the files to the pool. Until then no pod of the runtime
// can be said to be nobody's.
func (m *Manager) Start(pool Pool) {
	m.pool = pool
	m.read()
	m.apply()
	// What a server would say is not waited for: what it gave to the kubelet before runs on
	// meanwhile, as the pods of nobody do not end before the API is heard.
}

// Poke has pods and mirrors looked at.
func (m *Manager) Poke() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// Pods are the static pods of the node.
func (m *Manager) Pods() []*v1.Pod {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []*v1.Pod
	for name, pod := range m.runs {
		if m.want[name] != nil {
			out = append(out, pod)
		}
	}
	return out
}

// Run follows the files and the mirrors until ctx ends. Start comes before.
func (m *Manager) Run(ctx context.Context) error {
	changed, again, stop := m.follow()
	defer stop()
	t := m.cfg.Clock.NewTicker(m.cfg.Period)
	defer t.Stop()
	asked := make(chan struct{}, 1)
	var asking sync.WaitGroup
	defer asking.Wait()
	if m.cfg.URL != "" {
		asking.Go(func() { m.ask(ctx, asked) })
	}
	for {
		wait := m.cfg.Period
		if done, err := m.mirrors(ctx); !done {
			wait = retryMirror
			if err != nil && ctx.Err() == nil {
				m.cfg.Log.Warn("Failed to update mirror pods", "err", err)
			}
		}
		m.cfg.Reflect()
		retry := m.cfg.Clock.NewTimer(wait)
		select {
		case <-ctx.Done():
			retry.Stop()
			return nil
		case <-m.wake:
		case <-retry.C():
		case <-t.C():
			again()
			m.read()
		case <-changed:
			m.read()
		case <-asked:
		}
		retry.Stop()
		m.apply()
	}
}

// follow tells of changes of the files; where the kernel cannot, the period has to
// do. again follows a path that was not there.
func (m *Manager) follow() (changed <-chan struct{}, again, stop func()) {
	if m.cfg.Path == "" {
		return nil, func() {}, func() {}
	}
	w, err := fsnotify.NewWatcher()
	if err != nil {
		m.cfg.Log.Warn("Failed to watch the files of static pods", "err", err)
		return nil, func() {}, func() {}
	}
	again = func() {
		if err := w.Add(m.cfg.Path); err != nil {
			m.cfg.Log.Debug("Failed to watch the files of static pods", "err", err)
		}
	}
	again()
	out := make(chan struct{}, 1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case _, ok := <-w.Events:
				if !ok {
					return
				}
				select {
				case out <- struct{}{}:
				default:
				}
			case _, ok := <-w.Errors:
				if !ok {
					return
				}
			}
		}
	}()
	return out, again, func() {
		_ = w.Close() // nothing is lost
		<-done
	}
}

// read takes up what the files have.
func (m *Manager) read() {
	if m.cfg.Path == "" {
		return
	}
	pods, bad, err := read(m.cfg.Path, m.cfg.NodeName)
	if err != nil {
		m.cfg.Log.Warn("Failed to read the files of static pods", "err", err)
		return
	}
	text := ""
	if bad != nil {
		text = bad.Error()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if text != "" && text != m.bad {
		m.cfg.Log.Warn("File skipped: it is not a valid static pod", "err", bad)
	}
	m.files, m.bad = pods, text
	m.merge()
}

// merge makes what is wanted of what the sources have; a name belongs to the files first. The
// caller holds the lock.
func (m *Manager) merge() {
	m.want = maps.Clone(m.served)
	if m.want == nil {
		m.want = map[string]*v1.Pod{}
	}
	maps.Copy(m.want, m.files)
}

// apply brings the pool to what the files have.
func (m *Manager) apply() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, pod := range m.runs {
		want := m.want[name]
		same := want != nil && want.UID == pod.UID
		switch {
		case same && !m.ending[pod.UID]:
		case m.pool.Knows(pod.UID):
			m.ending[pod.UID] = true
			m.pool.Remove(pod.UID)
		default:
			delete(m.runs, name)
			delete(m.ending, pod.UID)
			if same && m.cfg.Restarted != nil {
				m.cfg.Restarted()
			}
		}
	}
	for name, pod := range m.want {
		if m.runs[name] == nil {
			m.runs[name] = pod
			m.pool.Set(pod)
		}
	}
}

// describe names a pod in errors.
func describe(pod *v1.Pod, err error) error { return fmt.Errorf("pod %s: %w", key(pod), err) }
