// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"keelson.dev/keelson/pkg/kubelet/qos"
)

// apply writes limits to the files of a cgroup. It skips limits that the kernel does not support.
func (m *Manager) apply(path string, l qos.PodLimits) error {
	files := m.files(l)
	for _, f := range files {
		if err := m.write(f.controller, path, f.name, f.value); err != nil {
			return fmt.Errorf("cgroup %s: %s: %w", path, f.name, err)
		}
	}
	return nil
}

// limitFile is a file of a cgroup and the value to write to it.
type limitFile struct{ controller, name, value string }

// files returns the files and values for the limits, in the order in which they must be written.
func (m *Manager) files(l qos.PodLimits) []limitFile {
	if m.unified {
		return unifiedFiles(l)
	}
	var out []limitFile
	add := func(controller, name string, value int64) {
		out = append(out, limitFile{controller, name, strconv.FormatInt(value, 10)})
	}
	if l.Shares != nil {
		add("cpu", "cpu.shares", *l.Shares)
	}
	if l.Quota != nil && *l.Quota != 0 {
		add("cpu", "cpu.cfs_period_us", *l.Period)
		add("cpu", "cpu.cfs_quota_us", *l.Quota)
	}
	if l.Memory != nil && *l.Memory > 0 {
		add("memory", "memory.limit_in_bytes", *l.Memory)
	}
	if l.Pids > 0 {
		add("pids", "pids.max", l.Pids)
	}
	for _, size := range slices.Sorted(maps.Keys(l.HugePages)) {
		add("hugetlb", "hugetlb."+size+".limit_in_bytes", l.HugePages[size])
	}
	return out
}

func unifiedFiles(l qos.PodLimits) []limitFile {
	var out []limitFile
	add := func(name, value string) { out = append(out, limitFile{"", name, value}) }
	if l.Shares != nil {
		add("cpu.weight", strconv.FormatInt(Weight(*l.Shares), 10))
	}
	if l.Quota != nil && *l.Quota != 0 {
		quota := "max"
		if *l.Quota > 0 {
			quota = strconv.FormatInt(*l.Quota, 10)
		}
		add("cpu.max", fmt.Sprintf("%s %d", quota, *l.Period))
	}
	if l.Memory != nil && *l.Memory > 0 {
		add("memory.max", strconv.FormatInt(*l.Memory, 10))
	}
	if l.Min > 0 {
		add("memory.min", strconv.FormatInt(l.Min, 10))
	}
	if l.Low > 0 {
		add("memory.low", strconv.FormatInt(l.Low, 10))
	}
	if l.High > 0 {
		add("memory.high", strconv.FormatInt(l.High, 10))
	} else if l.High < 0 {
		add("memory.high", "max")
	}
	if l.Pids > 0 {
		add("pids.max", strconv.FormatInt(l.Pids, 10))
	}
	for _, size := range slices.Sorted(maps.Keys(l.HugePages)) {
		add("hugetlb."+size+".max", strconv.FormatInt(l.HugePages[size], 10))
	}
	return out
}

// Weight converts cgroup v1 CPU shares (2 to 262144) to a cgroup v2 CPU weight (1 to 10000).
func Weight(shares int64) int64 { return 1 + (shares-2)*9999/262142 }

func (m *Manager) write(controller, path, file, value string) error {
	name := filepath.Join(m.cfg.Mount, controller, path, file)
	err := os.WriteFile(name, []byte(value), 0o644)
	if err == nil {
		return nil
	}
	if _, missing := os.Stat(name); errors.Is(missing, fs.ErrNotExist) {
		return nil // the file does not exist, so the kernel does not support this limit
	}
	return err
}
