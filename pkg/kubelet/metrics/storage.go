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

// Operations on volumes: of file systems, of devices, and taking a volume that no pod has any
// more off the node.
const (
	VolumeMount   = "volume_mount"
	VolumeUnmount = "volume_unmount"
	MapVolume     = "map_volume"
	UnmapVolume   = "unmap_volume"
	UnmountDevice = "unmount_device"
)

// Storage counts what is done for volumes. It is safe for concurrent use.
type Storage struct {
	// Labels counts mounts with SELinux labels.
	Labels *Labels

	operations, calls *prometheus.HistogramVec
}

// NewStorage makes it; r may be nil.
func NewStorage(r prometheus.Registerer) *Storage {
	buckets := []float64{.1, .25, .5, 1, 2.5, 5, 10, 15, 25, 50, 120, 300, 600}
	m := &Storage{
		Labels: newLabels(r),
		operations: histogram("storage_operation_duration_seconds", "[ALPHA] How long an operation on a volume took, and what came of it.", buckets,
			"volume_plugin", "operation_name", "status", "migrated"),
		calls: histogram("csi_operations_seconds", "[ALPHA] How long storage drivers took to answer, and what.", buckets,
			"driver_name", "method_name", "grpc_status_code", "migrated"),
	}
	register(r, m.operations, m.calls)
	return m
}

// Volumes of plugins that were moved to drivers are the drivers' from the beginning here.
const migrated = "false"

// Operation tells what came of an operation on a volume of a plugin.
func (m *Storage) Operation(plugin, operation string, took time.Duration, err error) {
	what := "success"
	if err != nil {
		what = "fail-unknown"
	}
	m.operations.WithLabelValues(plugin, operation, what, migrated).Observe(took.Seconds())
}

// Call tells what a driver answered.
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

// scrapeTimeout bounds how long volumes are measured for one scrape.
const scrapeTimeout = 5 * time.Second

// VolumeCount is what a volume is counted as: its plugin, and whether it is there or is to be.
type VolumeCount struct {
	Plugin string
	There  bool
}

// Volumes are what is told of volumes when somebody asks.
type Volumes struct {
	// Claims measures the volumes of claims that are mounted, each once; it leaves out what it
	// has not measured when ctx ends.
	Claims func(ctx context.Context) []statsapi.VolumeStats
	Counts func() map[VolumeCount]int
}

var (
	claim           = []string{"namespace", "persistentvolumeclaim"}
	capacityBytes   = desc("kubelet_volume_stats_capacity_bytes", "[ALPHA] Size of the volume of a claim.", claim...)
	availableBytes  = desc("kubelet_volume_stats_available_bytes", "[ALPHA] What is free of the volume of a claim.", claim...)
	usedBytes       = desc("kubelet_volume_stats_used_bytes", "[ALPHA] What is used of the volume of a claim.", claim...)
	inodes          = desc("kubelet_volume_stats_inodes", "[ALPHA] How many inodes the volume of a claim can have.", claim...)
	inodesFree      = desc("kubelet_volume_stats_inodes_free", "[ALPHA] How many of them are free.", claim...)
	inodesUsed      = desc("kubelet_volume_stats_inodes_used", "[ALPHA] How many of them are used.", claim...)
	volumesByPlugin = desc("volume_manager_total_volumes", "[ALPHA] Volumes of the pods that are here: those that are ready, and those that are to be.",
		"plugin_name", "state")
)

// Describe implements prometheus.Collector.
func (*Volumes) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{capacityBytes, availableBytes, usedBytes, inodes, inodesFree, inodesUsed, volumesByPlugin} {
		ch <- d
	}
}

// Collect implements prometheus.Collector. What a volume does not tell is left out.
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
			capacityBytes: s.CapacityBytes, availableBytes: s.AvailableBytes, usedBytes: s.UsedBytes, inodes: s.Inodes, inodesFree: s.InodesFree, inodesUsed: s.InodesUsed,
		} {
			if n != nil {
				ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(*n), s.PVCRef.Namespace, s.PVCRef.Name)
			}
		}
	}
}
