// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"os"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"keelson.dev/keelson/pkg/kubelet/cgroup/stat"
)

// systemGroup is a cgroup that is not a pod's but whose usage is reported too.
type systemGroup struct {
	name, path string
	began      time.Time
	most       int64 // memory limit in bytes; 0 if there is no limit
}

// systemGroups returns the cgroups of the kubelet, of the container runtime and of all pods
// together. It leaves out the first two if they cannot be found.
func (u *usage) systemGroups(r stat.Reader) []systemGroup {
	var out []systemGroup
	if path, err := r.GroupOf("/proc", os.Getpid()); err == nil {
		out = append(out, systemGroup{name: statsapi.SystemContainerKubelet, path: path, began: u.begun})
	}
	path := u.cfg.RuntimeCgroups
	if pid := u.runtime.client.Process(); path == "" && pid != 0 {
		path, _ = r.GroupOf("/proc", pid) // path stays empty on an error
	}
	if path != "" {
		out = append(out, systemGroup{name: statsapi.SystemContainerRuntime, path: path, began: r.CreatedAt(path)})
	}
	path = u.cgroups.Groups()[0]
	return append(out, systemGroup{name: statsapi.SystemContainerPods, path: path, began: r.CreatedAt(path),
		most: u.podMemory})
}

// systemStats returns the usage of the given cgroups. It leaves out cgroups whose usage cannot be
// read.
func (u *usage) systemStats(r stat.Reader, groups []systemGroup, now metav1.Time) []statsapi.ContainerStats {
	var out []statsapi.ContainerStats
	for _, g := range groups {
		read := r.Read(g.path)
		s := statsapi.ContainerStats{Name: g.name, StartTime: metav1.NewTime(g.began)}
		if s.CPU, s.Memory = groupStats(read, now); s.CPU == nil && s.Memory == nil {
			continue
		}
		if s.CPU != nil {
			s.CPU.UsageNanoCores = u.rates.observe(g.name, now.Time, *s.CPU.UsageCoreNanoSeconds)
		}
		if s.Memory != nil {
			s.Swap = &statsapi.SwapStats{Time: now, SwapUsageBytes: &read.Memory.Swap}
			if g.most > 0 {
				s.Memory.AvailableBytes = remaining(uint64(g.most), read.Memory.WorkingSet)
			}
		}
		s.IO = waits(read.Pressure, now.Time, s.CPU, s.Memory)
		out = append(out, s)
	}
	return out
}

// defaultInterface is the network interface whose traffic is reported in those fields of the API
// that hold the values of a single interface.
const defaultInterface = "eth0"

// nodeNetwork returns the traffic of the node's network interfaces. It leaves out interfaces whose
// names show that they belong to the networks of containers.
func nodeNetwork(list []stat.Interface, now metav1.Time) *statsapi.NetworkStats {
	out := &statsapi.NetworkStats{Time: now, Interfaces: []statsapi.InterfaceStats{}}
	for _, i := range list {
		if slices.ContainsFunc([]string{"veth", "docker", "nerdctl"},
			func(p string) bool { return strings.HasPrefix(i.Name, p) }) {
			continue
		}
		s := statsapi.InterfaceStats{Name: i.Name, RxBytes: &i.RxBytes, RxErrors: &i.RxErrors,
			TxBytes: &i.TxBytes, TxErrors: &i.TxErrors}
		if i.Name == defaultInterface {
			out.InterfaceStats = s
		}
		out.Interfaces = append(out.Interfaces, s)
	}
	return out
}

// rooms adds to a pod's statistics the capacity and free space of the disks that its containers
// use: nodefs is the disk of logs and of ephemeral storage, imagefs that of writable layers.
func rooms(pod *statsapi.PodStats, nodefs, imagefs *statsapi.FsStats) {
	of := func(s, disk *statsapi.FsStats) {
		if s != nil && disk != nil {
			s.CapacityBytes, s.AvailableBytes, s.Inodes, s.InodesFree = disk.CapacityBytes, disk.AvailableBytes,
				disk.Inodes, disk.InodesFree
		}
	}
	of(pod.EphemeralStorage, nodefs)
	for i := range pod.Containers {
		of(pod.Containers[i].Logs, nodefs)
		of(pod.Containers[i].Rootfs, imagefs)
	}
}
