// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// mountedClaim is a mounted volume of a claim.
type mountedClaim struct {
	pod *v1.Pod
	ref statsapi.PVCReference
	prepared
}

// measurement is the measurement of a claim's volume for one or more callers of ClaimStats.
type measurement struct {
	late  <-chan struct{} // closed when the caller that began it no longer waits
	done  chan struct{}   // closed when stats is set
	stats *statsapi.VolumeStats
}

// ClaimStats measures every claim's volume that is mounted for a pod. A volume that several pods
// use is measured once, and callers at the same time share one measurement. ClaimStats returns when
// all volumes are measured or ctx ends. It leaves out a volume whose storage server or CSI driver
// has not answered by then. The measurement of such a volume keeps running; until it has ended,
// later calls leave out the volume at once.
func (m *Manager) ClaimStats(ctx context.Context) []statsapi.VolumeStats {
	var running []*measurement
	for _, c := range m.mountedClaims() {
		if r := m.beginMeasure(ctx, c); r != nil {
			running = append(running, r)
		}
	}
	var out []statsapi.VolumeStats
	for _, r := range running {
		select {
		case <-r.done:
		case <-ctx.Done():
		}
		select {
		case <-r.done:
			if r.stats != nil {
				out = append(out, *r.stats)
			}
		default: // too slow
		}
	}
	return out
}

// mountedClaims returns the ready volumes of claims, one entry per claim. It leaves out hostPath
// volumes, because their directories may contain more than the data of the claim.
func (m *Manager) mountedClaims() []mountedClaim {
	m.mu.Lock()
	pods := maps.Clone(m.pods)
	m.mu.Unlock()
	found := map[statsapi.PVCReference]mountedClaim{}
	for uid, pv := range pods {
		pod := pv.pod.Load()
		if pod == nil {
			continue
		}
		ready := pv.seen()
		for i := range pod.Spec.Volumes {
			v := &pod.Spec.Volumes[i]
			p, ok := ready[v.Name]
			name := claimName(pod, v)
			if ok && name != "" && m.own(uid, p) {
				ref := statsapi.PVCReference{Namespace: pod.Namespace, Name: name}
				found[ref] = mountedClaim{pod, ref, p}
			}
		}
	}
	return slices.Collect(maps.Values(found))
}

// own reports whether a volume is mounted by a CSI driver or is below the pod's volumes directory.
func (m *Manager) own(uid types.UID, p prepared) bool {
	return p.driven != nil || strings.HasPrefix(p.path, m.volumesDir(uid)+"/")
}

// beginMeasure returns the running measurement of a claim, or begins one. It returns nil if the
// running one was too slow for the caller that began it.
func (m *Manager) beginMeasure(ctx context.Context, c mountedClaim) *measurement {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r := m.measured[c.ref]; r != nil {
		select {
		case <-r.late:
			return nil
		default:
			return r
		}
	}
	r := &measurement{late: ctx.Done(), done: make(chan struct{})}
	m.measured[c.ref] = r
	go func() { // statfs cannot be interrupted, so it runs in a goroutine for which callers wait until their ctx ends
		defer m.endMeasure(c.ref, r)
		s, err := m.statsOf(ctx, c.pod, c.prepared)
		if err != nil {
			m.cfg.Log.Debug("Failed to measure a volume", "namespace", c.ref.Namespace, "claim", c.ref.Name, "err", err)
		} else if s != nil {
			r.stats = &statsapi.VolumeStats{FsStats: *s, PVCRef: &c.ref}
		}
	}()
	return r
}

func (m *Manager) endMeasure(ref statsapi.PVCReference, r *measurement) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.measured, ref)
	close(r.done)
}
