// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/component-helpers/nodedeclaredfeatures"
	"k8s.io/component-helpers/nodedeclaredfeatures/types"
)

// TestDeclared checks that the node declares the features that pods may require, except those that
// the configuration disables.
func TestDeclared(t *testing.T) {
	pod := &v1.PodSpec{Containers: []v1.Container{
		{RestartPolicyRules: []v1.ContainerRestartRule{{Action: v1.ContainerRestartRuleActionRestartAllContainers}}}}}
	needs, err := nodedeclaredfeatures.DefaultFramework.InferForPodScheduling(&types.PodInfo{Spec: pod},
		version.MustParse("1.37.0"))
	if err != nil || needs.IsEmpty() {
		t.Fatalf("the pod requires no feature: %v", err)
	}
	fits := func(gates map[string]bool) bool {
		n := &v1.Node{}
		n.Status.DeclaredFeatures = declared(gates)
		match, err := nodedeclaredfeatures.DefaultFramework.MatchNode(needs, n)
		return err == nil && match.IsMatch
	}
	if !fits(nil) {
		t.Error("a pod that restarts all its containers finds no node")
	}
	if fits(map[string]bool{"RestartAllContainersOnContainerExits": false}) {
		t.Error("the gate is off")
	}
	want := []string{"ExtendWebSocketsToKubelet", "InPlacePodLevelResourcesVerticalScaling",
		"InPlacePodVerticalScalingInitContainers", "RestartAllContainersOnContainerExits"}
	if got := declared(nil); !slices.Equal(got, want) {
		t.Errorf("declared %v, want %v", got, want)
	}
}
