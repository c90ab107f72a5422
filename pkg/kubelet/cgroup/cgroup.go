// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cgroup manages the cgroups above containers: one for all pods, one for each QoS class and
// one for each pod. The container runtime manages the cgroups below a pod's cgroup.
//
// The package supports cgroup v2 and cgroup v1, which has one hierarchy for each controller. It
// writes limits to the kernel's files. With the systemd driver, cgroups are slices that systemd
// creates and removes. The package passes the limits to systemd, so that systemd does not reset
// them. It also writes them to the files, because systemd rounds some limits and does not support
// others.
package cgroup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/cgrouptree"
	"keelson.dev/keelson/pkg/kubelet/metrics"
	"keelson.dev/keelson/pkg/kubelet/qos"
)

// controllers are the cgroup v1 hierarchies in which the cgroups of pods are created.
var controllers = []string{
	"cpu", "cpuacct", "cpuset", "memory", "devices", "freezer", "blkio", "pids", "hugetlb", "systemd",
	"perf_event", "net_cls", "net_prio",
}

// Config holds a Manager's settings.
type Config struct {
	// Mount is the directory where the cgroup file systems are mounted, normally /sys/fs/cgroup.
	Mount string
	// Root is the cgroup in which the cgroup "kubepods" is created, for example /.
	Root string
	// Node holds the properties of the node from which limits are computed.
	Node qos.Node
	// PidsPerPod is the maximum number of processes and threads of a pod. 0 or less means no limit.
	PidsPerPod int64
	// Exclusive reports whether any container of the pod has CPUs of its own. Such a pod gets no
	// CPU quota. If the function is nil, no container has CPUs of its own.
	Exclusive func(pod types.UID) bool
	// Pods holds the limits of all pods together. If it is nil, they are not limited.
	Pods *qos.PodLimits
	// Metrics records how long operations on the cgroups of pods take, as measured by Clock. If it
	// is nil, nothing is recorded.
	Metrics *metrics.Node
	Clock   clock.Clock
	// Others holds the limits of the cgroups of the system and of Kubernetes, by the cgroup's name.
	Others map[string]qos.PodLimits
}

// Manager creates and removes cgroups. It is safe for concurrent use, except for calls for the same
// pod.
type Manager struct {
	cfg     Config
	unified bool
	roots   []string               // directories of the hierarchies: one per controller with v1, a single one with v2
	cpusets map[string]bool        // those of roots that have the v1 controller cpuset
	slices  atomic.Pointer[Slices] // creates cgroups through systemd; nil with the cgroupfs driver

	mu     sync.Mutex
	shared map[string]int64 // values that rewrite wrote last, by file
}

// New returns a Manager for the cgroup hierarchies that are mounted.
func New(cfg Config) (*Manager, error) {
	m := &Manager{cfg: cfg, unified: Unified(cfg.Mount), cpusets: map[string]bool{}, shared: map[string]int64{}}
	if m.unified {
		m.roots = []string{cfg.Mount}
		return m, nil
	}
	seen := map[string]bool{}
	for _, c := range controllers {
		dir, err := filepath.EvalSymlinks(filepath.Join(cfg.Mount, c))
		if err == nil && c == "cpuset" {
			m.cpusets[dir] = true
		}
		if err != nil || seen[dir] {
			continue
		}
		seen[dir] = true
		m.roots = append(m.roots, dir)
	}
	if len(m.roots) == 0 {
		return nil, fmt.Errorf("no cgroup controllers under %s", cfg.Mount)
	}
	return m, nil
}

// Unified reports whether the file system mounted at mount is a cgroup v2 hierarchy.
func Unified(mount string) bool {
	_, err := os.Stat(filepath.Join(mount, "cgroup.controllers"))
	return err == nil
}

// Use selects the cgroup driver: s for the systemd driver, or nil for the cgroupfs driver, which is
// the default. The caller must call Use before Setup, because the names of cgroups depend on the
// driver.
func (m *Manager) Use(s *Slices) { m.slices.Store(s) }

// Setup creates the cgroups of all pods and of the QoS classes, and sets the limits of the system's
// cgroups.
func (m *Manager) Setup() error {
	least := int64(2)
	for _, one := range []struct {
		path   string
		limits qos.PodLimits
	}{{m.path(), deref(m.cfg.Pods)}, {m.path("besteffort"), qos.PodLimits{Shares: &least}},
		{m.path("burstable"), qos.PodLimits{}}} {
		if err := m.put(one.path, one.limits); err != nil {
			return err
		}
	}
	return m.enforce()
}

func deref(l *qos.PodLimits) qos.PodLimits {
	if l == nil {
		return qos.PodLimits{}
	}
	return *l
}

// put creates a cgroup with the given limits, or updates the limits if the cgroup exists.
func (m *Manager) put(path string, l qos.PodLimits) error {
	if s := m.slices.Load(); s != nil {
		if err := s.start(unit(path), unit(filepath.Dir(path)), m.properties(l)); err != nil {
			return err
		}
	}
	if err := m.create(path); err != nil {
		return err
	}
	return m.apply(path, l)
}

// timed measures how long an operation takes, until the caller calls the returned function.
func (m *Manager) timed(operation string) (done func()) {
	if m.cfg.Metrics == nil {
		return func() {}
	}
	begun := m.cfg.Clock.Now()
	return func() { m.cfg.Metrics.Cgroup(operation, m.cfg.Clock.Since(begun)) }
}

// Parent returns the name of a pod's cgroup in the form that the runtime expects.
func (m *Manager) Parent(pod *v1.Pod) string {
	path := m.Group(pod)
	if m.slices.Load() != nil {
		return "/" + unit(path)
	}
	return path
}

// Ensure creates the pod's cgroup, or updates its limits if it exists.
func (m *Manager) Ensure(pod *v1.Pod) error {
	operation := metrics.CgroupCreate
	if m.exists(m.Group(pod)) {
		operation = metrics.CgroupUpdate
	}
	defer m.timed(operation)()
	l := m.limits(pod)
	l.Pids = m.cfg.PidsPerPod
	return m.put(m.Group(pod), l)
}

func (m *Manager) limits(pod *v1.Pod) qos.PodLimits {
	n := m.cfg.Node
	n.CFSQuota = n.CFSQuota && (m.cfg.Exclusive == nil || !m.cfg.Exclusive(pod.UID))
	return qos.Pod(pod, n)
}

// Widen sets each limit of the pod's cgroup to the larger of the limits for the two versions of the
// pod.
func (m *Manager) Widen(before, after *v1.Pod) error {
	defer m.timed(metrics.CgroupUpdate)()
	return m.change(m.Group(after), qos.Larger(m.limits(before), m.limits(after)))
}

// change updates the limits of an existing cgroup.
func (m *Manager) change(path string, l qos.PodLimits) error {
	if s := m.slices.Load(); s != nil {
		if err := s.set(unit(path), m.properties(l)); err != nil {
			return err
		}
	}
	return m.apply(path, l)
}

// Remove removes the pod's cgroup, in whichever QoS class it is. It kills processes that are still
// in the cgroup.
func (m *Manager) Remove(ctx context.Context, pod types.UID) error {
	defer m.timed(metrics.CgroupDestroy)()
	var errs []error
	for _, class := range []v1.PodQOSClass{v1.PodQOSGuaranteed, v1.PodQOSBurstable, v1.PodQOSBestEffort} {
		path := m.podPath(class, pod)
		if s := m.slices.Load(); s != nil && m.exists(path) {
			if err := s.stop(ctx, unit(path)); err != nil {
				errs = append(errs, err)
				continue
			}
		}
		for _, root := range append(slices.Clip(m.roots), m.hybrid()...) {
			errs = append(errs, cgrouptree.Remove(filepath.Join(root, path)))
		}
	}
	return errors.Join(errs...)
}

// hybrid returns the cgroup v2 hierarchy that some machines with cgroup v1 mount in addition. It
// has no limits, but the runtime creates cgroups of pods there without removing them.
func (m *Manager) hybrid() []string {
	dir := filepath.Join(m.cfg.Mount, "unified")
	if m.unified || !Unified(dir) {
		return nil
	}
	return []string{dir}
}

// Pods returns the UIDs of the pods that have a cgroup.
func (m *Manager) Pods() []types.UID {
	var uids []types.UID
	for _, parent := range []string{m.path(), m.path("besteffort"), m.path("burstable")} {
		for _, root := range m.roots {
			entries, err := os.ReadDir(filepath.Join(root, parent))
			if err != nil {
				continue
			}
			for _, e := range entries {
				if uid := m.podOf(parent, e.Name()); uid != "" && e.IsDir() && !slices.Contains(uids, uid) {
					uids = append(uids, uid)
				}
			}
		}
	}
	return uids
}

// podOf returns the UID of the pod to which the cgroup with this name in the cgroup parent belongs,
// or "".
func (m *Manager) podOf(parent, name string) types.UID {
	prefix := "pod"
	if m.slices.Load() != nil {
		prefix = strings.TrimSuffix(unit(parent), ".slice") + "-pod"
		name = strings.TrimSuffix(name, ".slice")
	}
	uid, ok := strings.CutPrefix(name, prefix)
	switch {
	case !ok:
		return ""
	case m.slices.Load() != nil:
		return types.UID(strings.ReplaceAll(uid, "_", "-"))
	}
	return types.UID(uid)
}

// Group returns the path of a pod's cgroup, relative to the mount.
func (m *Manager) Group(pod *v1.Pod) string { return m.podPath(qos.Class(pod), pod.UID) }

// GroupOf returns the path of the cgroup that the runtime creates for a container or sandbox of the
// pod.
func (m *Manager) GroupOf(pod *v1.Pod, id string) string {
	if m.slices.Load() != nil {
		return filepath.Join(m.Group(pod), "cri-containerd-"+id+".scope")
	}
	return filepath.Join(m.Group(pod), id)
}

// Groups returns the paths of the cgroup of all pods and of the cgroups of the QoS classes.
func (m *Manager) Groups() []string {
	return []string{m.path(), m.path("besteffort"), m.path("burstable")}
}

func (m *Manager) path(more ...string) string {
	path := filepath.Join(append([]string{"/", m.cfg.Root, "kubepods"}, more...)...)
	if m.slices.Load() == nil {
		return path
	}
	return slicePath(strings.Split(strings.Trim(path, "/"), "/"))
}

func (m *Manager) podPath(class v1.PodQOSClass, uid types.UID) string {
	switch class {
	case v1.PodQOSGuaranteed:
		return m.path("pod" + string(uid))
	case v1.PodQOSBurstable:
		return m.path("burstable", "pod"+string(uid))
	default:
		return m.path("besteffort", "pod"+string(uid))
	}
}

// create creates a cgroup and its missing parents in every hierarchy. In v1, a new cpuset is empty
// and accepts no process until it has CPUs and memory nodes, so create copies those of the parent.
// In v2, the parent must first enable controllers for its children.
func (m *Manager) create(path string) error {
	for _, root := range m.roots {
		if err := m.createIn(root, path); err != nil {
			return fmt.Errorf("cgroup %s: %w", path, err)
		}
	}
	return nil
}

func (m *Manager) createIn(root, path string) error {
	if !m.unified && !m.cpusets[root] {
		return os.MkdirAll(filepath.Join(root, path), 0o755)
	}
	at := root
	for part := range strings.SplitSeq(strings.Trim(path, "/"), "/") {
		parent := at
		at = filepath.Join(at, part)
		if m.unified {
			delegate(parent)
		}
		if err := os.Mkdir(at, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		if m.unified {
			continue // in v2, an empty cpuset means that of the parent
		}
		if err := inheritCPUSet(parent, at); err != nil {
			return err
		}
	}
	return nil
}

// delegate enables all available controllers for the children of a v2 cgroup.
func delegate(dir string) {
	available, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	if err != nil {
		return
	}
	control := filepath.Join(dir, "cgroup.subtree_control")
	enabled, _ := os.ReadFile(control) // if this fails, all controllers are written
	have := strings.Fields(string(enabled))
	for c := range strings.FieldsSeq(string(available)) {
		if !slices.Contains(have, c) {
			// Write one controller at a time, so that all others are enabled even if one cannot be.
			_ = os.WriteFile(control, []byte("+"+c), 0o644)
		}
	}
}

// inheritCPUSet copies CPUs and memory nodes from a v1 cpuset to a child that has none yet.
func inheritCPUSet(parent, child string) error {
	for _, name := range []string{"cpuset.cpus", "cpuset.mems"} {
		file := filepath.Join(child, name)
		have, err := os.ReadFile(file)
		if err != nil || len(strings.TrimSpace(string(have))) > 0 {
			continue
		}
		want, err := os.ReadFile(filepath.Join(parent, name))
		if err != nil {
			return err
		}
		if err := os.WriteFile(file, want, 0o644); err != nil {
			return err
		}
	}
	return nil
}
