// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package nodeauth limits kubelets to the objects of their node: the node itself, its lease, the
// pods bound to it, and the secrets, config maps, claims, volumes and service accounts that these
// refer to.
//
// A Graph has the relations, from informers and from the store of pods. The Authorizer uses it to
// decide reads and token requests. The admission plugin NodeRestriction limits writes.
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

// kind is a kind of object that nodes reach through other objects.
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

// shared returns o with strings that equal objects share. The pods of a Deployment refer to the
// same objects.
func (o object) shared() object {
	return object{o.kind, shared(o.namespace), shared(o.name)}
}

func shared(s string) string { return unique.Make(s).Value() }

// Graph records which objects belong to which nodes. It is safe for concurrent use.
type Graph struct {
	mu sync.RWMutex
	// nodes counts, by object and node, how many pods (or attachments, or slices) of the node refer
	// to the object.
	nodes map[object]map[string]int
	// direct is the node and the objects that each pod, attachment or slice adds to nodes.
	direct map[object]contribution
	// through has, by object, the objects that refer to it: the volumes of a secret, the claim of a
	// volume.
	through map[object][]object
	volumes map[string][]object // by volume: the objects whose entry in through contains the volume

	// unread are the pods, by node and key, that changed since their node's last request. They are
	// processed when the node makes a request, because few changes of pods concern their
	// references, and many nodes never ask this server.
	unread map[string]map[string]*store.Record
	read   func(*store.Record) *corev1.Pod // returns nil if the pod cannot be decoded

	recent [16][]object // slices that alike has returned recently
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

// set replaces the contribution of source. An empty node removes it.
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

// alike returns a slice equal to refs that it has seen recently, or else refs. The pods of a
// Deployment refer to the same objects.
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

// reachesLocked does the work of reaches. It follows at most depth references, such as from a
// secret to a volume to a claim.
func (g *Graph) reachesLocked(node string, o object, depth int) bool {
	if g.nodes[o][node] > 0 || node != "" && g.direct[o].node == node {
		return true
	}
	if depth == 0 {
		return false
	}
	return slices.ContainsFunc(g.through[o], func(next object) bool { return g.reachesLocked(node, next, depth-1) })
}

// readWith sets the function that decodes pods. The graph never makes two calls of it at a time.
func (g *Graph) readWith(read func(*store.Record) *corev1.Pod) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.read = read
}

// readPods processes the unread pods of a node. It holds the lock throughout, so that no reader
// sees a part of them.
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

// setPod records the references of a pod, and keeps nothing of p. A mirror pod has no references,
// because its node chooses its contents. A pod that cannot be decoded (nil) has none either,
// because a kubelet cannot decode it.
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

// pod processes the state of a pod. A pod without a node has no references.
func (g *Graph) pod(rec *store.Record) {
	node, o := nodeOf(rec), podOf(rec.Key)
	g.mu.Lock()
	defer g.mu.Unlock()
	if known := g.direct[o].node; known != "" && known != node {
		g.setLocked(o, "", nil) // the known node is that of an earlier pod with this name
	}
	if node == "" {
		return
	}
	if g.unread[node] == nil {
		g.unread[shared(node)] = map[string]*store.Record{}
	}
	g.unread[node][rec.Key] = rec
}

// deletePod removes a pod whose last state is rec.
func (g *Graph) deletePod(rec *store.Record) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.setLocked(podOf(rec.Key), "", nil)
	node := nodeOf(rec)
	delete(g.unread[node], rec.Key)
	if len(g.unread[node]) == 0 {
		delete(g.unread, node) // remove the entry, because the node may be deleted too
	}
}

// retainPods removes all pods except those in present, which maps keys to nodes.
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

// SetAttachment records the node of a volume attachment.
func (g *Graph) SetAttachment(a *storagev1.VolumeAttachment) {
	g.set(object{attachment, "", a.Name}, a.Spec.NodeName, nil)
}

// DeleteAttachment removes a volume attachment.
func (g *Graph) DeleteAttachment(a *storagev1.VolumeAttachment) {
	g.set(object{attachment, "", a.Name}, "", nil)
}

// SetSlice records the node of a resource slice.
func (g *Graph) SetSlice(s *resourcev1.ResourceSlice) {
	node := ""
	if s.Spec.NodeName != nil {
		node = *s.Spec.NodeName
	}
	g.set(object{slice, "", s.Name}, node, nil)
}

// DeleteSlice removes a resource slice.
func (g *Graph) DeleteSlice(s *resourcev1.ResourceSlice) { g.set(object{slice, "", s.Name}, "", nil) }

// SetVolume records the claim and the secrets of a volume.
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

// DeleteVolume removes a volume.
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
