// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"golang.org/x/sys/unix"

	"keelson.dev/api/quantity"
)

// blockUnit is the unit of st_blocks in bytes. It does not depend on the file system's block size.
const blockUnit = 512

// Stats returns the usage of a pod's volumes, sorted by name. For volumes on the node's own disk it
// reads every file's size, so callers should call it seldom. It leaves out hostPath volumes,
// because their data does not belong to the pod.
func (m *Manager) Stats(ctx context.Context, uid types.UID) ([]statsapi.VolumeStats, error) {
	m.mu.Lock()
	pv, ok := m.pods[uid]
	m.mu.Unlock()
	if !ok {
		return nil, nil
	}
	pod := pv.pod.Load()
	if pod == nil {
		return nil, nil
	}
	own := map[string]prepared{}
	for name, p := range pv.seen() {
		if m.own(uid, p) {
			own[name] = p
		}
	}
	var out []statsapi.VolumeStats
	var errs []error
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		p, ok := own[v.Name]
		if !ok {
			continue
		}
		s, err := m.statsOf(ctx, pod, p)
		if err != nil {
			errs = append(errs, fmt.Errorf("measure volume %s: %w", v.Name, err))
		}
		if s == nil {
			continue
		}
		stats := statsapi.VolumeStats{FsStats: *s, Name: v.Name}
		if claim := claimName(pod, v); claim != "" {
			stats.PVCRef = &statsapi.PVCReference{Name: claim, Namespace: pod.Namespace}
		}
		out = append(out, stats)
	}
	slices.SortFunc(out, func(a, b statsapi.VolumeStats) int { return strings.Compare(a.Name, b.Name) })
	return out, errors.Join(errs...)
}

// statsOf returns the usage that the volume's CSI driver reports, or else the result of measure. It
// returns nil if neither is possible, as for a block device whose driver reports no usage.
func (m *Manager) statsOf(ctx context.Context, pod *v1.Pod, p prepared) (*statsapi.FsStats, error) {
	if p.driven != nil {
		s, err := m.cfg.Drivers.Stats(ctx, pod, *p.driven)
		if s != nil || err != nil || p.path == "" {
			return s, err
		}
	}
	s, err := m.measure(ctx, p.path)
	if err != nil {
		return nil, err
	}
	return &s, nil
}

// measure returns the capacity and usage of the file system at path. If the volume is only a
// directory of that file system, measure adds up the files of the volume to get its usage.
func (m *Manager) measure(ctx context.Context, path string) (statsapi.FsStats, error) {
	var fsys unix.Statfs_t
	if err := unix.Statfs(path, &fsys); err != nil {
		return statsapi.FsStats{}, fmt.Errorf("statfs: %w", err)
	}
	block := uint64(fsys.Bsize)
	available, capacity := fsys.Bavail*block, fsys.Blocks*block
	used, inodes := (fsys.Blocks-fsys.Bfree)*block, fsys.Files-fsys.Ffree
	mounted, err := isMount(path)
	if err != nil {
		return statsapi.FsStats{}, err
	}
	if !mounted {
		switch own, files, err := diskUsage(ctx, path); {
		case errors.Is(err, errTooDeep):
			// If the directories are nested too deeply to measure, the volume counts with the usage
			// of the whole file system, so that a pod cannot evade its limits by nesting.
		case err != nil:
			return statsapi.FsStats{}, err
		default:
			used, inodes = own, files
		}
	}
	return statsapi.FsStats{
		Time:           metav1.NewTime(m.cfg.Clock.Now()),
		AvailableBytes: &available, CapacityBytes: &capacity, UsedBytes: &used,
		Inodes: &fsys.Files, InodesFree: &fsys.Ffree, InodesUsed: &inodes,
	}, nil
}

// diskUsage adds up the bytes and inodes below dir that are on the same file system as dir. A file
// with n hard links counts 1/n at each link, so that all its links together count once. This needs
// no memory for the links that were already seen; containers control how many links exist.
func diskUsage(ctx context.Context, dir string) (bytes, inodes uint64, err error) {
	var device uint64
	shares := 0.0
	t := tree{
		enter: func(stat *unix.Stat_t) bool {
			if device == 0 {
				device = stat.Dev
			}
			return stat.Dev == device
		},
		visit: func(_ int, stat *unix.Stat_t) error {
			links := max(uint64(stat.Nlink), 1) //nolint:unconvert // the field has 32 bits on arm64
			if stat.Mode&unix.S_IFMT == unix.S_IFDIR {
				links = 1 // the other links are "." and the ".." of subdirectories
			}
			if stat.Dev == device {
				bytes += uint64(stat.Blocks) * blockUnit / links
				shares += 1 / float64(links)
			}
			return ctx.Err()
		},
	}
	if err := t.walk(dir); err != nil {
		return 0, 0, fmt.Errorf("disk usage: %w", err)
	}
	return bytes, uint64(math.Round(shares)), nil
}

// OverLimit returns a message for the pod's eviction for each emptyDir volume that exceeds its
// sizeLimit.
func OverLimit(pod *v1.Pod, stats []statsapi.VolumeStats) []string {
	var out []string
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if v.EmptyDir == nil || v.EmptyDir.SizeLimit == nil || v.EmptyDir.SizeLimit.Sign() != 1 {
			continue
		}
		for _, s := range stats {
			if s.Name == v.Name && s.UsedBytes != nil && *s.UsedBytes > uint64(quantity.Value(*v.EmptyDir.SizeLimit)) {
				out = append(out, fmt.Sprintf("Usage of EmptyDir volume %q exceeds the limit %q. ", v.Name,
					v.EmptyDir.SizeLimit.String()))
			}
		}
	}
	return out
}
