// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/client-go/kubernetes"
	"k8s.io/component-helpers/nodedeclaredfeatures"
	"k8s.io/component-helpers/nodedeclaredfeatures/types"

	"keelson.dev/keelson/pkg/daemon"
)

// declaredFeatures rejects updates of a bound pod that need a feature which the pod's node does not
// declare, because the node's kubelet could not apply the update.
type declaredFeatures struct {
	client kubernetes.Interface
	ours   *version.Version
}

func newDeclaredFeatures(deps Deps) (admission.Interface, error) {
	ours, err := version.Parse(daemon.Version)
	if err != nil {
		return nil, fmt.Errorf("own version: %w", err)
	}
	p := &declaredFeatures{deps.Client, ours}
	return &podPlugin{Handler: admission.NewHandler(admission.Update), subresources: []string{"resize"},
		validate: p.validate}, nil
}

func (p *declaredFeatures) validate(ctx context.Context, a admission.Attributes, pod *corev1.Pod) error {
	old, err := podBefore(a)
	if err != nil {
		return err
	}
	if pod.Spec.NodeName == "" || pod.Generation == old.Generation {
		return nil
	}
	needs, err := nodedeclaredfeatures.DefaultFramework.InferForPodUpdate(
		&types.PodInfo{Spec: &old.Spec, Status: &old.Status}, &types.PodInfo{Spec: &pod.Spec, Status: &pod.Status}, p.ours)
	if err != nil {
		return admission.NewForbidden(a, fmt.Errorf("failed to infer pod capability requirements: %w", err))
	}
	if needs.IsEmpty() {
		return nil
	}
	node, err := boundNode(ctx, a, p.client, pod)
	if err != nil {
		return err
	}
	match, err := nodedeclaredfeatures.DefaultFramework.MatchNode(needs, node)
	if err != nil {
		return admission.NewForbidden(a, fmt.Errorf("failed to match pod requirements against node %q: %w", node.Name, err))
	}
	if !match.IsMatch {
		return admission.NewForbidden(a, fmt.Errorf("pod update requires features %s which are not available on node %q",
			strings.Join(match.UnsatisfiedRequirements, ", "), node.Name))
	}
	return nil
}
