// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package nodeauth confines kubelets to what concerns their node: the node
// itself, its lease, and the pods bound to it with the secrets, config maps,
// claims, volumes and service accounts that these refer to.
//
// A Graph knows the relations, by informers and from the store of pods; the Authorizer decides reads and
// token requests by it. Writes are confined by the admission plugin
// NodeRestriction.
package nodeauth

import (
	"slices"
	"strings"
	"sync"
	"unique"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
)

// kind is a kind of object that nodes reach through others.
type kind byte

const (
	secret kind = iota
	configMap
	claim
	volume
	serviceAccount
	resourceClaim
	pod
	attachment
	slice
)

// object names an object of the graph.
type object struct {
	kind            kind
	namespace, name string
}

// shared returns o with strings that all equal objects share, and nothing else:
// the pods of a Deployment refer to the same things.
func (o object) shared() object {
	return object{o.kind, shared(o.namespace), shared(o.name)}
}

func shared(s string) string { return unique.Make(s).Value() }

// Graph relates objects to nodes. It is safe for concurrent use.
type Graph struct {
	mu sync.RWMutex
	// nodes counts, for each object, by how many pods (or attachments ...) of
	// each node it is referred to.
	nodes map[object]map[string]int
	// direct is what each pod, attachment or slice contributes to nodes, beside
	// itself.
	direct map[object]contribution
	// through leads from an object to the objects that refer to it in turn:
	// secret to volumes, volume to claims.
	through map[object][]object
	volumes map[string][]object // what a volume contributes to through

	recent [16][]object // see alike
	oldest int
}

type contribution struct {
	node string
	refs []object
}

// NewGraph returns an empty graph.
func NewGraph() *Graph {
	return &Graph{
		nodes: map[object]map[string]int{}, direct: map[object]contribution{},
		through: map[object][]object{}, volumes: map[string][]object{},
	}
}

// set replaces what source contributes. An empty node removes it.
func (g *Graph) set(source object, node string, refs []object) {
	g.mu.Lock()
	defer g.mu.Unlock()
	old := g.direct[source]
	if old.node == node && slices.Equal(old.refs, refs) {
		return
	}
	for _, o := range old.refs {
		if n := g.nodes[o]; n != nil {
			if n[old.node]--; n[old.node] <= 0 {
				delete(n, old.node)
			}
			if len(n) == 0 {
				delete(g.nodes, o)
			}
		}
	}
	if node == "" {
		delete(g.direct, source)
		return
	}
	refs = g.alike(refs)
	g.direct[source] = contribution{node, refs}
	for _, o := range refs {
		if g.nodes[o] == nil {
			g.nodes[o] = map[string]int{}
		}
		g.nodes[o][node]++
	}
}

// alike returns refs, or what lately came and equals it: the pods of a Deployment
// refer to the same things.
func (g *Graph) alike(refs []object) []object {
	if len(refs) == 0 {
		return nil
	}
	for _, known := range g.recent {
		if slices.Equal(known, refs) {
			return known
		}
	}
	for i := range refs {
		refs[i] = refs[i].shared()
	}
	g.recent[g.oldest] = refs
	g.oldest = (g.oldest + 1) % len(g.recent)
	return refs
}

// reaches reports whether o belongs to node.
func (g *Graph) reaches(node string, o object) bool {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.reachesLocked(node, o, 3)
}

// reachesLocked follows at most depth indirections: secret, volume, claim.
func (g *Graph) reachesLocked(node string, o object, depth int) bool {
	if g.nodes[o][node] > 0 || node != "" && g.direct[o].node == node {
		return true
	}
	if depth == 0 {
		return false
	}
	return slices.ContainsFunc(g.through[o], func(next object) bool { return g.reachesLocked(node, next, depth-1) })
}

// SetPod records what a pod refers to, without keeping any of p. A pod without a
// node refers to nothing, nor does a mirror pod: its node makes up its contents.
func (g *Graph) SetPod(p *corev1.Pod) {
	var refs []object
	if _, mirror := p.Annotations[corev1.MirrorPodAnnotationKey]; !mirror && p.Spec.NodeName != "" {
		refs = podRefs(p)
	}
	g.set(object{pod, shared(p.Namespace), strings.Clone(p.Name)}, shared(p.Spec.NodeName), refs)
}

// deletePod forgets a pod.
func (g *Graph) deletePod(p object) { g.set(p, "", nil) }

// retainPods forgets all pods but those in present.
func (g *Graph) retainPods(present map[object]struct{}) {
	var gone []object
	g.mu.RLock()
	for o := range g.direct {
		if _, ok := present[o]; !ok && o.kind == pod {
			gone = append(gone, o)
		}
	}
	g.mu.RUnlock()
	for _, o := range gone {
		g.deletePod(o)
	}
}

// SetAttachment records which node a volume attachment is for.
func (g *Graph) SetAttachment(a *storagev1.VolumeAttachment) {
	g.set(object{attachment, "", a.Name}, a.Spec.NodeName, nil)
}

// DeleteAttachment forgets a volume attachment.
func (g *Graph) DeleteAttachment(a *storagev1.VolumeAttachment) {
	g.set(object{attachment, "", a.Name}, "", nil)
}

// SetSlice records which node a resource slice is of.
func (g *Graph) SetSlice(s *resourcev1.ResourceSlice) {
	node := ""
	if s.Spec.NodeName != nil {
		node = *s.Spec.NodeName
	}
	g.set(object{slice, "", s.Name}, node, nil)
}

// DeleteSlice forgets a resource slice.
func (g *Graph) DeleteSlice(s *resourcev1.ResourceSlice) { g.set(object{slice, "", s.Name}, "", nil) }

// SetVolume records which claim a volume is bound to, and its secrets.
func (g *Graph) SetVolume(v *corev1.PersistentVolume) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.forgetVolume(v.Name)
	ref := v.Spec.ClaimRef
	if ref == nil {
		return
	}
	self := object{volume, "", v.Name}
	g.through[self] = []object{{claim, ref.Namespace, ref.Name}}
	g.volumes[v.Name] = volumeSecrets(v)
	for _, s := range g.volumes[v.Name] {
		g.through[s] = append(g.through[s], self)
	}
}

// DeleteVolume forgets a volume.
func (g *Graph) DeleteVolume(v *corev1.PersistentVolume) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.forgetVolume(v.Name)
}

func (g *Graph) forgetVolume(name string) {
	self := object{volume, "", name}
	delete(g.through, self)
	for _, s := range g.volumes[name] {
		rest := slices.DeleteFunc(slices.Clone(g.through[s]), func(o object) bool { return o == self })
		if len(rest) == 0 {
			delete(g.through, s)
		} else {
			g.through[s] = rest
		}
	}
	delete(g.volumes, name)
}
