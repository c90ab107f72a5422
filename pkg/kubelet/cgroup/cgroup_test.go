// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package cgroup_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/kubelet/cgroup"
	"keelson.dev/keelson/pkg/kubelet/metrics"
	"keelson.dev/keelson/pkg/kubelet/metrics/metricstest"
	"keelson.dev/keelson/pkg/kubelet/qos"
)

func podOf(cpu, memory string) *v1.Pod {
	l := v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu), v1.ResourceMemory: resource.MustParse(memory)}
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{UID: "a-b"},
		Spec:       v1.PodSpec{Containers: []v1.Container{{Resources: v1.ResourceRequirements{Requests: l, Limits: l}}}},
	}
}

// manager returns a Manager that uses ordinary directories in place of cgroup file systems.
func manager(t *testing.T, unified, systemd bool, dirs ...string) (*cgroup.Manager, string) {
	t.Helper()
	mount := t.TempDir()
	for _, d := range dirs {
		if err := os.Mkdir(filepath.Join(mount, d), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if unified {
		if err := os.WriteFile(filepath.Join(mount, "cgroup.controllers"), []byte("cpu memory"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	m, err := cgroup.New(cgroup.Config{
		Mount: mount, Root: "/keelson", PidsPerPod: 100,
		Node: qos.Node{Memory: 1 << 30, CFSQuota: true, Period: 100 * time.Millisecond, Unified: unified},
	})
	if err != nil {
		t.Fatal(err)
	}
	if systemd {
		m.Use(cgroup.System()) // these tests never connect to systemd
	}
	return m, mount
}

func content(t *testing.T, path ...string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

// TestResize checks the limits of a pod's cgroup during a resize. Until the containers have been
// changed, each limit is the larger of the old and the new one.
func TestResize(t *testing.T) {
	const at = "keelson/kubepods/poda-b"
	before, after := podOf("500m", "64Mi"), podOf("250m", "128Mi")
	t.Run("v1", func(t *testing.T) {
		m, mount := manager(t, false, false, "cpu", "memory", "pids")
		read := func() string {
			return content(t, mount, "cpu", at, "cpu.shares") + " " + content(t, mount, "cpu", at, "cpu.cfs_quota_us") + " " +
				content(t, mount, "memory", at, "memory.limit_in_bytes")
		}
		steps(t, m, read, before, after, "512 50000 67108864", "512 50000 134217728", "256 25000 134217728")
		if got := content(t, mount, "pids", at, "pids.max"); got != "100" {
			t.Errorf("pids.max %s", got)
		}
	})
	t.Run("v2", func(t *testing.T) {
		m, mount := manager(t, true, false)
		read := func() string {
			return content(t, mount, at, "cpu.weight") + " " + content(t, mount, at, "cpu.max") + " " +
				content(t, mount, at, "memory.max")
		}
		steps(t, m, read, before, after, "20 50000 100000 67108864", "20 50000 100000 134217728", "10 25000 100000 134217728")
	})
}

func steps(t *testing.T, m *cgroup.Manager, read func() string, before, after *v1.Pod, first, wide, last string) {
	t.Helper()
	if err := m.Ensure(before); err != nil {
		t.Fatal(err)
	}
	if got := read(); got != first {
		t.Errorf("at first %q, want %q", got, first)
	}
	if err := m.Widen(before, after); err != nil {
		t.Fatal(err)
	}
	if got := read(); got != wide {
		t.Errorf("meanwhile %q, want %q", got, wide)
	}
	if err := m.Ensure(after); err != nil {
		t.Fatal(err)
	}
	if got := read(); got != last {
		t.Errorf("at last %q, want %q", got, last)
	}
}

func TestOperationsAreCounted(t *testing.T) {
	r, mount := prometheus.NewRegistry(), t.TempDir()
	if err := os.WriteFile(filepath.Join(mount, "cgroup.controllers"), []byte("cpu memory"), 0o600); err != nil {
		t.Fatal(err)
	}
	m, err := cgroup.New(cgroup.Config{Mount: mount, Root: "/keelson", Node: qos.Node{Unified: true},
		Metrics: metrics.NewNode(r), Clock: clock.Real()})
	if err != nil {
		t.Fatal(err)
	}
	small, large := podOf("100m", "1Mi"), podOf("200m", "2Mi")
	for _, err := range []error{m.Ensure(small), m.Widen(small, large), m.Ensure(large)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	_ = m.Remove(t.Context(), small.UID) // fails, because ordinary files in a directory block its removal
	series := func(operation string) string {
		return `kubelet_cgroup_manager_duration_seconds_count{operation_type="` + operation + `"}`
	}
	metricstest.Expect(t, metricstest.Scrape(t, r), map[string]float64{series("create"): 1, series("update"): 2,
		series("destroy"): 1})
}

// TestExclusive checks that the cgroup of a pod that has CPUs of its own gets no CPU quota.
func TestExclusive(t *testing.T) {
	for name, c := range map[string]struct {
		controllers []string
		file, want  string
	}{"v1": {[]string{"cpu"}, "cpu/kubepods/poda-b/cpu.cfs_quota_us", "-1"},
		"v2": {nil, "kubepods/poda-b/cpu.max", "max 100000"}} {
		t.Run(name, func(t *testing.T) {
			_, mount := manager(t, c.controllers == nil, false, c.controllers...)
			m, err := cgroup.New(cgroup.Config{
				Mount: mount, Root: "/", Exclusive: func(uid types.UID) bool { return uid == "a-b" },
				Node: qos.Node{CFSQuota: true, Period: 100 * time.Millisecond, Unified: c.controllers == nil},
			})
			if err != nil {
				t.Fatal(err)
			}
			if err := m.Ensure(podOf("2", "64Mi")); err != nil {
				t.Fatal(err)
			}
			if got := content(t, mount, c.file); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

func TestNames(t *testing.T) {
	for _, tc := range []struct {
		systemd bool
		pod     *v1.Pod
		want    string
	}{
		{false, podOf("1", "1Gi"), "/keelson/kubepods/poda-b"},
		{false, &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u"}}, "/keelson/kubepods/besteffort/podu"},
		{true, podOf("1", "1Gi"), "/keelson-kubepods-poda_b.slice"},
		{true, &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u"}}, "/keelson-kubepods-besteffort-podu.slice"},
	} {
		m, _ := manager(t, true, tc.systemd)
		if got := m.Parent(tc.pod); got != tc.want {
			t.Errorf("got %s, want %s", got, tc.want)
		}
	}
}
