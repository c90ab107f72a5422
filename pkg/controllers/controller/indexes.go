// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

const (
	// byNode is the name of the index of pods by the name of the node that they are bound to.
	byNode = "node"
	// ByClaim is the name of the index of pods by the keys of the PersistentVolumeClaims in their
	// volumes.
	ByClaim = "claim"
	// ByController is the name of the index of objects by the UID of their controlling owner.
	// Objects without a controlling owner are found with the value Orphans(namespace).
	ByController = "controller"
)

// addIndex adds an index to an informer, unless the informer has an index of this name already.
func addIndex(informer cache.SharedIndexInformer, name string, f cache.IndexFunc) error {
	if _, exists := informer.GetIndexer().GetIndexers()[name]; exists {
		return nil
	}
	if err := informer.AddIndexers(cache.Indexers{name: f}); err != nil {
		return fmt.Errorf("index by %s: %w", name, err)
	}
	return nil
}

// IndexByNode adds the index that PodsOnNode uses to the informer of pods.
func IndexByNode(pods cache.SharedIndexInformer) error {
	return addIndex(pods, byNode, func(o any) ([]string, error) {
		if pod, ok := o.(*v1.Pod); ok && pod.Spec.NodeName != "" {
			return []string{pod.Spec.NodeName}, nil
		}
		return nil, nil
	})
}

// PodsOnNode returns the pods that are bound to a node.
func PodsOnNode(pods cache.SharedIndexInformer, node string) []*v1.Pod {
	list, err := pods.GetIndexer().ByIndex(byNode, node)
	if err != nil {
		panic(err) // only a programming error leads here: IndexByNode was not called
	}
	return typedList[*v1.Pod](list)
}

// IndexByClaim adds the index ByClaim to the informer of pods.
func IndexByClaim(pods cache.SharedIndexInformer) error {
	return addIndex(pods, ByClaim, func(o any) ([]string, error) {
		if pod, ok := o.(*v1.Pod); ok {
			return ClaimKeys(pod), nil
		}
		return nil, nil
	})
}

// ClaimKeys returns the keys of the PersistentVolumeClaims that a pod's volumes name.
func ClaimKeys(pod *v1.Pod) []string {
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

// PodsOfClaim returns the pods whose volumes name the PersistentVolumeClaim with the key claim.
func PodsOfClaim(pods cache.Indexer, claim string) ([]*v1.Pod, error) {
	list, err := pods.ByIndex(ByClaim, claim)
	if err != nil {
		return nil, fmt.Errorf("pods by claim: %w", err)
	}
	return typedList[*v1.Pod](list), nil
}

// Orphans returns the value under which the index ByController has the objects of a namespace that
// have no controlling owner.
func Orphans(namespace string) string { return "orphans/" + namespace }

// IndexByController adds the index ByController to an informer.
func IndexByController(informer cache.SharedIndexInformer) error {
	return addIndex(informer, ByController, func(obj any) ([]string, error) {
		m, ok := obj.(metav1.Object)
		if !ok {
			return nil, fmt.Errorf("%T has no metadata", obj)
		}
		if ref := metav1.GetControllerOfNoCopy(m); ref != nil {
			return []string{string(ref.UID)}, nil
		}
		return []string{Orphans(m.GetNamespace())}, nil
	})
}

// Candidates returns the objects to pass to Claim for an owner: the objects that the owner
// controls, and the objects in its namespace that have no controlling owner.
func Candidates[T any](informer cache.SharedIndexInformer, owner metav1.Object) ([]T, error) {
	var out []T
	for _, value := range []string{string(owner.GetUID()), Orphans(owner.GetNamespace())} {
		list, err := informer.GetIndexer().ByIndex(ByController, value)
		if err != nil {
			return nil, fmt.Errorf("objects by controller: %w", err)
		}
		out = append(out, typedList[T](list)...)
	}
	return out, nil
}

func typedList[T any](list []any) []T {
	out := make([]T, len(list))
	for i, o := range list {
		out[i] = o.(T)
	}
	return out
}
