// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// Names of operations on volumes, for label values: mounting and unmounting file systems, mapping
// and unmapping block devices, and removing an unused volume from the node.
const (
	VolumeMount   = "volume_mount"
	VolumeUnmount = "volume_unmount"
	MapVolume     = "map_volume"
	UnmapVolume   = "unmap_volume"
	UnmountDevice = "unmount_device"
)

// Storage holds the metrics about volumes. It is safe for concurrent use.
type Storage struct {
	// Labels are the metrics about SELinux labels.
	Labels *Labels

	operations, mounts, calls *prometheus.HistogramVec
}

// NewStorage registers the metrics; r may be nil.
func NewStorage(r prometheus.Registerer) *Storage {
	buckets := []float64{.1, .25, .5, 1, 2.5, 5, 10, 15, 25, 50, 120, 300, 600}
	m := &Storage{
		Labels: newLabels(r),
		operations: histogram("storage_operation_duration_seconds",
			"[BETA] Storage operation duration", buckets,
			"volume_plugin", "operation_name", "status", "migrated"),
		mounts: histogram("volume_operation_total_seconds",
			"[BETA] Storage operation end to end duration in seconds", buckets, "plugin_name", "operation_name"),
		calls: histogram("csi_operations_seconds",
			"[ALPHA] Duration of calls to storage drivers in seconds, by method and gRPC code.", buckets,
			"driver_name", "method_name", "grpc_status_code", "migrated"),
	}
	register(r, m.operations, m.mounts, m.calls)
	return m
}

// migrated is the value of the label for volumes of in-tree plugins that were migrated to CSI. This
// kubelet has never had in-tree plugins that could be migrated.
const migrated = "false"

// Operation records the duration and the result of an operation on a plugin's volume.
func (m *Storage) Operation(plugin, operation string, took time.Duration, err error) {
	what := "success"
	if err != nil {
		what = "fail-unknown"
	}
	m.operations.WithLabelValues(plugin, operation, what, migrated).Observe(took.Seconds())
}

// Mounted records how long it took until a volume was mounted. The duration includes failed
// attempts and the wait until the volume was attached.
func (m *Storage) Mounted(plugin string, took time.Duration) {
	m.mounts.WithLabelValues(plugin, "overall_volume_mount").Observe(took.Seconds())
}

// Call records the duration and the result of a call to a CSI driver.
func (m *Storage) Call(driver, method string, took time.Duration, err error) {
	code := codes.OK.String()
	if err != nil {
		if s, ok := status.FromError(err); ok {
			code = s.Code().String()
		} else {
			code = "unknown-non-grpc"
		}
	}
	m.calls.WithLabelValues(driver, method, code, migrated).Observe(took.Seconds())
}

// scrapeTimeout is the maximum duration of measuring volumes for one scrape.
const scrapeTimeout = 5 * time.Second

// VolumeCount is the set of label values of a volume count: the plugin, and whether the count is
// that of mounted volumes (There is true) or of volumes that pods use (There is false).
type VolumeCount struct {
	Plugin string
	There  bool
}

// Volumes computes its metrics about volumes on each scrape.
type Volumes struct {
	// Claims measures each mounted volume of a claim once. It leaves out volumes that it has not
	// measured when ctx ends.
	Claims func(ctx context.Context) []statsapi.VolumeStats
	Counts func() map[VolumeCount]int
}

var (
	claim         = []string{"namespace", "persistentvolumeclaim"}
	capacityBytes = desc("kubelet_volume_stats_capacity_bytes",
		"[ALPHA] Capacity of the volume of a claim in bytes.", claim...)
	availableBytes = desc("kubelet_volume_stats_available_bytes",
		"[ALPHA] Free space of the volume of a claim in bytes.", claim...)
	usedBytes = desc("kubelet_volume_stats_used_bytes",
		"[ALPHA] Used space of the volume of a claim in bytes.", claim...)
	inodes = desc("kubelet_volume_stats_inodes",
		"[ALPHA] Maximum number of inodes of the volume of a claim.", claim...)
	inodesFree = desc("kubelet_volume_stats_inodes_free",
		"[ALPHA] Number of free inodes of the volume of a claim.", claim...)
	inodesUsed = desc("kubelet_volume_stats_inodes_used",
		"[ALPHA] Number of used inodes of the volume of a claim.", claim...)
	volumesByPlugin = desc("volume_manager_total_volumes",
		"[ALPHA] Number of volumes of the pods on the node, by plugin and by whether they are mounted or wanted.",
		"plugin_name", "state")
)

// Describe implements prometheus.Collector.
func (*Volumes) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{capacityBytes, availableBytes, usedBytes, inodes, inodesFree,
		inodesUsed, volumesByPlugin} {
		ch <- d
	}
}

// Collect implements prometheus.Collector. It leaves out values that a volume does not report.
func (v *Volumes) Collect(ch chan<- prometheus.Metric) {
	for key, n := range v.Counts() {
		state := "desired_state_of_world"
		if key.There {
			state = "actual_state_of_world"
		}
		ch <- prometheus.MustNewConstMetric(volumesByPlugin, prometheus.GaugeValue, float64(n), key.Plugin, state)
	}
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
	defer cancel()
	for _, s := range v.Claims(ctx) {
		for d, n := range map[*prometheus.Desc]*uint64{
			capacityBytes: s.CapacityBytes, availableBytes: s.AvailableBytes, usedBytes: s.UsedBytes,
			inodes: s.Inodes, inodesFree: s.InodesFree, inodesUsed: s.InodesUsed,
		} {
			if n != nil {
				ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(*n), s.PVCRef.Namespace, s.PVCRef.Name)
			}
		}
	}
}
