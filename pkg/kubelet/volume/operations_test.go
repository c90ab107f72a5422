// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"keelson.dev/keelson/pkg/apiserver/testserver"
	"keelson.dev/keelson/pkg/kubelet/csi"
	"keelson.dev/keelson/pkg/kubelet/metrics"
	"keelson.dev/keelson/pkg/kubelet/metrics/metricstest"
)

// scraped returns a Manager and a function that returns the values of its metrics.
func scraped(t *testing.T) (*Manager, func() map[string]float64) {
	t.Helper()
	m, r := newManager(t, newMemory()), prometheus.NewRegistry()
	m.cfg.Metrics = metrics.NewStorage(r)
	r.MustRegister(&metrics.Volumes{Claims: m.ClaimStats, Counts: m.Counts})
	return m, func() map[string]float64 { return metricstest.Scrape(t, r) }
}

func operation(plugin, name, status string) string {
	return `storage_operation_duration_seconds_count{migrated="false",operation_name="` + name + `",status="` +
		status + `",volume_plugin="` + plugin + `"}`
}

func mounted(plugin string) string {
	return `volume_operation_total_seconds_count{operation_name="overall_volume_mount",plugin_name="` + plugin + `"}`
}

func total(plugin, state string) string {
	return `volume_manager_total_volumes{plugin_name="` + plugin + `",state="` + state + `_state_of_world"}`
}

func TestOperationsAreCounted(t *testing.T) {
	m, scrape := scraped(t)
	pod := testPod(
		v1.Volume{Name: "e", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}},
		v1.Volume{Name: "c",
			VolumeSource: v1.VolumeSource{
				ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: v1.LocalObjectReference{Name: "none"}}}},
		v1.Volume{Name: "i", VolumeSource: v1.VolumeSource{CSI: &v1.CSIVolumeSource{Driver: "whatever users write"}}},
	)
	for range 2 {
		if _, err := m.Prepare(t.Context(), pod); err == nil {
			t.Fatal("prepared without its objects and drivers")
		}
	}
	metricstest.Expect(t, scrape(), map[string]float64{
		operation("kubernetes.io/empty-dir", "volume_mount", "success"):                     1,
		operation("kubernetes.io/configmap", "volume_mount", "fail-unknown"):                2,
		operation("kubernetes.io/csi", "volume_mount", "fail-unknown"):                      2,
		operation("kubernetes.io/csi:whatever users write", "volume_mount", "fail-unknown"): -1,
		total("kubernetes.io/empty-dir", "actual"):                                          1,
		total("kubernetes.io/empty-dir", "desired"):                                         1,
		total("kubernetes.io/configmap", "actual"):                                          -1,
		total("kubernetes.io/configmap", "desired"):                                         1,
		total("kubernetes.io/csi", "desired"):                                               1,
	})
	m.cfg.Drivers = &drivers{path: t.TempDir()}
	m.cfg.Objects.(*memory).set("none", nil)
	if _, err := m.Prepare(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	metricstest.Expect(t, scrape(), map[string]float64{
		operation("kubernetes.io/csi:whatever users write", "volume_mount", "success"): 1,
		mounted("kubernetes.io/csi:whatever users write"):                              1,
		mounted("kubernetes.io/empty-dir"):                                             1,
		total("kubernetes.io/csi:whatever users write", "actual"):                      1,
	})
	if err := m.Teardown(t.Context(), pod.UID); err != nil {
		t.Fatal(err)
	}
	metricstest.Expect(t, scrape(), map[string]float64{
		operation("kubernetes.io/empty-dir", "volume_unmount", "success"): 1,
		operation("kubernetes.io/configmap", "volume_unmount", "success"): 1,
		total("kubernetes.io/empty-dir", "actual"):                        -1,
		total("kubernetes.io/empty-dir", "desired"):                       -1,
	})
}

// slow implements Drivers. Its Stats blocks until the test closes let.
type slow struct {
	*drivers
	asked chan string
	let   chan struct{}
}

func (d *slow) Stats(_ context.Context, pod *v1.Pod, _ csi.Volume) (*statsapi.FsStats, error) {
	d.asked <- pod.Name
	<-d.let
	used, most := uint64(3), uint64(10)
	return &statsapi.FsStats{UsedBytes: &used, CapacityBytes: &most}, nil
}

// slowDriver gives m an API server with a bound claim, and a driver that waits with each measurement.
func slowDriver(t *testing.T, m *Manager) *slow {
	t.Helper()
	server := testserver.Start(t, testserver.Options{})
	bindClaim(t, server.Client, "1Gi", "1Gi", "")
	d := &slow{drivers: &drivers{path: filepath.Join(t.TempDir(), "v")}, asked: make(chan string, 9),
		let: make(chan struct{})}
	m.cfg.Client, m.cfg.Drivers = server.Client, d
	return d
}

// TestClaimsAreMeasured checks that a claim that two pods use is measured once. It also checks that
// ClaimStats returns without the claim if its driver does not answer, and that ClaimStats does not
// call the driver again before the first call has ended.
func TestClaimsAreMeasured(t *testing.T) {
	m, scrape := scraped(t)
	d := slowDriver(t, m)
	for _, name := range []string{"p", "q"} {
		pod := claimPod()
		pod.Name, pod.UID = name, types.UID(name)
		if _, err := m.Prepare(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
	}
	late, cancel := context.WithCancel(t.Context())
	cancel()
	if got := m.ClaimStats(late); len(got) != 0 {
		t.Errorf("got %v of a driver that hangs", got)
	}
	<-d.asked
	if got := m.ClaimStats(t.Context()); len(got) != 0 || len(d.asked) != 0 {
		t.Errorf("got %v from a driver that does not answer, %d more calls", got, len(d.asked))
	}
	close(d.let)
	const labels = `{namespace="default",persistentvolumeclaim="c"}`
	// Wait until the driver's first call has returned and the metric shows its result.
	for scrape()["kubelet_volume_stats_used_bytes"+labels] != 3 {
		if len(d.asked) > 1 {
			t.Fatal("measured twice at once")
		}
	}
	<-d.asked
	metricstest.Expect(t, scrape(), map[string]float64{
		"kubelet_volume_stats_capacity_bytes" + labels: 10, "kubelet_volume_stats_inodes" + labels: -1,
		total("kubernetes.io/csi:d", "actual"): 2,
	})
	for _, uid := range m.knownPods() {
		if err := m.Teardown(t.Context(), uid); err != nil {
			t.Fatal(err)
		}
	}
	metricstest.Expect(t, scrape(), map[string]float64{"kubelet_volume_stats_used_bytes" + labels: -1,
		operation("kubernetes.io/csi:d", "volume_unmount", "success"): 2})
}

// TestScrapesShareMeasurement lets two scrapes ask for the use of the same volume at the same time. The
// second must wait for the first one's measurement, not begin its own.
func TestScrapesShareMeasurement(t *testing.T) {
	m, _ := scraped(t)
	d := slowDriver(t, m)
	if _, err := m.Prepare(t.Context(), claimPod()); err != nil {
		t.Fatal(err)
	}
	first := m.beginMeasure(t.Context(), m.mountedClaims()[0])
	second := m.beginMeasure(t.Context(), m.mountedClaims()[0])
	close(d.let)
	if first == nil || first != second {
		t.Fatalf("the second scrape got %v instead of %v", second, first)
	}
	if <-second.done; second.stats == nil {
		t.Error("the claim is missing")
	}
	if len(d.asked) != 1 {
		t.Errorf("the driver was called %d times", len(d.asked))
	}
}
