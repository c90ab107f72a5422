// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"bufio"
	"errors"
	"fmt"
	iofs "io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"keelson.dev/keelson/pkg/kubelet/qos"
)

// Machine is what a machine has and is.
type Machine struct {
	CPUs    int
	Memory  int64 // bytes
	Disk    int64 // bytes of the file system of the kubelet's directory
	Swap    int64 // bytes
	MaxPIDs int64
	Booted  time.Time // zero: not known
	// HugePages are bytes set aside, by the size of the pages.
	HugePages map[int64]int64
	Info      v1.NodeSystemInfo // without the versions of kubelet and runtime
}

// ReadMachine looks at the machine the process runs on.
func ReadMachine(rootDir string) (Machine, error) {
	m := Machine{CPUs: runtime.NumCPU()}
	memory, err := meminfo()
	if err != nil {
		return m, err
	}
	m.Memory, m.Swap = memory["MemTotal"], memory["SwapTotal"]
	var fs syscall.Statfs_t
	if err := syscall.Statfs(rootDir, &fs); err != nil {
		return m, fmt.Errorf("size of %s: %w", rootDir, err)
	}
	m.Disk = int64(fs.Blocks) * fs.Bsize
	if m.HugePages, err = hugePages("/sys/kernel/mm/hugepages"); err != nil {
		return m, err
	}
	if s := text("/proc/sys/kernel/pid_max"); s != "" {
		m.MaxPIDs, _ = strconv.ParseInt(s, 10, 64) // 0, unknown, when it is not a number
	}
	m.Booted = booted(text("/proc/stat"))
	m.Info = v1.NodeSystemInfo{
		MachineID: text("/etc/machine-id"), SystemUUID: text("/sys/class/dmi/id/product_uuid"),
		BootID: text("/proc/sys/kernel/random/boot_id"), KernelVersion: text("/proc/sys/kernel/osrelease"),
		OSImage: osImage(), OperatingSystem: runtime.GOOS, Architecture: runtime.GOARCH,
	}
	if m.Info.SystemUUID == "" {
		m.Info.SystemUUID = m.Info.MachineID
	}
	if m.Swap > 0 {
		m.Info.Swap = &v1.NodeSwapStatus{Capacity: &m.Swap}
	}
	return m, nil
}

// booted is when the machine was started, as the kernel's statistics tell.
func booted(statistics string) time.Time {
	for line := range strings.Lines(statistics) {
		if rest, ok := strings.CutPrefix(line, "btime "); ok {
			if seconds, err := strconv.ParseInt(strings.TrimSpace(rest), 10, 64); err == nil {
				return time.Unix(seconds, 0)
			}
		}
	}
	return time.Time{}
}

// Capacity is the machine as a list of resources.
func (m Machine) Capacity(maxPods int32) v1.ResourceList {
	out := v1.ResourceList{
		v1.ResourceCPU:              *resource.NewQuantity(int64(m.CPUs), resource.DecimalSI),
		v1.ResourceMemory:           *resource.NewQuantity(m.Memory, resource.BinarySI),
		v1.ResourceEphemeralStorage: *resource.NewQuantity(m.Disk, resource.DecimalSI),
		v1.ResourcePods:             *resource.NewQuantity(int64(maxPods), resource.DecimalSI),
	}
	for size, bytes := range m.HugePages {
		out[qos.HugePages(size)] = *resource.NewQuantity(bytes, resource.BinarySI)
	}
	return out
}

// hugePages reads which sizes of huge pages the kernel has, and how many of each are set aside.
func hugePages(dir string) (map[int64]int64, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, iofs.ErrNotExist) {
		return nil, nil // the kernel has none
	}
	if err != nil {
		return nil, fmt.Errorf("huge pages: %w", err)
	}
	out := map[int64]int64{}
	for _, e := range entries {
		var kib int64
		if _, err := fmt.Sscanf(e.Name(), "hugepages-%dkB", &kib); err != nil {
			continue
		}
		n, err := strconv.ParseInt(text(filepath.Join(dir, e.Name(), "nr_hugepages")), 10, 64)
		if err != nil {
			return nil, fmt.Errorf("huge pages of %d KiB: %w", kib, err)
		}
		out[kib<<10] = n * kib << 10
	}
	return out, nil
}

// Allocatable is what of the capacity is left for pods: less what is reserved,
// and less what eviction keeps free. Memory that is set aside for huge pages is not to be had otherwise.
func Allocatable(capacity v1.ResourceList, reserved ...v1.ResourceList) v1.ResourceList {
	out := capacity.DeepCopy()
	memory := out[v1.ResourceMemory]
	for name, q := range capacity {
		if strings.HasPrefix(string(name), v1.ResourceHugePagesPrefix) {
			memory.Sub(q)
		}
	}
	if !memory.IsZero() {
		out[v1.ResourceMemory] = memory
	}
	for _, list := range reserved {
		for name, q := range list {
			have, ok := out[name]
			if !ok {
				continue
			}
			if have.Sub(q); have.Sign() < 0 {
				have = *resource.NewQuantity(0, have.Format)
			}
			out[name] = have
		}
	}
	return out
}

// SwapFree is how much swap is free, in bytes.
func SwapFree() (int64, error) {
	memory, err := meminfo()
	return memory["SwapFree"], err
}

// meminfo reads /proc/meminfo, in bytes.
func meminfo() (map[string]int64, error) {
	f, err := os.Open("/proc/meminfo")
	if err != nil {
		return nil, fmt.Errorf("memory: %w", err)
	}
	defer func() { _ = f.Close() }()
	out := map[string]int64{}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		name, rest, _ := strings.Cut(lines.Text(), ":")
		fields := strings.Fields(rest)
		if len(fields) == 0 {
			continue
		}
		if kib, err := strconv.ParseInt(fields[0], 10, 64); err == nil {
			out[name] = kib << 10
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("memory: %w", err)
	}
	return out, nil
}

// text is the content of a small file, or nothing.
func text(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

func osImage() string {
	for _, line := range strings.Split(text("/etc/os-release"), "\n") {
		if name, ok := strings.CutPrefix(line, "PRETTY_NAME="); ok {
			return strings.Trim(name, `"`)
		}
	}
	return runtime.GOOS
}
