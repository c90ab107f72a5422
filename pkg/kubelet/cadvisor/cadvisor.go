// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cadvisor exports the resource usage of the node's cgroups. Metrics have cAdvisor's names
// and labels (container_*, machine_*), on which dashboards and alerts depend. On each scrape, it
// reads the kernel's files; it keeps no state.
//
// It does not export metrics for which cAdvisor walks file systems or reads the kernel's log.
package cadvisor

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"

	"keelson.dev/keelson/pkg/kubelet/cgroup/stat"
)

// Group is a cgroup whose metrics are exported.
type Group struct {
	// ID is the path of the cgroup.
	ID string
	// Container, Image, Name, Namespace and Pod are the values of labels. Container is empty for
	// the cgroup of a pod as a whole.
	Container, Image, Name, Namespace, Pod string
	// Started is the start time of the container. It is zero if the time is unknown.
	Started time.Time
	// Disk is the size of the container's writable layer in bytes. It is nil if the size is
	// unknown.
	Disk *uint64
	// PID is the ID of a process in the cgroup's network namespace. It is 0 if the cgroup has no
	// network namespace of its own.
	PID int
}

// Machine describes the node's hardware. Memory and Swap are in bytes.
type Machine struct {
	CPUs         int
	Memory, Swap int64
	Info         v1.NodeSystemInfo
}

// Collector exports the metrics of the node and its cgroups.
type Collector struct {
	Machine Machine
	// Groups returns the cgroups whose metrics are exported.
	Groups func(ctx context.Context) ([]Group, error)
	// Read reads the usage of a cgroup. Network reads the traffic of the network interfaces in the
	// network namespace of the process pid.
	Read    func(id string) stat.Usage
	Network func(pid int) []stat.Interface
	Clock   clock.PassiveClock
	Log     *slog.Logger
}

var _ prometheus.Collector = Collector{}

// timeout is the maximum duration of listing the cgroups for a scrape.
const timeout = 30 * time.Second

// Describe implements prometheus.Collector. It sends nothing, because the set of series depends on
// which containers run.
func (Collector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector. It reads the usage of all cgroups and sends their
// metrics.
func (c Collector) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	groups, err := c.Groups(ctx)
	failed := 0.0
	if err != nil {
		c.Log.Error("Failed to list cgroups", "err", err)
		failed = 1
	}
	ch <- plain("container_scrape_error", "1 if there was an error while getting container metrics, 0 otherwise", failed)
	is := &c.Machine.Info
	labels := []string{"machine_id", is.MachineID, "system_uuid", is.SystemUUID, "boot_id", is.BootID}
	ch <- plain("machine_cpu_cores", "Number of logical CPU cores.", float64(c.Machine.CPUs), labels...)
	ch <- plain("machine_memory_bytes", "Amount of memory installed on the machine.", float64(c.Machine.Memory), labels...)
	ch <- plain("machine_swap_bytes", "Amount of swap memory available on the machine.",
		float64(c.Machine.Swap), labels...)
	ch <- plain("cadvisor_version_info", "A metric with a constant '1' value labeled by kernel version, OS "+
		"version, docker version, cadvisor version & cadvisor revision.", 1,
		"kernelVersion", is.KernelVersion, "osVersion", is.OSImage, "dockerVersion", "", "cadvisorVersion", "",
		"cadvisorRevision", "")
	for i := range groups {
		g := &groups[i]
		u := c.Read(g.ID)
		s := series{ch: ch, group: g, now: c.Clock.Now()}
		s.cpu(&u)
		s.memory(&u)
		s.disks(&u)
		s.pressure(&u)
		s.limits(&u)
		s.life(&u)
		if g.PID != 0 {
			s.network(c.Network(g.PID))
		}
	}
}

func plain(name, help string, value float64, labels ...string) prometheus.Metric {
	var names, values []string
	for i := 0; i < len(labels); i += 2 {
		names, values = append(names, labels[i]), append(values, labels[i+1])
	}
	return prometheus.MustNewConstMetric(prometheus.NewDesc(name, help, names, nil), prometheus.GaugeValue,
		value, values...)
}
