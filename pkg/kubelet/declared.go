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

// declared returns the features that the Node's status declares. The scheduler binds pods that need
// a feature only to nodes that declare the feature, and the API server passes WebSocket connections
// on only to kubelets that declare support for them. Each of these features can be disabled by a
// feature gate in the configuration.
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
