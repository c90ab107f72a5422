// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package cadvisor

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"keelson.dev/keelson/pkg/kubelet/cgroup/stat"
)

// series sends the metrics of one cgroup.
type series struct {
	ch    chan<- prometheus.Metric
	group *Group
	now   time.Time
}

// send sends a value with the labels of the cgroup and the given additional labels, which are pairs
// of name and value.
func (s series) send(kind prometheus.ValueType, name, help string, value float64, labels ...string) {
	g := s.group
	names := []string{"container", "id", "image", "name", "namespace", "pod"}
	values := []string{g.Container, g.ID, g.Image, g.Name, g.Namespace, g.Pod}
	for i := 0; i < len(labels); i += 2 {
		names, values = append(names, labels[i]), append(values, labels[i+1])
	}
	s.ch <- prometheus.NewMetricWithTimestamp(s.now,
		prometheus.MustNewConstMetric(prometheus.NewDesc(name, help, names, nil), kind, value, values...))
}

func (s series) counter(name, help string, value float64, labels ...string) {
	s.send(prometheus.CounterValue, name, help, value, labels...)
}

func (s series) gauge(name, help string, value float64, labels ...string) {
	s.send(prometheus.GaugeValue, name, help, value, labels...)
}

func (s series) cpu(u *stat.Usage) {
	c := u.CPU
	if c == nil {
		return
	}
	s.counter("container_cpu_usage_seconds_total", "Cumulative cpu time consumed in seconds.",
		c.Total.Seconds(), "cpu", "total")
	if c.HasUserAndSystemTime {
		s.counter("container_cpu_user_seconds_total", "Cumulative user cpu time consumed in seconds.", c.User.Seconds())
		s.counter("container_cpu_system_seconds_total", "Cumulative system cpu time consumed in seconds.", c.System.Seconds())
	}
	if !c.Bounded {
		return // throttling is possible only with a quota
	}
	s.counter("container_cpu_cfs_periods_total", "Number of elapsed enforcement period intervals.", float64(c.Periods))
	s.counter("container_cpu_cfs_throttled_periods_total", "Number of throttled period intervals.", float64(c.Throttled))
	s.counter("container_cpu_cfs_throttled_seconds_total",
		"Total time duration the container has been throttled.", c.ThrottledFor.Seconds())
}

func (s series) memory(u *stat.Usage) {
	m := u.Memory
	if m == nil {
		return
	}
	s.gauge("container_memory_usage_bytes",
		"Current memory usage in bytes, including all memory regardless of when it was accessed", float64(m.Usage))
	s.gauge("container_memory_working_set_bytes", "Current working set in bytes.", float64(m.WorkingSet))
	s.gauge("container_memory_rss", "Size of RSS in bytes.", float64(m.RSS))
	s.gauge("container_memory_cache", "Number of bytes of page cache memory.", float64(m.Cache))
	s.gauge("container_memory_mapped_file", "Size of memory mapped files in bytes.", float64(m.MappedFile))
	s.gauge("container_memory_swap", "Container swap usage in bytes.", float64(m.Swap))
	if m.Max != nil {
		s.gauge("container_memory_max_usage_bytes", "Maximum memory usage recorded in bytes", float64(*m.Max))
	}
	if m.Failures != nil {
		s.counter("container_memory_failcnt", "Number of memory usage hits limits", float64(*m.Failures))
	}
	const failures, help = "container_memory_failures_total", "Cumulative count of memory allocation failures."
	s.counter(failures, help, float64(m.Faults), "failure_type", "pgfault", "scope", "hierarchy")
	s.counter(failures, help, float64(m.MajorFaults), "failure_type", "pgmajfault", "scope", "hierarchy")
	s.counter("container_oom_events_total", "Count of out of memory events observed for the container",
		float64(m.OOMKills))
}

func (s series) disks(u *stat.Usage) {
	for _, d := range u.IO {
		device := d.Major + ":" + d.Minor
		s.counter("container_fs_reads_bytes_total", "Cumulative count of bytes read", float64(d.ReadBytes), "device", device)
		s.counter("container_fs_writes_bytes_total", "Cumulative count of bytes written", float64(d.WriteBytes),
			"device", device)
		s.counter("container_fs_reads_total", "Cumulative count of reads completed", float64(d.Reads), "device", device)
		s.counter("container_fs_writes_total", "Cumulative count of writes completed", float64(d.Writes), "device", device)
	}
	if b := s.group.Disk; b != nil {
		s.gauge("container_fs_usage_bytes",
			"Number of bytes that are consumed by the container on this filesystem.", float64(*b), "device", "")
	}
}

func (s series) pressure(u *stat.Usage) {
	for _, p := range []struct{ resource, some, full string }{
		{"cpu", "container_pressure_cpu_waiting_seconds_total", "container_pressure_cpu_stalled_seconds_total"},
		{"memory", "container_pressure_memory_waiting_seconds_total", "container_pressure_memory_stalled_seconds_total"},
		{"io", "container_pressure_io_waiting_seconds_total", "container_pressure_io_stalled_seconds_total"},
	} {
		if v, ok := u.Pressure[p.resource]; ok {
			s.counter(p.some, "Total time duration tasks in the container have waited due to "+p.resource+
				" congestion.", v.Some.Total.Seconds())
			s.counter(p.full, "Total time duration no tasks in the container could make progress due to "+
				p.resource+" congestion.", v.Full.Total.Seconds())
		}
	}
}

func (s series) limits(u *stat.Usage) {
	l := u.Limits
	if l.Shares > 0 {
		s.gauge("container_spec_cpu_shares", "CPU share of the container.", float64(l.Shares))
	}
	if l.Period > 0 {
		s.gauge("container_spec_cpu_period", "CPU period of the container.", float64(l.Period))
	}
	if l.Quota > 0 {
		s.gauge("container_spec_cpu_quota", "CPU quota of the container.", float64(l.Quota))
	}
	if u.Memory != nil { // the limits are sent even if they are 0, which means unlimited
		s.gauge("container_spec_memory_limit_bytes", "Memory limit for the container.", float64(max(l.Memory, 0)))
		s.gauge("container_spec_memory_reservation_limit_bytes", "Memory reservation limit for the container.",
			float64(max(l.Soft, 0)))
		s.gauge("container_spec_memory_swap_limit_bytes", "Memory swap limit for the container.", float64(max(l.Swap, 0)))
	}
}

func (s series) life(u *stat.Usage) {
	s.gauge("container_last_seen", "Last time a container was seen by the exporter", float64(s.now.Unix()))
	if t := s.group.Started; !t.IsZero() {
		s.gauge("container_start_time_seconds", "Start time of the container since unix epoch in seconds.",
			float64(t.UnixNano())/float64(time.Second))
	}
	if s.group.Container != "" {
		s.gauge("container_processes", "Number of processes running inside the container.", float64(len(u.Processes)))
	}
	if u.Threads != nil {
		s.gauge("container_threads", "Number of threads running inside the container", float64(*u.Threads))
	}
}

func (s series) network(list []stat.Interface) {
	for _, i := range list {
		for _, v := range []struct {
			name, help string
			value      uint64
		}{
			{"container_network_receive_bytes_total", "Cumulative count of bytes received", i.RxBytes},
			{"container_network_receive_packets_total", "Cumulative count of packets received", i.RxPackets},
			{"container_network_receive_errors_total", "Cumulative count of errors encountered while receiving", i.RxErrors},
			{"container_network_receive_packets_dropped_total",
				"Cumulative count of packets dropped while receiving", i.RxDropped},
			{"container_network_transmit_bytes_total", "Cumulative count of bytes transmitted", i.TxBytes},
			{"container_network_transmit_packets_total", "Cumulative count of packets transmitted", i.TxPackets},
			{"container_network_transmit_errors_total", "Cumulative count of errors encountered while transmitting", i.TxErrors},
			{"container_network_transmit_packets_dropped_total",
				"Cumulative count of packets dropped while transmitting", i.TxDropped},
		} {
			s.counter(v.name, v.help, float64(v.value), "interface", i.Name)
		}
	}
}
