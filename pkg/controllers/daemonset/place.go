// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	schedulinghelper "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"

	"keelson.dev/keelson/pkg/controllers/controller"
)

// generationLabel is how pods were told apart before revisions were; the number
// is that of an annotation of the set.
const generationLabel = "pod-template-generation"

// verdict says whether a set has a pod on a node: run, it is to have one; stay,
// one that is there may stay.
type verdict struct{ run, stay bool }

// judge says on which nodes a set runs.
type judge struct {
	node        string // the only one, if the template names one
	affinity    nodeaffinity.RequiredNodeAffinity
	tolerations []v1.Toleration
}

func newJudge(set *appsv1.DaemonSet) *judge {
	spec := &set.Spec.Template.Spec
	return &judge{
		node:        spec.NodeName,
		affinity:    nodeaffinity.GetRequiredNodeAffinity(&v1.Pod{Spec: *spec}),
		tolerations: tolerations(spec),
	}
}

// on judges a node, nil: there is none. Only its name, labels and taints count,
// not whether it is ready or has room. A pod that came before a taint stays
// unless the taint drives pods off.
func (j *judge) on(node *v1.Node) verdict {
	if node == nil {
		return verdict{}
	}
	if j.node != "" && j.node != node.Name {
		return verdict{}
	}
	if fits, _ := j.affinity.Match(node); !fits { // what cannot be parsed matches nothing
		return verdict{}
	}
	refuses := func(effects ...v1.TaintEffect) bool {
		_, found := schedulinghelper.FindMatchingUntoleratedTaint(klog.Background(), node.Spec.Taints, j.tolerations,
			func(t *v1.Taint) bool { return slices.Contains(effects, t.Effect) }, false)
		return found
	}
	return verdict{
		run:  !refuses(v1.TaintEffectNoExecute, v1.TaintEffectNoSchedule),
		stay: !refuses(v1.TaintEffectNoExecute),
	}
}

// tolerations are those of a template and what all pods of DaemonSets tolerate:
// whatever goes wrong with a node, they keep to it.
func tolerations(spec *v1.PodSpec) []v1.Toleration {
	out := slices.Clone(spec.Tolerations)
	add := func(effect v1.TaintEffect, keys ...string) {
		for _, key := range keys {
			t := v1.Toleration{Key: key, Operator: v1.TolerationOpExists, Effect: effect}
			i := slices.IndexFunc(out, func(o v1.Toleration) bool { return o.MatchToleration(&t) })
			if i >= 0 {
				out[i] = t // one with an end to it would not do
			} else {
				out = append(out, t)
			}
		}
	}
	add(v1.TaintEffectNoExecute, v1.TaintNodeNotReady, v1.TaintNodeUnreachable)
	add(v1.TaintEffectNoSchedule, v1.TaintNodeDiskPressure, v1.TaintNodeMemoryPressure, v1.TaintNodePIDPressure, v1.TaintNodeUnschedulable)
	if spec.HostNetwork {
		add(v1.TaintEffectNoSchedule, v1.TaintNodeNetworkUnavailable)
	}
	return out
}

// generation is the number of a set's template, "" when it has none.
func generation(set *appsv1.DaemonSet) string {
	n, err := strconv.ParseInt(set.Annotations[appsv1.DeprecatedTemplateGeneration], 10, 64)
	if err != nil {
		return ""
	}
	return strconv.FormatInt(n, 10)
}

// updated tells whether a pod is of the set's present template.
func updated(set *appsv1.DaemonSet, pod *v1.Pod, hash string) bool {
	g := generation(set)
	return pod.Labels[appsv1.DefaultDaemonSetUniqueLabelKey] == hash || g != "" && pod.Labels[generationLabel] == g
}

// newPod is a pod for a node. It asks the scheduler for that node, and is
// not bound to it: its resources are to be counted, and others preempted for it.
func newPod(set *appsv1.DaemonSet, hash, node string) *v1.Pod {
	pod := controller.NewPodFromTemplate(&set.Spec.Template, set, kind)
	pod.Spec.Tolerations = tolerations(&pod.Spec)
	if pod.Labels == nil {
		pod.Labels = map[string]string{}
	}
	if g := generation(set); g != "" {
		pod.Labels[generationLabel] = g
	}
	pod.Labels[appsv1.DefaultDaemonSetUniqueLabelKey] = hash
	if pod.Spec.Affinity == nil {
		pod.Spec.Affinity = &v1.Affinity{}
	}
	if pod.Spec.Affinity.NodeAffinity == nil {
		pod.Spec.Affinity.NodeAffinity = &v1.NodeAffinity{}
	}
	// What else was required of a node is met by this one.
	pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution = &v1.NodeSelector{
		NodeSelectorTerms: []v1.NodeSelectorTerm{{
			MatchFields: []v1.NodeSelectorRequirement{{Key: metav1.ObjectNameField, Operator: v1.NodeSelectorOpIn, Values: []string{node}}},
		}},
	}
	return pod
}

// target is the node that a pod is on or is meant for; "": nobody knows.
func target(pod *v1.Pod) string {
	if pod.Spec.NodeName != "" {
		return pod.Spec.NodeName
	}
	a := pod.Spec.Affinity
	if a == nil || a.NodeAffinity == nil || a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return ""
	}
	for _, term := range a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		for _, r := range term.MatchFields {
			if r.Key == metav1.ObjectNameField && r.Operator == v1.NodeSelectorOpIn {
				if len(r.Values) != 1 {
					return ""
				}
				return r.Values[0]
			}
		}
	}
	return ""
}
