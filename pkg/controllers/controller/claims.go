// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
)

// ByClaim is an index of pods by the keys of the claims that their volumes name.
const ByClaim = "claim"

// IndexByClaim adds the index to an informer of pods, unless it is there.
func IndexByClaim(pods cache.SharedIndexInformer) error {
	if _, there := pods.GetIndexer().GetIndexers()[ByClaim]; there {
		return nil
	}
	err := pods.AddIndexers(cache.Indexers{ByClaim: func(o any) ([]string, error) {
		if pod, ok := o.(*v1.Pod); ok {
			return ClaimsOf(pod), nil
		}
		return nil, nil
	}})
	if err != nil {
		return fmt.Errorf("index by claim: %w", err)
	}
	return nil
}

// ClaimsOf are the keys of the claims that a pod's volumes name.
func ClaimsOf(pod *v1.Pod) []string {
	var keys []string
	for i := range pod.Spec.Volumes {
		switch v := &pod.Spec.Volumes[i]; {
		case v.PersistentVolumeClaim != nil:
			keys = append(keys, pod.Namespace+"/"+v.PersistentVolumeClaim.ClaimName)
		case v.Ephemeral != nil:
			keys = append(keys, pod.Namespace+"/"+pod.Name+"-"+v.Name)
		}
	}
	return keys
}

// PodsOfClaim are the pods whose volumes name a claim.
func PodsOfClaim(pods cache.Indexer, claim string) ([]*v1.Pod, error) {
	found, err := pods.ByIndex(ByClaim, claim)
	if err != nil {
		return nil, fmt.Errorf("pods by claim: %w", err)
	}
	out := make([]*v1.Pod, len(found))
	for i, o := range found {
		out[i] = o.(*v1.Pod)
	}
	return out, nil
}
