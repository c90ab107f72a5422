// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeauth

import (
	"unique"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Pod is what the graph needs of a pod: which node it is on and what it refers to.
// A server holds every pod of the cluster this way.
type Pod struct {
	self     object
	revision string
	node     string
	refs     []object
}

// PodOf returns what the graph needs of p. A mirror pod refers to nothing: its node
// makes up its contents. The result shares no memory with p.
func PodOf(p *corev1.Pod) *Pod {
	out := &Pod{self: object{pod, p.Namespace, p.Name}.shared(), revision: p.ResourceVersion, node: shared(p.Spec.NodeName)}
	if _, mirror := p.Annotations[corev1.MirrorPodAnnotationKey]; mirror {
		return out
	}
	refs := podRefs(p)
	out.refs = make([]object, len(refs))
	for i, o := range refs {
		out.refs[i] = o.shared()
	}
	return out
}

// GetObjectMeta implements metav1.ObjectMetaAccessor, for informers.
func (p *Pod) GetObjectMeta() metav1.Object {
	return &metav1.ObjectMeta{Namespace: p.self.namespace, Name: p.self.name, ResourceVersion: p.revision}
}

// shared returns o with strings that all equal objects share: the pods of a
// Deployment refer to the same things.
func (o object) shared() object {
	return object{o.kind, shared(o.namespace), shared(o.name)}
}

func shared(s string) string { return unique.Make(s).Value() }
