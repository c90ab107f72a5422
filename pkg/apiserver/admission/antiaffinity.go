// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/admission"
)

// newAntiAffinity returns the plugin LimitPodHardAntiAffinityTopology. It rejects required
// anti-affinity with a topology key other than kubernetes.io/hostname.
func newAntiAffinity(Deps) (admission.Interface, error) {
	return &podPlugin{
		Handler: admission.NewHandler(admission.Create, admission.Update),
		validate: func(_ context.Context, a admission.Attributes, pod *corev1.Pod) error {
			if pod.Spec.Affinity == nil || pod.Spec.Affinity.PodAntiAffinity == nil {
				return nil
			}
			for _, term := range pod.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution {
				if term.TopologyKey != corev1.LabelHostname {
					return apierrors.NewForbidden(a.GetResource().GroupResource(), pod.Name,
						fmt.Errorf("affinity.PodAntiAffinity.RequiredDuringScheduling has TopologyKey %v "+
							"but only key %v is allowed", term.TopologyKey, corev1.LabelHostname))
				}
			}
			return nil
		},
	}, nil
}
