// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
)

// byNode is an index of pods by the node that they are bound to.
const byNode = "node"

// IndexByNode adds an index of pods by node to their informer, unless it is there.
func IndexByNode(pods cache.SharedIndexInformer) error {
	if _, there := pods.GetIndexer().GetIndexers()[byNode]; there {
		return nil
	}
	err := pods.AddIndexers(cache.Indexers{byNode: func(o any) ([]string, error) {
		if pod, ok := o.(*v1.Pod); ok && pod.Spec.NodeName != "" {
			return []string{pod.Spec.NodeName}, nil
		}
		return nil, nil
	}})
	if err != nil {
		return fmt.Errorf("index by node: %w", err)
	}
	return nil
}

// PodsOn are the pods that are bound to a node.
func PodsOn(pods cache.SharedIndexInformer, node string) []*v1.Pod {
	list, err := pods.GetIndexer().ByIndex(byNode, node)
	if err != nil {
		panic(err) // a programming error: IndexByNode adds the index
	}
	out := make([]*v1.Pod, 0, len(list))
	for _, o := range list {
		out = append(out, o.(*v1.Pod))
	}
	return out
}

// NodeReady is a node's Ready condition, one without status when it has none.
func NodeReady(n *v1.Node) v1.NodeCondition {
	for _, c := range n.Status.Conditions {
		if c.Type == v1.NodeReady {
			return c
		}
	}
	return v1.NodeCondition{Type: v1.NodeReady}
}
