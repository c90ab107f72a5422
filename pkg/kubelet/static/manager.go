// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package static

import (
	"cmp"
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

// Pool runs pods. It is the kubelet's set of pod workers.
type Pool interface {
	Set(pod *v1.Pod)
	Remove(uid types.UID)
	// HasWorker reports whether the worker of a pod has not finished, so that parts of the pod may
	// still be on the node.
	HasWorker(uid types.UID) bool
}

// Config holds a Manager's settings.
type Config struct {
	// The sources of static pods.

	// Path is a file with a pod, or a directory with such files. If it is "", there are no files.
	Path string
	// Period is how often the path is read even without an event.
	Period time.Duration
	// URL is where a pod or a list of pods is read from, with the request header Header. It may be
	// "". URLPeriod is how often it is read.
	URL       string
	Header    http.Header
	URLPeriod time.Duration

	// Access to the node and its pods in the API.

	NodeName string
	Client   kubernetes.Interface
	// Node returns the Node object as last read from the API, or nil.
	Node func() *v1.Node
	// Seen returns the pods that the API has for this node. The result known is false until they
	// have been read.
	Seen func() (pods []*v1.Pod, known bool)
	// Reflect makes the status manager write the status of each static pod to its mirror pod.
	Reflect func()

	// Restarted is called for each pod that is started again because its file was removed and came
	// back. It may be nil.
	Restarted func()
	Clock     clock.Clock
	Log       *slog.Logger
}

// retryMirror is the delay before the Manager retries to create or delete a mirror pod.
const retryMirror = 2 * time.Second

// Manager runs static pods and maintains their mirror pods. It is safe for concurrent use.
type Manager struct {
	cfg  Config
	pool Pool
	wake chan struct{}
	// synced is closed once the pool has the pods of all sources.
	synced chan struct{}

	mu sync.Mutex // guards the fields below

	// The pods of each source, and the errors of reading it.

	files, served map[string]*v1.Pod // pods as last read from the path and from the URL
	bad           string             // last error of the files, so that it is logged once
	complaint     string             // last error of the URL, so that it is logged once
	// filesRead and urlRead report whether the source was read, or does not exist. Until then, the
	// pods that an earlier kubelet got from it are not known.
	filesRead, urlRead bool

	// The wanted and the running pods.

	want map[string]*v1.Pod // pods that the sources contain, by "namespace/name"
	runs map[string]*v1.Pod // pods in the pool, and ended pods whose next version has not started yet
	// ending are pods in the pool that the sources did not contain for a while, or not in this
	// version. They must end even if the sources contain them again.
	ending map[types.UID]bool
}

// New returns a Manager. It does not read the sources of static pods yet.
func New(cfg Config) *Manager {
	return &Manager{cfg: cfg, wake: make(chan struct{}, 1), synced: make(chan struct{}),
		filesRead: cfg.Path == "", urlRead: cfg.URL == "",
		want: map[string]*v1.Pod{}, runs: map[string]*v1.Pod{}, ending: map[types.UID]bool{}}
}

// Start adds the pods of the files to the pool. It does not wait for the URL, or for files that
// cannot be read: Run reads them.
func (m *Manager) Start(pool Pool) {
	m.pool = pool
	m.read()
	m.apply()
}

// Synced reports whether all sources have been read and the pool has their pods. Until then, a pod
// that exists only in the runtime or in the API may be a static pod, so it must not be ended.
func (m *Manager) Synced() bool {
	select {
	case <-m.synced:
		return true
	default:
		return false
	}
}

// Poke makes Run check the pods and mirror pods now. It does not block.
func (m *Manager) Poke() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// Pods returns the static pods of the node.
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

// Run watches the sources and maintains the mirror pods until ctx ends. Start must have been
// called.
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

// follow watches the path and sends on changed after each event. The caller must call the function
// again periodically, which adds the watch if the path did not exist before. If the kernel cannot
// watch the path, files are read only once in each Period.
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
		_ = w.Close() // an error of Close can be ignored, because the watcher is not used any more
		<-done
	}
}

// read reads the files of static pods and updates the wanted pods.
func (m *Manager) read() {
	if m.cfg.Path == "" {
		return
	}
	pods, bad, err := read(m.cfg.Path, m.cfg.NodeName)
	m.mu.Lock()
	defer m.mu.Unlock()
	text := ""
	if problem := cmp.Or(err, bad); problem != nil {
		text = problem.Error()
	}
	if text != "" && text != m.bad {
		message := "File skipped: it is not a valid static pod"
		if err != nil {
			message = "Failed to read the files of static pods"
		}
		m.cfg.Log.Warn(message, "err", text)
	}
	if m.bad = text; err == nil {
		m.files, m.filesRead = pods, true
		m.merge()
	}
}

// merge computes the wanted pods from all sources. If the files and the URL contain a pod of the
// same name, the file takes precedence. The caller holds m.mu.
func (m *Manager) merge() {
	m.want = maps.Clone(m.served)
	if m.want == nil {
		m.want = map[string]*v1.Pod{}
	}
	maps.Copy(m.want, m.files)
}

// apply adds the wanted pods to the pool, and removes the others. A new version of a pod is added
// after the old one has ended.
func (m *Manager) apply() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, pod := range m.runs {
		want := m.want[name]
		same := want != nil && want.UID == pod.UID
		switch {
		case same && !m.ending[pod.UID]:
		case m.pool.HasWorker(pod.UID):
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
	if m.filesRead && m.urlRead && !m.Synced() {
		close(m.synced)
	}
}

// describe adds the name of a pod to an error.
func describe(pod *v1.Pod, err error) error { return fmt.Errorf("pod %s: %w", key(pod), err) }
