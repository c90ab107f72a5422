// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"keelson.dev/keelson/pkg/kubelet/cgroup/stat"
)

// TestSystemStats checks that the usage of a cgroup is reported equally with cgroup v1 and cgroup
// v2, and that a cgroup that does not exist is left out.
func TestSystemStats(t *testing.T) {
	const pressure = "some avg10=1.50 avg60=0.50 avg300=0.10 total=7\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=3\n"
	for version, files := range map[string]map[string]string{
		"v1": {
			"cpuacct/kube/cpuacct.usage": "5000000000", "cpu/kube/cpu.shares": "1024",
			"memory/kube/memory.usage_in_bytes": "1000", "unified/kube/cpu.pressure": pressure,
			"memory/kube/memory.stat": "total_rss 300\ntotal_inactive_file 400\ntotal_swap " +
				"50\ntotal_pgfault 9\ntotal_pgmajfault 2\n",
		},
		"v2": {
			"kube/cpu.stat": "usage_usec 5000000\n", "kube/memory.current": "1000",
			"kube/memory.swap.current": "50", "kube/cpu.pressure": pressure,
			"kube/memory.stat": "anon 300\ninactive_file 400\npgfault 9\npgmajfault 2\n",
		},
	} {
		t.Run(version, func(t *testing.T) {
			mount := t.TempDir()
			write := func(name, text string) {
				t.Helper()
				if err := os.MkdirAll(filepath.Dir(filepath.Join(mount, name)), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(mount, name), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			for name, text := range files {
				write(name, text)
			}
			u, r := &usage{}, stat.New(mount, version == "v2")
			groups := []systemGroup{{name: "kubelet", path: "/kube"}, {name: "runtime", path: "/gone"},
				{name: "pods", path: "/kube", most: 700}}
			now := metav1.NewTime(time.Unix(1000, 0))
			if got := u.systemStats(r, groups, now); len(got) != 2 || got[0].CPU.UsageNanoCores != nil {
				t.Fatalf("at first: %+v", got)
			}
			if version == "v1" {
				write("cpuacct/kube/cpuacct.usage", "7000000000")
			} else {
				write("kube/cpu.stat", "usage_usec 7000000\n")
			}
			now = metav1.NewTime(now.Add(10 * time.Second))
			got := u.systemStats(r, groups, now)
			kubelet, pods := got[0], got[1]
			if c := kubelet.CPU; *c.UsageCoreNanoSeconds != 7e9 || *c.UsageNanoCores != 2e8 || c.PSI.Some.Avg10 != 1.5 {
				t.Errorf("CPU: %d, %d, %+v", *c.UsageCoreNanoSeconds, *c.UsageNanoCores, c.PSI)
			}
			if m := kubelet.Memory; *m.UsageBytes != 1000 || *m.WorkingSetBytes != 600 || *m.RSSBytes != 300 ||
				*m.PageFaults != 9 || *m.MajorPageFaults != 2 || m.AvailableBytes != nil {
				t.Errorf("memory: %+v", m)
			}
			if *kubelet.Swap.SwapUsageBytes != 50 || kubelet.Rootfs != nil || kubelet.Logs != nil {
				t.Errorf("swap %d", *kubelet.Swap.SwapUsageBytes)
			}
			if *pods.Memory.AvailableBytes != 100 {
				t.Errorf("pods have %d left", *pods.Memory.AvailableBytes)
			}
			if r.CreatedAt("/kube").IsZero() || !r.CreatedAt("/gone").IsZero() {
				t.Errorf("began %v, %v", r.CreatedAt("/kube"), r.CreatedAt("/gone"))
			}
		})
	}
}

func TestNodeNetwork(t *testing.T) {
	now := metav1.NewTime(time.Unix(1000, 0))
	got := nodeNetwork([]stat.Interface{{Name: "eth1", RxBytes: 1}, {Name: "veth12", RxBytes: 2},
		{Name: "eth0", RxBytes: 3, RxErrors: 4, TxBytes: 5, TxErrors: 6}}, now)
	if got.Name != "eth0" || *got.RxBytes != 3 || *got.RxErrors != 4 || *got.TxBytes != 5 || *got.TxErrors != 6 {
		t.Errorf("default interface %+v", got.InterfaceStats)
	}
	if len(got.Interfaces) != 2 || got.Interfaces[0].Name != "eth1" || *got.Interfaces[0].RxBytes != 1 ||
		got.Interfaces[1].Name != "eth0" {
		t.Errorf("interfaces %+v", got.Interfaces)
	}
	if got := nodeNetwork(nil, now); got.Name != "" || got.RxBytes != nil || got.Interfaces == nil {
		t.Errorf("without interfaces: %+v", got)
	}
}

// TestPodStats checks that all network interfaces of a pod are listed, and that the pod's swap
// usage is the sum of its containers' swap usage.
func TestPodStats(t *testing.T) {
	n := func(v uint64) *runtimeapi.UInt64Value { return &runtimeapi.UInt64Value{Value: v} }
	swap := func(v uint64) *runtimeapi.ContainerStats {
		return &runtimeapi.ContainerStats{Swap: &runtimeapi.SwapUsage{SwapUsageBytes: n(v)},
			WritableLayer: &runtimeapi.FilesystemUsage{UsedBytes: n(1)}}
	}
	eth0 := &runtimeapi.NetworkInterfaceUsage{Name: "eth0", RxBytes: n(1), TxBytes: n(2)}
	pod := podStats(&runtimeapi.PodSandboxStats{Linux: &runtimeapi.LinuxPodSandboxStats{
		Network: &runtimeapi.NetworkUsage{DefaultInterface: eth0,
			Interfaces: []*runtimeapi.NetworkInterfaceUsage{{Name: "net1", RxBytes: n(7)}}},
		Containers: []*runtimeapi.ContainerStats{swap(3), swap(4)},
	}})
	if pod.Network.Name != "eth0" || len(pod.Network.Interfaces) != 2 ||
		pod.Network.Interfaces[0].Name != "eth0" || *pod.Network.Interfaces[1].RxBytes != 7 {
		t.Errorf("network %+v", pod.Network)
	}
	if *pod.Swap.SwapUsageBytes != 7 {
		t.Errorf("swap %d", *pod.Swap.SwapUsageBytes)
	}
	if s := podStats(&runtimeapi.PodSandboxStats{}); s.Swap != nil || s.Network != nil {
		t.Errorf("without any values: %+v", s)
	}
	disk := func(capacity uint64) *statsapi.FsStats {
		return &statsapi.FsStats{CapacityBytes: &capacity, AvailableBytes: &capacity, Inodes: &capacity,
			InodesFree: &capacity}
	}
	used := uint64(5)
	pod.EphemeralStorage, pod.Containers[0].Logs = &statsapi.FsStats{UsedBytes: &used}, &statsapi.FsStats{UsedBytes: &used}
	rooms(&pod, disk(100), disk(200))
	c := pod.Containers[0]
	if *pod.EphemeralStorage.CapacityBytes != 100 || *pod.EphemeralStorage.UsedBytes != 5 ||
		*c.Logs.InodesFree != 100 || *c.Rootfs.AvailableBytes != 200 || *c.Rootfs.UsedBytes != 1 {
		t.Errorf("%+v %+v %+v", pod.EphemeralStorage, c.Logs, c.Rootfs)
	}
	rooms(&pod, nil, nil) // without the sizes of the disks, the method rooms must change nothing
}
