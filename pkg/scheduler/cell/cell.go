// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package cell

import (
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson.dev/scheduling"
)

// Cell is the scheduler's state of all nodes, and of the pods that are on them.
type Cell struct {
	generation uint64
	nodes      []*scheduling.Node // nodes[i].Index is i
	byName     map[string]*scheduling.Node
	pods       map[types.UID]*placed
	assumed    int // number of pods that are assumed on their node but not shown there by the watch yet
	// waiting has the pods that are bound to a node which the cell does not have, by node name and
	// UID.
	waiting   map[string]map[types.UID]*scheduling.Pod
	groups    map[string]*scheduling.Group // groups (of pods that are equal for affinity) with placed pods, by key
	groupKeys map[*scheduling.Group]string
	members   map[*scheduling.Group]int      // number of placed pods in each group
	onNodes   map[*scheduling.Group]struct{} // groups that have a pod on an existing node
	held      [scheduling.TermKinds]map[string]*scheduling.HeldTerm
	images    map[string]imageState
	claims    map[string]map[types.UID]struct{}
	changes   journal
	// topologies are computed on demand and dropped when nodes, labels or taints change.
	topologies map[string]*scheduling.Topology
}

// imageState has the number of nodes with an image. version is the generation of the cell (of the
// picture of all nodes and pods) at which that number last changed.
type imageState struct {
	nodes   int
	version uint64
}

type placed struct {
	pod     *scheduling.Pod
	node    string
	assumed bool
}

// New returns an empty cell: a picture of a cluster without nodes and pods.
func New() *Cell {
	return &Cell{
		byName: map[string]*scheduling.Node{}, pods: map[types.UID]*placed{},
		waiting: map[string]map[types.UID]*scheduling.Pod{},
		groups:  map[string]*scheduling.Group{}, groupKeys: map[*scheduling.Group]string{},
		members: map[*scheduling.Group]int{},
		onNodes: map[*scheduling.Group]struct{}{},
		images:  map[string]imageState{}, claims: map[string]map[types.UID]struct{}{},
		topologies: map[string]*scheduling.Topology{},
	}
}

// Nodes returns all nodes. The caller must not change the slice.
func (c *Cell) Nodes() []*scheduling.Node { return c.nodes }

// NodeByName returns a node, or nil if it does not exist.
func (c *Cell) NodeByName(name string) *scheduling.Node { return c.byName[name] }

// Groups returns the groups of pods (pods that affinity terms and spread constraints treat alike)
// that have at least one pod on a node.
func (c *Cell) Groups() map[*scheduling.Group]struct{} { return c.onNodes }

// Held returns the affinity terms of one kind that the pods on nodes have, by the key of the term.
func (c *Cell) Held(kind scheduling.TermKind) map[string]*scheduling.HeldTerm { return c.held[kind] }

// hold adds d to the node's count of each affinity term that pods of group g have.
func (c *Cell) hold(n *scheduling.Node, g *scheduling.Group, d int) {
	if g.Affinity.Empty() {
		return
	}
	for kind := range scheduling.TermKinds {
		terms := g.Affinity.Of(kind)
		for i := range terms {
			t := &terms[i]
			h := c.held[kind][t.Key]
			if h == nil {
				if c.held[kind] == nil {
					c.held[kind] = map[string]*scheduling.HeldTerm{}
				}
				h = &scheduling.HeldTerm{Term: t, Nodes: map[*scheduling.Node]int{}}
				c.held[kind][t.Key] = h
			}
			if h.Nodes[n] += d; h.Nodes[n] <= 0 {
				if delete(h.Nodes, n); len(h.Nodes) == 0 {
					delete(c.held[kind], t.Key)
				}
			}
		}
	}
}

// ClaimUsers returns the UIDs of the pods on nodes that use a claim.
func (c *Cell) ClaimUsers(namespace, name string) []types.UID {
	users := c.claims[namespace+"/"+name]
	out := make([]types.UID, 0, len(users))
	for uid := range users {
		out = append(out, uid)
	}
	return out
}

// SetNode adds or updates a node. It returns the events after which a waiting pod may fit.
func (c *Cell) SetNode(node *v1.Node) scheduling.Event {
	n := c.byName[node.Name]
	if n == nil {
		n = &scheduling.Node{Index: len(c.nodes), Pods: map[string]*scheduling.Pod{}, Ports: map[scheduling.HostPort]int{}}
		c.nodes = append(c.nodes, n)
		c.byName[node.Name] = n
		c.reshape(true)
		c.update(n, node)
		for _, p := range c.waiting[node.Name] {
			c.account(n, p, 1)
		}
		delete(c.waiting, node.Name)
		return scheduling.NodeAdded
	}
	event := changes(n.Node, node)
	if event&(scheduling.NodeLabelsChanged|scheduling.NodeTaintsChanged) != 0 {
		c.reshape(false)
	}
	c.update(n, node)
	return event
}

func (c *Cell) update(n *scheduling.Node, node *v1.Node) {
	c.setImages(n, node.Status.Images)
	n.Node = node
	n.Allocatable = FromList(node.Status.Allocatable)
	c.touch(n)
	c.changes.add(Change{Node: n})
}

// changes returns the events that describe how node differs from old, as far as the difference may
// let a pod fit.
func changes(old, node *v1.Node) scheduling.Event {
	var e scheduling.Event
	if !equalMaps(old.Labels, node.Labels) {
		e |= scheduling.NodeLabelsChanged
	}
	if old.Spec.Unschedulable != node.Spec.Unschedulable || !equalTaints(old.Spec.Taints, node.Spec.Taints) {
		e |= scheduling.NodeTaintsChanged
	}
	if !slices.Equal(old.Status.DeclaredFeatures, node.Status.DeclaredFeatures) {
		e |= scheduling.NodeFeaturesChanged
	}
	for name, q := range node.Status.Allocatable {
		if before := old.Status.Allocatable[name]; q.Cmp(before) > 0 {
			e |= scheduling.NodeResourcesGrown
		}
	}
	return e
}

func equalMaps(a, b map[string]string) bool {
	if len(a) != len(b) {
		return false
	}
	for k, v := range a {
		if w, ok := b[k]; !ok || v != w {
			return false
		}
	}
	return true
}

func equalTaints(a, b []v1.Taint) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i].Key != b[i].Key || a[i].Value != b[i].Value || a[i].Effect != b[i].Effect {
			return false
		}
	}
	return true
}

// RemoveNode removes a node. If the node is added again, the pods that were on it count again.
func (c *Cell) RemoveNode(name string) {
	n := c.byName[name]
	if n == nil {
		return
	}
	c.setImages(n, nil)
	for uid, p := range n.Pods {
		c.ungroup(n, p)
		c.wait(name, types.UID(uid), p)
	}
	c.reshape(true)
	last := c.nodes[len(c.nodes)-1]
	c.nodes[n.Index] = last
	last.Index = n.Index
	c.nodes = c.nodes[:len(c.nodes)-1]
	delete(c.byName, name)
}

func (c *Cell) wait(node string, uid types.UID, p *scheduling.Pod) {
	if c.waiting[node] == nil {
		c.waiting[node] = map[types.UID]*scheduling.Pod{}
	}
	c.waiting[node][uid] = p
}

// SetPod adds or updates a pod that the API server shows on a node. From then on the pod no longer
// counts as assumed. SetPod reports whether the pod now requests less of a resource than before.
func (c *Cell) SetPod(pod *v1.Pod) (less bool) {
	p := c.pods[pod.UID]
	known := p != nil && p.node == pod.Spec.NodeName
	if known && sameShare(p.pod.Pod, pod) {
		p.pod.Pod = pod
		if p.assumed {
			p.assumed = false
			c.assumed--
		}
		return false
	}
	now := c.NewPod(pod)
	less = known && exceeds(&p.pod.Requests, &now.Requests)
	c.place(now, pod.Spec.NodeName, false)
	return less
}

// exceeds reports whether a has a larger amount of at least one resource than b.
func exceeds(a, b *scheduling.Resources) bool {
	if a.MilliCPU > b.MilliCPU || a.Memory > b.Memory || a.EphemeralStorage > b.EphemeralStorage {
		return true
	}
	for name, n := range a.Scalar {
		if n > b.Scalar[name] {
			return true
		}
	}
	return false
}

// Assume counts a pod on a node before the watch shows it there.
func (c *Cell) Assume(pod *scheduling.Pod, node string) { c.place(pod, node, true) }

// Forget reverses Assume. It does nothing if the watch has already shown that the pod is on its
// node.
func (c *Cell) Forget(uid types.UID) {
	if p := c.pods[uid]; p != nil && p.assumed {
		c.RemovePod(uid)
	}
}

// Sizes returns the number of nodes, the number of placed pods, and the number of placed pods that
// are only assumed.
func (c *Cell) Sizes() (nodes, pods, assumed int) { return len(c.nodes), len(c.pods), c.assumed }

// Placed returns the node on which a pod is counted, and whether the pod is only assumed there. ok
// is false if the pod is on no node.
func (c *Cell) Placed(uid types.UID) (node string, assumed, ok bool) {
	p := c.pods[uid]
	if p == nil {
		return "", false, false
	}
	return p.node, p.assumed, true
}

func (c *Cell) place(pod *scheduling.Pod, node string, assumed bool) {
	c.RemovePod(pod.UID)
	c.Join(pod)
	c.pods[pod.UID] = &placed{pod: pod, node: node, assumed: assumed}
	if assumed {
		c.assumed++
	}
	c.register(pod.Group, pod.GroupKey)
	c.accountClaims(pod.Pod, 1)
	if n := c.byName[node]; n != nil {
		c.account(n, pod, 1)
	} else {
		c.wait(node, pod.UID, pod)
	}
}

// Without calls f. During the call, the pod does not count on its node.
func (c *Cell) Without(uid types.UID, f func()) {
	defer c.Lift(uid)()
	f()
}

// Lift takes a pod off its node until the returned function is called, which puts the pod back.
// Between the two calls, the pod must not be changed in the cell.
func (c *Cell) Lift(uid types.UID) (back func()) {
	p := c.pods[uid]
	if p == nil {
		return func() {}
	}
	c.RemovePod(uid)
	return func() { c.place(p.pod, p.node, p.assumed) }
}

// RemovePod removes a pod from the cell. It returns false if the cell does not have the pod.
func (c *Cell) RemovePod(uid types.UID) bool {
	p := c.pods[uid]
	if p == nil {
		return false
	}
	delete(c.pods, uid)
	if p.assumed {
		c.assumed--
	}
	c.accountClaims(p.pod.Pod, -1)
	if n := c.byName[p.node]; n != nil {
		c.account(n, p.pod, -1)
	} else if w := c.waiting[p.node]; w != nil {
		delete(w, uid)
		if len(w) == 0 {
			delete(c.waiting, p.node)
		}
	}
	c.release(p.pod.Group)
	return true
}

// account counts a pod on a node (d is 1) or stops counting it there (d is -1).
func (c *Cell) account(n *scheduling.Node, p *scheduling.Pod, d int) {
	Adjust(n, p, d)
	if d > 0 {
		p.Group.Nodes[n]++
		c.onNodes[p.Group] = struct{}{}
		c.hold(n, p.Group, 1)
	} else {
		c.ungroup(n, p)
	}
	c.touch(n)
	c.changes.add(Change{Node: n, Pod: p, N: d})
}

// Adjust adds a pod's requests and ports to a node (d is 1) or removes them (d is -1). The node may
// be a copy, provided that the copy does not share a map with a node of a cell.
func Adjust(n *scheduling.Node, p *scheduling.Pod, d int) {
	if d > 0 {
		n.Pods[string(p.UID)] = p
		add(&n.Requested, &p.Requests)
		add(&n.NonZero, &p.NonZero)
	} else {
		delete(n.Pods, string(p.UID))
		exact := subtract(&n.Requested, &p.Requests)
		if exact = subtract(&n.NonZero, &p.NonZero) && exact; !exact {
			// A sum exceeded 64 bits, so it cannot be computed by subtraction. Add the requests of
			// all pods again; this is slow but rare.
			n.Requested, n.NonZero = scheduling.Resources{}, scheduling.Resources{}
			for _, other := range n.Pods {
				add(&n.Requested, &other.Requests)
				add(&n.NonZero, &other.NonZero)
			}
		}
	}
	for _, port := range p.HostPorts {
		if n.Ports[port] += d; n.Ports[port] <= 0 {
			delete(n.Ports, port)
		}
	}
}

func (c *Cell) ungroup(n *scheduling.Node, p *scheduling.Pod) {
	g := p.Group
	c.hold(n, g, -1)
	if g.Nodes[n]--; g.Nodes[n] <= 0 {
		delete(g.Nodes, n)
	}
	if len(g.Nodes) == 0 {
		delete(c.onNodes, g)
	}
}

// register counts one more placed pod of a group. The function release counts one pod less, and
// drops a group without pods.
func (c *Cell) register(g *scheduling.Group, key string) {
	if c.members[g]++; c.members[g] == 1 {
		c.groups[key], c.groupKeys[g] = g, key
	}
}

func (c *Cell) release(g *scheduling.Group) {
	if c.members[g]--; c.members[g] > 0 {
		return
	}
	delete(c.members, g)
	delete(c.groups, c.groupKeys[g])
	delete(c.groupKeys, g)
}

func (c *Cell) accountClaims(pod *v1.Pod, d int) {
	for i := range pod.Spec.Volumes {
		name := claimName(pod, &pod.Spec.Volumes[i])
		if name == "" {
			continue
		}
		key := pod.Namespace + "/" + name
		if d > 0 {
			if c.claims[key] == nil {
				c.claims[key] = map[types.UID]struct{}{}
			}
			c.claims[key][pod.UID] = struct{}{}
			continue
		}
		delete(c.claims[key], pod.UID)
		if len(c.claims[key]) == 0 {
			delete(c.claims, key)
		}
	}
}

func claimName(pod *v1.Pod, v *v1.Volume) string {
	switch {
	case v.PersistentVolumeClaim != nil:
		return v.PersistentVolumeClaim.ClaimName
	case v.Ephemeral != nil:
		return pod.Name + "-" + v.Name
	}
	return ""
}

func (c *Cell) touch(n *scheduling.Node) {
	c.generation++
	n.Generation = c.generation
}

// Touch marks a node as changed, because something outside the cell that affects the node has changed.
// Cached results for the node are then computed again.
func (c *Cell) Touch(node string) {
	if n := c.byName[node]; n != nil {
		c.touch(n)
		c.changes.add(Change{Node: n})
	}
}

// ImageNodes is part of scheduling.View.
func (c *Cell) ImageNodes(name string) (nodes int, version uint64) {
	s := c.images[name]
	return s.nodes, s.version
}

// setImages replaces the list of images that a node has, and updates the number of nodes with each
// image.
func (c *Cell) setImages(n *scheduling.Node, images []v1.ContainerImage) {
	before := n.Images
	n.Images = make(map[string]int64, len(images))
	for _, image := range images {
		for _, name := range image.Names {
			if _, dup := n.Images[name]; dup {
				continue
			}
			n.Images[name] = image.SizeBytes
			if _, had := before[name]; !had {
				c.countImage(name, 1)
			}
		}
	}
	for name := range before {
		if _, has := n.Images[name]; !has {
			c.countImage(name, -1)
		}
	}
}

func (c *Cell) countImage(name string, d int) {
	c.generation++
	s := imageState{c.images[name].nodes + d, c.generation}
	if s.nodes <= 0 {
		delete(c.images, name)
		return
	}
	c.images[name] = s
}

// ImageName returns an image reference in the form in which nodes report it: with the tag "latest"
// if the reference has no tag.
func ImageName(ref string) string {
	if strings.LastIndex(ref, ":") <= strings.LastIndex(ref, "/") {
		return ref + ":latest"
	}
	return ref
}
