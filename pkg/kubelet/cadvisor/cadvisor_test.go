// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package cadvisor_test

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	clocktesting "k8s.io/utils/clock/testing"

	"keelson.dev/keelson/pkg/kubelet/cadvisor"
	"keelson.dev/keelson/pkg/kubelet/cgroup/stat"
)

// files creates files with the given content in place of the kernel's files.
func files(t *testing.T, content map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range content {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// gathered collects the metrics of one container. The keys of the result are the metric's name and
// those labels that do not identify the container.
func gathered(t *testing.T, c cadvisor.Collector) map[string]float64 {
	t.Helper()
	r := prometheus.NewRegistry()
	r.MustRegister(c)
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, f := range families {
		for _, m := range f.Metric {
			name := f.GetName()
			for _, l := range m.Label {
				switch l.GetName() {
				case "container", "id", "image", "name", "namespace", "pod", "boot_id", "machine_id", "system_uuid":
				default:
					name += "," + l.GetValue()
				}
			}
			out[name] = value(m)
		}
	}
	return out
}

func value(m *dto.Metric) float64 { return m.GetCounter().GetValue() + m.GetGauge().GetValue() }

const dev = `Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo: 1 1 1 1 0 0 0 0 1 1 1 1 0 0 0 0
  eth0: 100 2 3 4 0 0 0 0 200 5 6 7 0 0 0 0
`

// TestSeries checks that cgroup v1 and cgroup v2 result in the same series.
func TestSeries(t *testing.T) {
	pressure := "some avg10=1.00 avg60=2.00 avg300=3.00 total=4000000\nfull avg10=0.00 avg60=0.00 " +
		"avg300=0.00 total=1000000\n"
	v1 := files(t, map[string]string{
		"cpuacct/g/cpuacct.usage": "2500000000\n", "cpuacct/g/cpuacct.stat": "user 150\nsystem 100\n",
		"cpu/g/cpu.stat":   "nr_periods 10\nnr_throttled 4\nthrottled_time 3000000000\n",
		"cpu/g/cpu.shares": "512\n", "cpu/g/cpu.cfs_quota_us": "50000\n", "cpu/g/cpu.cfs_period_us": "100000\n",
		"memory/g/memory.stat": "rss 1\ntotal_rss 1000\ntotal_cache 3000\ntotal_mapped_file " +
			"500\ntotal_swap 10\ntotal_inactive_file 1000\ntotal_pgfault 7\ntotal_pgmajfault 2\n",
		"memory/g/memory.usage_in_bytes": "5000\n", "memory/g/memory.max_usage_in_bytes": "6000\n",
		"memory/g/memory.failcnt": "3\n", "memory/g/memory.limit_in_bytes": "8192\n",
		"memory/g/memory.soft_limit_in_bytes":  "9223372036854771712\n",
		"memory/g/memory.memsw.limit_in_bytes": "9223372036854771712\n",
		"memory/g/memory.oom_control":          "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n",
		"memory/g/cgroup.procs":                "11\n12\n",
		"blkio/g/blkio.throttle.io_service_bytes_recursive": "8:0 Read 4096\n8:0 Write 8192\n8:0 Total " +
			"12288\nTotal 12288\n", "blkio/g/blkio.throttle.io_serviced": "8:0 Read 1\n8:0 Write 2\n",
		"pids/g/pids.current": "9\n", "unified/g/cpu.pressure": pressure, "unified/g/memory.pressure": pressure,
		"unified/g/io.pressure": pressure,
	})
	v2 := files(t, map[string]string{
		"g/cpu.stat": "usage_usec 2500000\nuser_usec 1500000\nsystem_usec 1000000\nnr_periods " +
			"10\nnr_throttled 4\nthrottled_usec 3000000\n",
		"g/cpu.weight": "20\n", "g/cpu.max": "50000 100000\n", "g/memory.current": "5000\n",
		"g/memory.peak": "6000\n", "g/memory.max": "8192\n", "g/memory.high": "max\n",
		"g/memory.swap.max": "max\n", "g/memory.swap.current": "10\n",
		"g/memory.stat":   "anon 1000\nfile 3000\nfile_mapped 500\ninactive_file 1000\npgfault 7\npgmajfault 2\n",
		"g/memory.events": "low 0\nhigh 0\nmax 3\noom 1\noom_kill 1\n",
		"g/io.stat":       "8:0 rbytes=4096 wbytes=8192 rios=1 wios=2 dbytes=0 dios=0\n", "g/pids.current": "9\n",
		"g/cgroup.procs": "11\n12\n",
		"g/cpu.pressure": pressure, "g/memory.pressure": pressure, "g/io.pressure": pressure,
	})
	proc := files(t, map[string]string{"11/net/dev": dev})
	disk := uint64(77)
	want := map[string]float64{
		"container_cpu_usage_seconds_total,total": 2.5, "container_cpu_user_seconds_total": 1.5,
		"container_cpu_system_seconds_total": 1,
		"container_cpu_cfs_periods_total":    10, "container_cpu_cfs_throttled_periods_total": 4,
		"container_cpu_cfs_throttled_seconds_total": 3,
		"container_memory_usage_bytes":              5000, "container_memory_working_set_bytes": 4000,
		"container_memory_rss": 1000, "container_memory_cache": 3000,
		"container_memory_mapped_file": 500, "container_memory_swap": 10,
		"container_memory_max_usage_bytes": 6000, "container_memory_failcnt": 3,
		"container_memory_failures_total,pgfault,hierarchy":    7,
		"container_memory_failures_total,pgmajfault,hierarchy": 2, "container_oom_events_total": 1,
		"container_fs_reads_bytes_total,8:0": 4096, "container_fs_writes_bytes_total,8:0": 8192,
		"container_fs_reads_total,8:0": 1, "container_fs_writes_total,8:0": 2, "container_fs_usage_bytes,": 77,
		"container_pressure_cpu_waiting_seconds_total": 4, "container_pressure_cpu_stalled_seconds_total": 1,
		"container_pressure_memory_waiting_seconds_total": 4,
		"container_pressure_memory_stalled_seconds_total": 1, "container_pressure_io_waiting_seconds_total": 4,
		"container_pressure_io_stalled_seconds_total": 1,
		"container_spec_cpu_period":                   100000, "container_spec_cpu_quota": 50000,
		"container_spec_memory_limit_bytes":             8192,
		"container_spec_memory_reservation_limit_bytes": 0, "container_spec_memory_swap_limit_bytes": 0,
		"container_processes": 2, "container_threads": 9, "container_start_time_seconds": 1000, "container_last_seen": 2000,
		"container_network_receive_bytes_total,eth0": 100, "container_network_receive_packets_total,eth0": 2,
		"container_network_receive_errors_total,eth0": 3, "container_network_receive_packets_dropped_total,eth0": 4,
		"container_network_transmit_bytes_total,eth0": 200, "container_network_transmit_packets_total,eth0": 5,
		"container_network_transmit_errors_total,eth0": 6, "container_network_transmit_packets_dropped_total,eth0": 7,
		"machine_cpu_cores": 4, "machine_memory_bytes": 8, "machine_swap_bytes": 0,
		"cadvisor_version_info,,,,,": 1, "container_scrape_error": 0,
	}
	for name, c := range map[string]struct {
		reader stat.Reader
		shares float64
	}{"v1": {stat.New(v1, false), 512}, "v2": {stat.New(v2, true), 500}} {
		t.Run(name, func(t *testing.T) {
			got := gathered(t, cadvisor.Collector{
				Machine: cadvisor.Machine{CPUs: 4, Memory: 8},
				Clock:   clocktesting.NewFakePassiveClock(time.Unix(2000, 0)),
				Log:     slog.New(slog.DiscardHandler), Read: c.reader.Read,
				Groups: func(context.Context) ([]cadvisor.Group, error) {
					return []cadvisor.Group{{ID: "/g", Container: "c", Pod: "p", Namespace: "n",
						Started: time.Unix(1000, 0), Disk: &disk, PID: 11}}, nil
				},
				Network: func(pid int) []stat.Interface { return stat.Network(proc, pid) },
			})
			expected := maps.Clone(want)
			expected["container_spec_cpu_shares"] = c.shares
			for name, v := range expected {
				if has, ok := got[name]; !ok || has != v {
					t.Errorf("%s: %v (%t), want %v", name, has, ok, v)
				}
				delete(got, name)
			}
			for name, v := range got {
				t.Errorf("%s: unexpected value %v", name, v)
			}
		})
	}
}

// TestMissingSeries checks that Collect reports an error of the runtime as container_scrape_error,
// and sends no CPU and memory metrics of a cgroup that no longer exists.
func TestMissingSeries(t *testing.T) {
	got := gathered(t, cadvisor.Collector{
		Clock: clocktesting.NewFakePassiveClock(time.Unix(2000, 0)), Log: slog.New(slog.DiscardHandler),
		Read: stat.New(t.TempDir(), false).Read,
		Groups: func(context.Context) ([]cadvisor.Group, error) {
			return []cadvisor.Group{{ID: "/gone", Container: "c"}}, errors.New("the runtime is away")
		},
		Network: func(int) []stat.Interface { return nil },
	})
	if got["container_scrape_error"] != 1 {
		t.Error("the error is not logged")
	}
	for name := range got {
		if strings.HasPrefix(name, "container_memory") || strings.HasPrefix(name, "container_cpu") {
			t.Errorf("%s of a removed cgroup", name)
		}
	}
}
