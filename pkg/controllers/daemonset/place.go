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

// generationLabel is the label with the number of the template in pods that were created by
// Kubernetes versions without revisions. The DaemonSet has the same number in an annotation.
const generationLabel = "pod-template-generation"

// verdict is the result of evaluate: run means that the DaemonSet should run a pod on a node, stay
// that an existing pod may stay there.
type verdict struct{ run, stay bool }

// eligibility decides which nodes are eligible for the pods of a DaemonSet.
type eligibility struct {
	node        string // the only eligible node, if the template sets spec.nodeName
	affinity    nodeaffinity.RequiredNodeAffinity
	tolerations []v1.Toleration
}

func newEligibility(set *appsv1.DaemonSet) *eligibility {
	spec := &set.Spec.Template.Spec
	return &eligibility{
		node:        spec.NodeName,
		affinity:    nodeaffinity.GetRequiredNodeAffinity(&v1.Pod{Spec: *spec}),
		tolerations: tolerations(spec),
	}
}

// evaluate reports whether a pod of the DaemonSet should run on a node and may stay there. For nil
// it returns false for both. It considers only the node's name, labels and taints, not whether the
// node is ready or has resources. An existing pod stays on a tainted node unless the taint's effect
// is NoExecute.
func (j *eligibility) evaluate(node *v1.Node) verdict {
	if node == nil {
		return verdict{}
	}
	if j.node != "" && j.node != node.Name {
		return verdict{}
	}
	if fits, _ := j.affinity.Match(node); !fits { // an invalid affinity matches no node
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

// tolerations returns the tolerations of a template and those that all daemon pods have, which keep
// daemon pods running on nodes with problems.
func tolerations(spec *v1.PodSpec) []v1.Toleration {
	out := slices.Clone(spec.Tolerations)
	add := func(effect v1.TaintEffect, keys ...string) {
		for _, key := range keys {
			t := v1.Toleration{Key: key, Operator: v1.TolerationOpExists, Effect: effect}
			i := slices.IndexFunc(out, func(o v1.Toleration) bool { return o.MatchToleration(&t) })
			if i >= 0 {
				out[i] = t // replace the template's toleration, because it may have tolerationSeconds
			} else {
				out = append(out, t)
			}
		}
	}
	add(v1.TaintEffectNoExecute, v1.TaintNodeNotReady, v1.TaintNodeUnreachable)
	add(v1.TaintEffectNoSchedule, v1.TaintNodeDiskPressure, v1.TaintNodeMemoryPressure, v1.TaintNodePIDPressure,
		v1.TaintNodeUnschedulable)
	if spec.HostNetwork {
		add(v1.TaintEffectNoSchedule, v1.TaintNodeNetworkUnavailable)
	}
	return out
}

// generation returns the number of the DaemonSet's template from an annotation, or "" if the set
// has no such annotation.
func generation(set *appsv1.DaemonSet) string {
	n, err := strconv.ParseInt(set.Annotations[appsv1.DeprecatedTemplateGeneration], 10, 64)
	if err != nil {
		return ""
	}
	return strconv.FormatInt(n, 10)
}

// updated reports whether a pod was created from the DaemonSet's present template, whose hash is
// given.
func updated(set *appsv1.DaemonSet, pod *v1.Pod, hash string) bool {
	g := generation(set)
	return pod.Labels[appsv1.DefaultDaemonSetUniqueLabelKey] == hash || g != "" && pod.Labels[generationLabel] == g
}

// newPod returns a pod with a node affinity for one node. It does not set spec.nodeName, so that
// the scheduler checks the node's resources and can preempt other pods.
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
	// Replace the node affinity of the template. The node meets it, because the function evaluate
	// has checked that.
	pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution = &v1.NodeSelector{
		NodeSelectorTerms: []v1.NodeSelectorTerm{{
			MatchFields: []v1.NodeSelectorRequirement{
				{Key: metav1.ObjectNameField, Operator: v1.NodeSelectorOpIn, Values: []string{node}}},
		}},
	}
	return pod
}

// target returns the name of the node that a pod is bound to or has an affinity for, or "" if there
// is no such node.
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
