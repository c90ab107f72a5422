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

// declared returns the features that the node's status declares. The scheduler binds pods that need
// a feature to nodes that declare it, and the API server passes WebSockets on to kubelets that
// support them. Feature gates in the configuration can disable each of these features.
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
