// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"k8s.io/component-helpers/nodedeclaredfeatures"
	"k8s.io/component-helpers/nodedeclaredfeatures/features/extendwebsocketstokubelet"
	"k8s.io/component-helpers/nodedeclaredfeatures/features/inplacepodresize"
	"k8s.io/component-helpers/nodedeclaredfeatures/features/restartallcontainers"
	"k8s.io/component-helpers/nodedeclaredfeatures/types"
)

// declared are the features that the node's status tells of: pods that need one are bound to nodes that have it, and the API
// server hands WebSockets on to kubelets that take them. Gates of the configuration take away what is here.
func declared(gates map[string]bool) []string {
	here := types.FeatureGateMap{}
	for _, f := range []types.Feature{
		restartallcontainers.Feature, extendwebsocketstokubelet.Feature,
		inplacepodresize.PodLevelResourcesResizeFeature, inplacepodresize.NonSidecarInitContainerResizeFeature,
	} {
		for _, gate := range f.Requirements().EnabledFeatureGates {
			on, set := gates[gate]
			here[gate] = on || !set
		}
	}
	return nodedeclaredfeatures.DefaultFramework.DiscoverNodeFeatures(&types.NodeConfiguration{FeatureGates: here})
}
