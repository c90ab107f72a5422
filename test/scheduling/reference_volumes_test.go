// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduling

import (
	"math"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
)

func (c *cluster) claimsOf(pod *v1.Pod) []*v1.PersistentVolumeClaim {
	var out []*v1.PersistentVolumeClaim
	for _, v := range pod.Spec.Volumes {
		if v.PersistentVolumeClaim != nil {
			out = append(out, c.claims[pod.Namespace+"/"+v.PersistentVolumeClaim.ClaimName])
		}
	}
	return out
}

// claimInUse reports whether another pod uses a claim of the pod that only one pod may use.
func claimInUse(c *cluster, pod *v1.Pod, _ *v1.Node) bool {
	for _, claim := range c.claimsOf(pod) {
		if !slices.Contains(claim.Spec.AccessModes, v1.ReadWriteOncePod) {
			continue
		}
		for _, p := range c.pods {
			if slices.Contains(c.claimsOf(p), claim) {
				return true
			}
		}
	}
	return false
}

// tooManyVolumes reports whether the pod's volumes would exceed a CSI driver's limit on the node.
func tooManyVolumes(c *cluster, pod *v1.Pod, n *v1.Node) bool {
	handles := func(p *v1.Pod) map[string]string {
		out := map[string]string{}
		for _, claim := range c.claimsOf(p) {
			if pv := c.volumes[claim.Spec.VolumeName]; pv != nil {
				if pv.Spec.CSI != nil {
					out[pv.Spec.CSI.Driver+" "+pv.Spec.CSI.VolumeHandle] = pv.Spec.CSI.Driver
				}
			} else if class := c.classes[*claim.Spec.StorageClassName]; class != nil {
				out["new "+claim.Namespace+" "+claim.Name] = class.Provisioner
			}
		}
		return out
	}
	csi := c.csiNodes[n.Name]
	if csi == nil {
		return false
	}
	there := map[string]string{}
	for _, p := range c.on(n.Name) {
		for h, driver := range handles(p) {
			there[h] = driver
		}
	}
	for _, d := range csi.Spec.Drivers {
		count, more := int32(0), false
		for _, driver := range there {
			if driver == d.Name {
				count++
			}
		}
		for h, driver := range handles(pod) {
			if _, ok := there[h]; !ok && driver == d.Name {
				count++
				more = true
			}
		}
		if more && count > *d.Allocatable.Count {
			return true
		}
	}
	return false
}

func reaches(pv *v1.PersistentVolume, n *v1.Node) bool {
	if pv.Spec.NodeAffinity == nil {
		return true
	}
	return slices.ContainsFunc(pv.Spec.NodeAffinity.Required.NodeSelectorTerms,
		func(t v1.NodeSelectorTerm) bool { return termMatches(t, n) })
}

// volumesOutOfReach reports whether the pod cannot get its volumes on the node.
func volumesOutOfReach(c *cluster, pod *v1.Pod, n *v1.Node) bool {
	_, reached := volumesFor(c, pod, n)
	return !reached
}

// volumeScores returns the scores by free storage. On each node, the pod's unbound claims would get
// certain volumes. For each StorageClass, the claims leave a percentage of the capacity of these volumes
// unused. The score is the mean of these percentages.
func volumeScores(c *cluster, pod *v1.Pod, nodes []*v1.Node) []int64 {
	var out []int64
	for _, n := range nodes {
		found, _ := volumesFor(c, pod, n)
		requested, capacity := map[string]int64{}, map[string]int64{}
		for claim, pv := range found {
			requested[pv.Spec.StorageClassName] += claim.Spec.Resources.Requests.Storage().Value()
			capacity[pv.Spec.StorageClassName] += pv.Spec.Capacity.Storage().Value()
		}
		sum := 0.0
		for class := range requested {
			sum += 100 - math.Floor(100*float64(requested[class])/float64(capacity[class]))
		}
		out = append(out, int64(math.Round(sum/float64(max(len(requested), 1)))))
	}
	return out
}

// volumesFor returns the volumes that the pod's unbound claims would get on the node. It returns false
// if the node cannot access one of the bound volumes, or if an unbound claim has no suitable volume and
// none can be provisioned.
func volumesFor(c *cluster, pod *v1.Pod, n *v1.Node) (map[*v1.PersistentVolumeClaim]*v1.PersistentVolume, bool) {
	taken := map[string]bool{}
	found := map[*v1.PersistentVolumeClaim]*v1.PersistentVolume{}
	claims := slices.Clone(c.claimsOf(pod))
	size := func(l v1.ResourceList) int64 { return l.Storage().Value() }
	slices.SortStableFunc(claims, func(a, b *v1.PersistentVolumeClaim) int {
		return int(size(a.Spec.Resources.Requests) - size(b.Spec.Resources.Requests))
	})
	for _, claim := range claims {
		if claim.Spec.VolumeName != "" {
			if !reaches(c.volumes[claim.Spec.VolumeName], n) {
				return nil, false
			}
			continue
		}
		var best *v1.PersistentVolume
		for _, pv := range c.volumes {
			if pv.Spec.StorageClassName == *claim.Spec.StorageClassName && pv.Spec.ClaimRef == nil && !taken[pv.Name] &&
				pv.Status.Phase == v1.VolumeAvailable && reaches(pv, n) &&
				size(pv.Spec.Capacity) >= size(claim.Spec.Resources.Requests) &&
				slices.Contains(pv.Spec.AccessModes, claim.Spec.AccessModes[0]) &&
				(best == nil || size(pv.Spec.Capacity) < size(best.Spec.Capacity)) {
				best = pv
			}
		}
		if best != nil {
			taken[best.Name] = true
			found[claim] = best
		} else if c.classes[*claim.Spec.StorageClassName].Provisioner == "kubernetes.io/no-provisioner" {
			return nil, false
		}
	}
	return found, true
}

// wrongZone reports whether the labels of a bound volume require zones that the node is not in.
func wrongZone(c *cluster, pod *v1.Pod, n *v1.Node) bool {
	_, zone := n.Labels[v1.LabelTopologyZone]
	_, region := n.Labels[v1.LabelTopologyRegion]
	if !zone && !region {
		return false
	}
	for _, claim := range c.claimsOf(pod) {
		pv := c.volumes[claim.Spec.VolumeName]
		if pv == nil {
			continue
		}
		for _, key := range []string{v1.LabelTopologyZone, v1.LabelTopologyRegion} {
			zones, ok := pv.Labels[key]
			value, has := n.Labels[key]
			if ok && (!has || !slices.Contains(strings.Split(zones, "__"), value)) {
				return true
			}
		}
	}
	return false
}

var waits = storagev1.VolumeBindingWaitForFirstConsumer
