// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduling

import (
	"math"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"keelson.dev/keelson/pkg/scheduler/intake"
)

// cluster has all objects that the scheduler's decisions depend on, in plain lists and maps.
type cluster struct {
	reader     *intake.Reader
	nodes      []*v1.Node
	pods       []*v1.Pod // pods that are on nodes
	namespaces map[string]map[string]string
	services   []*v1.Service
	claims     map[string]*v1.PersistentVolumeClaim // by namespace/name
	volumes    map[string]*v1.PersistentVolume
	classes    map[string]*storagev1.StorageClass
	csiNodes   map[string]*storagev1.CSINode
}

func (c *cluster) on(node string) []*v1.Pod {
	var out []*v1.Pod
	for _, p := range c.pods {
		if p.Spec.NodeName == node {
			out = append(out, p)
		}
	}
	return out
}

// answer is the reference's result for one node.
type answer struct {
	plugin string // plugin that rejects the node first, or "" if the pod fits
	scores map[string]int64
	total  int64
}

// filterOrder has the filters of the reference, in the order in which they run.
var filterOrder = []struct {
	name  string
	fails func(c *cluster, pod *v1.Pod, n *v1.Node) bool
}{
	{"NodeName", func(_ *cluster, pod *v1.Pod, n *v1.Node) bool {
		return pod.Spec.NodeName != "" && pod.Spec.NodeName != n.Name
	}},
	{"NodeUnschedulable", unschedulable},
	{"TaintToleration", func(_ *cluster, pod *v1.Pod, n *v1.Node) bool {
		return untolerated(pod, n, v1.TaintEffectNoSchedule)+untolerated(pod, n, v1.TaintEffectNoExecute) > 0
	}},
	{"NodeAffinity", func(_ *cluster, pod *v1.Pod, n *v1.Node) bool { return !nodeMatches(pod, n) }},
	{"NodePorts", portsTaken},
	{"NodeResourcesFit", lacksResources},
	{"VolumeRestrictions", claimInUse},
	{"NodeVolumeLimits", tooManyVolumes},
	{"VolumeBinding", volumesOutOfReach},
	{"VolumeZone", wrongZone},
	{"PodTopologySpread", skewed},
	{"InterPodAffinity", badNeighbours},
}

// weights has the weights of the plugins in the default profile.
var weights = map[string]int64{
	"TaintToleration": 3, "NodeAffinity": 2, "NodeResourcesFit": 1, "PodTopologySpread": 2, "InterPodAffinity": 2,
	"NodeResourcesBalancedAllocation": 1, "ImageLocality": 1, "VolumeBinding": 1,
}

// reference returns the result for each node, by node name.
func reference(c *cluster, pod *v1.Pod) map[string]*answer {
	out := map[string]*answer{}
	var feasible []*v1.Node
	for _, n := range c.nodes {
		a := &answer{scores: map[string]int64{}}
		for _, f := range filterOrder {
			if f.fails(c, pod, n) {
				a.plugin = f.name
				break
			}
		}
		out[n.Name] = a
		if a.plugin == "" {
			feasible = append(feasible, n)
		}
	}
	for plugin, scores := range map[string][]int64{
		"TaintToleration":                 taintScores(pod, feasible),
		"NodeAffinity":                    nodeAffinityScores(pod, feasible),
		"NodeResourcesFit":                leastAllocatedScores(c, pod, feasible),
		"NodeResourcesBalancedAllocation": balancedScores(c, pod, feasible),
		"ImageLocality":                   imageScores(c, pod, feasible),
		"PodTopologySpread":               spreadScores(c, pod, feasible),
		"InterPodAffinity":                affinityScores(c, pod, feasible),
		"VolumeBinding":                   volumeScores(c, pod, feasible),
	} {
		for i, s := range scores { // scores is nil if the plugin gives all nodes the same score
			a := out[feasible[i].Name]
			a.scores[plugin] = s
			a.total += s * weights[plugin]
		}
	}
	return out
}

func unschedulable(_ *cluster, pod *v1.Pod, n *v1.Node) bool {
	taint := v1.Taint{Key: "node.kubernetes.io/unschedulable", Effect: v1.TaintEffectNoSchedule}
	return n.Spec.Unschedulable && !tolerated(pod, taint)
}

func tolerated(pod *v1.Pod, taint v1.Taint) bool {
	for _, t := range pod.Spec.Tolerations {
		effect := t.Effect == "" || t.Effect == taint.Effect
		if t.Operator == v1.TolerationOpExists {
			if effect && (t.Key == "" || t.Key == taint.Key) {
				return true
			}
		} else if effect && t.Key == taint.Key && t.Value == taint.Value {
			return true
		}
	}
	return false
}

func untolerated(pod *v1.Pod, n *v1.Node, effect v1.TaintEffect) int {
	count := 0
	for _, taint := range n.Spec.Taints {
		if taint.Effect == effect && !tolerated(pod, taint) {
			count++
		}
	}
	return count
}

func taintScores(pod *v1.Pod, nodes []*v1.Node) []int64 {
	raw := make([]int64, len(nodes))
	for i, n := range nodes {
		soft := pod.DeepCopy()
		soft.Spec.Tolerations = nil
		for _, t := range pod.Spec.Tolerations {
			if t.Effect == "" || t.Effect == v1.TaintEffectPreferNoSchedule {
				soft.Spec.Tolerations = append(soft.Spec.Tolerations, t)
			}
		}
		raw[i] = int64(untolerated(soft, n, v1.TaintEffectPreferNoSchedule))
	}
	worst := highest(raw)
	for i := range raw {
		if worst == 0 {
			raw[i] = 100
		} else {
			raw[i] = 100 - 100*raw[i]/worst
		}
	}
	return raw
}

func nodeAffinityScores(pod *v1.Pod, nodes []*v1.Node) []int64 {
	a := pod.Spec.Affinity
	if a == nil || a.NodeAffinity == nil || len(a.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution) == 0 {
		return nil
	}
	raw := make([]int64, len(nodes))
	for i, n := range nodes {
		for _, p := range a.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution {
			if termMatches(p.Preference, n) {
				raw[i] += int64(p.Weight)
			}
		}
	}
	if best := highest(raw); best > 0 {
		for i := range raw {
			raw[i] = 100 * raw[i] / best
		}
	}
	return raw
}

func highest(v []int64) int64 {
	var out int64
	for _, x := range v {
		if x > out {
			out = x
		}
	}
	return out
}

func portsTaken(c *cluster, pod *v1.Pod, n *v1.Node) bool {
	for _, p := range c.on(n.Name) {
		for _, a := range ports(p) {
			for _, b := range ports(pod) {
				sameIP := a.HostIP == b.HostIP || a.HostIP == "0.0.0.0" || b.HostIP == "0.0.0.0"
				if a.HostPort == b.HostPort && a.Protocol == b.Protocol && sameIP {
					return true
				}
			}
		}
	}
	return false
}

func ports(pod *v1.Pod) []v1.ContainerPort {
	var out []v1.ContainerPort
	for _, c := range pod.Spec.Containers {
		for _, p := range c.Ports {
			if p.HostPort == 0 {
				continue
			}
			if p.HostIP == "" {
				p.HostIP = "0.0.0.0"
			}
			if p.Protocol == "" {
				p.Protocol = v1.ProtocolTCP
			}
			out = append(out, p)
		}
	}
	return out
}

func imageScores(c *cluster, pod *v1.Pod, nodes []*v1.Node) []int64 {
	has := func(n *v1.Node, image string) (int64, bool) {
		for _, i := range n.Status.Images {
			for _, name := range i.Names {
				if name == image {
					return i.SizeBytes, true
				}
			}
		}
		return 0, false
	}
	out := make([]int64, len(nodes))
	for i, n := range nodes {
		var sum int64
		var images []string
		for _, container := range append(append([]v1.Container{}, pod.Spec.InitContainers...), pod.Spec.Containers...) {
			images = append(images, container.Image)
		}
		for _, volume := range pod.Spec.Volumes {
			if volume.Image != nil {
				images = append(images, volume.Image.Reference)
			}
		}
		for _, image := range images {
			image += ":latest" // no image reference in this test has a tag
			size, ok := has(n, image)
			if !ok {
				continue
			}
			holders := 0
			for _, other := range c.nodes {
				if _, ok := has(other, image); ok {
					holders++
				}
			}
			sum += int64(float64(size) * (float64(holders) / float64(len(c.nodes))))
		}
		low, high := int64(23<<20), int64(1000<<20)*int64(len(images))
		sum = int64(math.Max(float64(low), math.Min(float64(high), float64(sum))))
		out[i] = 100 * (sum - low) / (high - low)
	}
	return out
}
