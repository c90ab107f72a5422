// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/utils/ptr"
)

// newTaintNodes returns the plugin TaintNodesByCondition, which adds the taint not-ready to new
// nodes. The node controller removes the taint when the node is ready.
func newTaintNodes(Deps) (admission.Interface, error) {
	return &typed[*corev1.Node]{
		Handler: admission.NewHandler(admission.Create), resource: "nodes",
		admit: func(_ context.Context, _ admission.Attributes, node *corev1.Node) error {
			notReady := corev1.Taint{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule}
			if !slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.MatchTaint(&notReady) }) {
				node.Spec.Taints = append(node.Spec.Taints, notReady)
			}
			return nil
		},
	}, nil
}

// newTolerationSeconds returns the plugin DefaultTolerationSeconds. It adds tolerations to pods, by
// which they stay for a limited time on a node that is not ready or not reachable.
func newTolerationSeconds(deps Deps) (admission.Interface, error) {
	return &podPlugin{
		Handler: admission.NewHandler(admission.Create, admission.Update),
		admit: func(_ context.Context, _ admission.Attributes, pod *corev1.Pod) error {
			for _, taint := range []struct {
				key     string
				seconds int64
			}{{corev1.TaintNodeNotReady, deps.NotReadySeconds}, {corev1.TaintNodeUnreachable, deps.UnreachableSeconds}} {
				if !tolerates(pod.Spec.Tolerations, taint.key) {
					pod.Spec.Tolerations = append(pod.Spec.Tolerations, corev1.Toleration{
						Key: taint.key, Operator: corev1.TolerationOpExists,
						Effect: corev1.TaintEffectNoExecute, TolerationSeconds: ptr.To(taint.seconds),
					})
				}
			}
			return nil
		},
	}, nil
}

// newResourceToleration returns the plugin ExtendedResourceToleration. Nodes with an extended
// resource may have a taint with the name of the resource. The plugin adds tolerations for these
// taints to pods that request the resource.
func newResourceToleration(Deps) (admission.Interface, error) {
	return &podPlugin{
		Handler: admission.NewHandler(admission.Create, admission.Update),
		admit: func(_ context.Context, _ admission.Attributes, pod *corev1.Pod) error {
			asked := map[string]bool{}
			for _, list := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
				for i := range list {
					for name := range list[i].Resources.Requests {
						if extended(name) {
							asked[string(name)] = true
						}
					}
				}
			}
			for _, name := range slices.Sorted(maps.Keys(asked)) {
				want := corev1.Toleration{Key: name, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}
				same := func(t corev1.Toleration) bool { return t.MatchToleration(&want) }
				if i := slices.IndexFunc(pod.Spec.Tolerations, same); i >= 0 {
					pod.Spec.Tolerations[i] = want
					continue
				}
				pod.Spec.Tolerations = append(pod.Spec.Tolerations, want)
			}
			return nil
		},
	}, nil
}

// extended reports whether a resource is an extended resource.
func extended(name corev1.ResourceName) bool {
	s := string(name)
	return strings.Contains(s, "/") && !strings.Contains(s, corev1.ResourceDefaultNamespacePrefix) &&
		!strings.HasPrefix(s, corev1.DefaultResourceRequestsPrefix) &&
		len(validation.IsQualifiedName(corev1.DefaultResourceRequestsPrefix+s)) == 0
}

func tolerates(list []corev1.Toleration, key string) bool {
	return slices.ContainsFunc(list, func(t corev1.Toleration) bool {
		return (t.Key == key || t.Key == "") && (t.Effect == corev1.TaintEffectNoExecute || t.Effect == "")
	})
}
