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

// ClaimStats measures every claim's volume that is mounted for a pod. A volume that several pods
// use is measured once. ClaimStats returns when all volumes are measured or ctx ends. Then it
// leaves out the volumes whose storage server or CSI driver has not answered. It does not measure
// such a volume again while the earlier measurement is still running.
func (m *Manager) ClaimStats(ctx context.Context) []statsapi.VolumeStats {
	claims := m.mountedClaims()
	results := make(chan *statsapi.VolumeStats, len(claims))
	asked := 0
	for _, c := range claims {
		if !m.beginMeasure(c.ref) {
			continue
		}
		asked++
		go func() { // statfs cannot be interrupted, so it runs in a goroutine for which the caller waits until ctx ends
			defer m.endMeasure(c.ref)
			s, err := m.statsOf(ctx, c.pod, c.prepared)
			if err != nil {
				m.cfg.Log.Debug("Failed to measure a volume", "namespace", c.ref.Namespace, "claim", c.ref.Name, "err", err)
			}
			if err != nil || s == nil {
				results <- nil
				return
			}
			results <- &statsapi.VolumeStats{FsStats: *s, PVCRef: &c.ref}
		}()
	}
	var out []statsapi.VolumeStats
	for range asked {
		select {
		case s := <-results:
			if s != nil {
				out = append(out, *s)
			}
		case <-ctx.Done():
			return out
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

func (m *Manager) beginMeasure(ref statsapi.PVCReference) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.measured[ref] {
		return false
	}
	m.measured[ref] = true
	return true
}

func (m *Manager) endMeasure(ref statsapi.PVCReference) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.measured, ref)
}
