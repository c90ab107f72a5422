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
	"maps"
	"slices"
	"sync"
	"unique"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"

	"keelson.dev/apiserver/store"
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

	// unread are the pods, by node and key, that came since their node asked last.
	// Few changes of a pod concern what it refers to, and many pods are of nodes
	// that never ask this server: read makes them part of the graph when they do.
	unread map[string]map[string]*store.Record
	read   func(*store.Record) *corev1.Pod // nil when the pod is not understood

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
		unread: map[string]map[string]*store.Record{},
	}
}

// set replaces what source contributes. An empty node removes it.
func (g *Graph) set(source object, node string, refs []object) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.setLocked(source, node, refs)
}

func (g *Graph) setLocked(source object, node string, refs []object) {
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
	g.readPods(node)
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

// readWith has pods read by read, which Graph calls one at a time.
func (g *Graph) readWith(read func(*store.Record) *corev1.Pod) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.read = read
}

// readPods makes the pods of a node that are unread part of the graph. The lock is
// held for all of them: nobody sees a part, and none is deleted meanwhile.
func (g *Graph) readPods(node string) {
	g.mu.RLock()
	n := len(g.unread[node])
	g.mu.RUnlock()
	if n == 0 {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for key, rec := range g.unread[node] {
		g.setPod(podOf(key), g.read(rec))
	}
	clear(g.unread[node])
}

// setPod records what a pod refers to, without keeping any of p. A mirror pod refers to
// nothing: its node makes up its contents. By one that is not understood (nil) its node
// reaches nothing: a kubelet cannot read it either.
func (g *Graph) setPod(o object, p *corev1.Pod) {
	if p == nil || p.Spec.NodeName == "" {
		g.setLocked(o, "", nil)
		return
	}
	var refs []object
	if _, mirror := p.Annotations[corev1.MirrorPodAnnotationKey]; !mirror {
		refs = podRefs(p)
	}
	o.namespace = shared(o.namespace)
	g.setLocked(o, shared(p.Spec.NodeName), refs)
}

// pod takes over the state of a pod. Without a node it refers to nothing.
func (g *Graph) pod(rec *store.Record) {
	node, o := nodeOf(rec), podOf(rec.Key)
	g.mu.Lock()
	defer g.mu.Unlock()
	if known := g.direct[o].node; known != "" && known != node {
		g.setLocked(o, "", nil) // another pod had this name
	}
	if node == "" {
		return
	}
	if g.unread[node] == nil {
		g.unread[shared(node)] = map[string]*store.Record{}
	}
	g.unread[node][rec.Key] = rec
}

// deletePod forgets a pod, of which rec is the last state.
func (g *Graph) deletePod(rec *store.Record) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.setLocked(podOf(rec.Key), "", nil)
	node := nodeOf(rec)
	delete(g.unread[node], rec.Key)
	if len(g.unread[node]) == 0 {
		delete(g.unread, node) // it may have gone too
	}
}

// retainPods forgets all pods but those in present, by key with their nodes.
func (g *Graph) retainPods(present map[string]string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for o, c := range g.direct {
		if o.kind == pod && present[o.namespace+"/"+o.name] != c.node {
			g.setLocked(o, "", nil)
		}
	}
	for node, pods := range g.unread {
		maps.DeleteFunc(pods, func(key string, _ *store.Record) bool { return present[key] != node })
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
