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
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"keelson.dev/keelson/pkg/kubelet/qos"
)

// Machine describes the node's machine.
type Machine struct {
	CPUs    int
	Memory  int64 // size in bytes
	Disk    int64 // size in bytes of the file system of the kubelet's directory
	Swap    int64 // size in bytes
	MaxPIDs int64
	Booted  time.Time // zero if the boot time is unknown
	// HugePages is how many bytes are reserved for huge pages, by page size in bytes.
	HugePages map[int64]int64
	Info      v1.NodeSystemInfo // the versions of kubelet and runtime are empty
}

// ReadMachine reads the description of the machine.
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
	if s := readText("/proc/sys/kernel/pid_max"); s != "" {
		m.MaxPIDs, _ = strconv.ParseInt(s, 10, 64) // 0, which means unknown, if s is not a number
	}
	m.Booted = booted(readText("/proc/stat"))
	m.Info = v1.NodeSystemInfo{
		MachineID: readText("/etc/machine-id"), SystemUUID: readText("/sys/class/dmi/id/product_uuid"),
		BootID: readText("/proc/sys/kernel/random/boot_id"), KernelVersion: readText("/proc/sys/kernel/osrelease"),
		OSImage: osImage(), OperatingSystem: runtime.GOOS, Architecture: runtime.GOARCH,
		RunningInUserNamespace: new(inUserNamespace(readText("/proc/self/uid_map"))),
	}
	if m.Info.SystemUUID == "" {
		m.Info.SystemUUID = m.Info.MachineID
	}
	if m.Swap > 0 {
		m.Info.Swap = &v1.NodeSwapStatus{Capacity: &m.Swap}
	}
	return m, nil
}

// inUserNamespace reports whether a process with the given map of user IDs is in a user namespace
// other than that of the machine, which has all IDs. The map is empty if the kernel has no user
// namespaces.
func inUserNamespace(ids string) bool {
	fields := strings.Fields(ids)
	return len(fields) > 0 && !slices.Equal(fields, []string{"0", "0", "4294967295"})
}

// booted returns the time of the machine's boot from the content of /proc/stat. It returns the zero
// time if the content has no boot time.
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

// Capacity returns the capacity of the node in its status.
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

// hugePages returns how many bytes are reserved for huge pages, by page size. dir is the kernel's
// directory with one entry for each page size.
func hugePages(dir string) (map[int64]int64, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, iofs.ErrNotExist) {
		return nil, nil // the kernel does not support huge pages
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
		n, err := strconv.ParseInt(readText(filepath.Join(dir, e.Name(), "nr_hugepages")), 10, 64)
		if err != nil {
			return nil, fmt.Errorf("huge pages of %d KiB: %w", kib, err)
		}
		out[kib<<10] = n * kib << 10
	}
	return out, nil
}

// Allocatable returns the capacity minus the reserved amounts. It also subtracts the memory that is
// set aside for huge pages, because that memory cannot be used for anything else.
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

// SwapFree returns the free swap space in bytes.
func SwapFree() (int64, error) {
	memory, err := meminfo()
	return memory["SwapFree"], err
}

// meminfo returns the values of /proc/meminfo in bytes.
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

// readText returns the content of a small file, or "" if it cannot be read.
func readText(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

func osImage() string {
	for _, line := range strings.Split(readText("/etc/os-release"), "\n") {
		if name, ok := strings.CutPrefix(line, "PRETTY_NAME="); ok {
			return strings.Trim(name, `"`)
		}
	}
	return runtime.GOOS
}
