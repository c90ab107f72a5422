// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package nodeauth limits the rights of kubelets to the objects of their node: the node itself, its
// lease, the pods bound to it, and the secrets, config maps, claims, volumes and service accounts
// to which these pods refer.
//
// A Graph has the references between these objects, from informers and from the store of pods. The
// Authorizer uses it to decide reads and token requests. The admission plugin NodeRestriction
// limits writes.
package nodeauth

import (
	"maps"
	"slices"
	"sync"
	"unique"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"

	"keelson.dev/apiserver/store"
)

// kind is the kind of an object in a Graph, which relates objects to nodes.
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
	podCertificate
)

// object is the kind, namespace and name of an object in a Graph, which relates objects to nodes.
type object struct {
	kind            kind
	namespace, name string
}

// shared returns o with interned strings. It saves memory, because the pods of a Deployment refer
// to the same objects.
func (o object) shared() object {
	return object{o.kind, shared(o.namespace), shared(o.name)}
}

func shared(s string) string { return unique.Make(s).Value() }

// Graph records which objects belong to which nodes: those that pods of the node refer to, directly
// or through other objects. It is safe for concurrent use.
type Graph struct {
	mu sync.RWMutex
	// nodes has the number of sources that refer to an object, by object and node. A source is a pod,
	// volume attachment, resource slice or pod certificate request of the node.
	nodes map[object]map[string]int
	// direct has the node of each source, and the objects that the source refers to.
	direct map[object]contribution
	// through has, by object, the objects that refer to it: by secret the volumes that use it, and
	// by volume its claim.
	through map[object][]object
	volumes map[string][]object // by volume, the keys of through whose value contains the volume

	// unread are pods that have changed since the last request of their node, by node and key. The
	// graph reads their references only when the node sends a request, because most changes do not
	// change references, and many nodes never send requests to this server.
	unread map[string]map[string]*store.Record
	read   func(*store.Record) *corev1.Pod // decodes a pod; returns nil if it cannot be decoded

	recent [16][]object // slices that the method alike has stored recently
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

// set replaces the node and references of source. It removes source if node is empty.
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

// alike returns an equal slice that was stored recently, or else stores and returns refs. It saves
// memory, because the pods of a Deployment refer to the same objects.
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

// reaches reports whether o belongs to node: it is used by a pod or another object of the node.
func (g *Graph) reaches(node string, o object) bool {
	g.readPods(node)
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.reachesLocked(node, o, 3)
}

// reachesLocked reports whether o belongs to node, either directly or over at most depth references
// in g.through, such as from a secret to a volume and from the volume to a claim.
func (g *Graph) reachesLocked(node string, o object, depth int) bool {
	if g.nodes[o][node] > 0 || node != "" && g.direct[o].node == node {
		return true
	}
	if depth == 0 {
		return false
	}
	return slices.ContainsFunc(g.through[o], func(next object) bool { return g.reachesLocked(node, next, depth-1) })
}

// readWith sets the function that decodes pods. The graph never calls it concurrently.
func (g *Graph) readWith(read func(*store.Record) *corev1.Pod) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.read = read
}

// readPods reads the references of the unread pods of a node. It holds the lock until all are read,
// so that concurrent requests see all of them or none.
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

// setPod sets the references of the pod o, which is p when decoded. It does not retain p. A mirror
// pod has no references, because the node itself chooses its contents. A pod that cannot be decoded
// (p is nil) has none, because the kubelet cannot decode it either.
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

// pod records that a pod was created or changed. rec is its new state.
func (g *Graph) pod(rec *store.Record) {
	node, o := nodeOf(rec), podOf(rec.Key)
	g.mu.Lock()
	defer g.mu.Unlock()
	if known := g.direct[o].node; known != "" && known != node {
		g.setLocked(o, "", nil) // another pod with this name was deleted, and the watch missed the deletion
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
		delete(g.unread, node) // no empty map remains for a node that may be deleted
	}
}

// retainPods removes all pods except those in present, which has the node of each pod by key.
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

// SetPodCertificate records the node of a pod certificate request.
func (g *Graph) SetPodCertificate(r *certificatesv1.PodCertificateRequest) {
	g.set(object{podCertificate, r.Namespace, r.Name}, string(r.Spec.NodeName), nil)
}

// DeletePodCertificate removes a pod certificate request.
func (g *Graph) DeletePodCertificate(r *certificatesv1.PodCertificateRequest) {
	g.set(object{podCertificate, r.Namespace, r.Name}, "", nil)
}

// SetVolume records the claim of a volume and the secrets that a node needs to mount it.
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
