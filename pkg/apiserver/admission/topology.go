// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validation/path"
	"k8s.io/apiserver/pkg/admission"

	"keelson.dev/apiserver/store"
)

// topologyLabels is the plugin PodTopologyLabels, which copies the labels for zone and region from
// nodes to pods.
type topologyLabels struct {
	*admission.Handler
	nodes func() store.Reader
}

func newTopologyLabels(deps Deps) (admission.Interface, error) {
	return &topologyLabels{admission.NewHandler(admission.Create), deps.Nodes}, nil
}

// Admit adds the labels of the node to a binding, from which they are copied to the pod. It also
// adds them to a pod that is created with a node.
func (p *topologyLabels) Admit(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if r := a.GetResource(); r.Resource != "pods" || r.Group != "" {
		return nil
	}
	node, to := "", (*map[string]string)(nil)
	switch obj := a.GetObject().(type) {
	case *corev1.Binding:
		if a.GetSubresource() == "binding" && obj.Target.Kind == "Node" {
			node, to = obj.Target.Name, &obj.Labels
		}
	case *corev1.Pod:
		if a.GetSubresource() == "" {
			node, to = obj.Spec.NodeName, &obj.Labels
		}
	}
	// If the name of the node is invalid, validation rejects the request later.
	if node == "" || len(path.IsValidPathSegmentName(node)) > 0 {
		return nil
	}
	n, err := p.nodes().Get(ctx, node, "0") // "0" reads the cache, which need not decode the node
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, key := range []string{corev1.LabelTopologyZone, corev1.LabelTopologyRegion} {
		value, ok := n.Labels[key]
		if !ok {
			continue
		}
		if *to == nil {
			*to = map[string]string{}
		}
		(*to)[key] = value
	}
	return nil
}
