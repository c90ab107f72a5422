// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduling

import (
	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
)

// MaxNodeScore is the best score a plugin gives a node after Normalize.
const MaxNodeScore = 100

// Code says whether a pod fits.
type Code int8

// The codes of a Status.
const (
	// Unschedulable: it does not fit now; removing other pods may help.
	Unschedulable Code = iota + 1
	// Unresolvable: it does not fit, and removing pods would change nothing.
	Unresolvable
	// Waiting: something it needs is about to be made for it. It is looked at
	// again then, and nobody is told before. For a pod on all nodes only.
	Waiting
	// Failed: it cannot be told whether it fits. The pod gets no node at all and is
	// tried again later, as when a plugin of Kubernetes returns an error. Said of a
	// pod on all nodes, or by filters with CellScope of the first node they cannot
	// judge.
	Failed
)

// Status is a plugin's reason against a node or a pod. A nil Status is no
// objection. Reasons are shown to users; they are part of the API. Statuses are
// shared and never modified.
type Status struct {
	Code    Code
	Plugin  string
	Reasons []string
}

// Scope says how far the verdict on one node reaches.
type Scope int8

// The scopes of a plugin.
const (
	// NodeScope: the verdict depends on the pod and that node alone, and of the
	// pod only on what makes its class: node name, node selector, node affinity,
	// tolerations, requests, host ports and images.
	NodeScope Scope = iota
	// CellScope: it depends on other nodes and the pods on them too.
	CellScope
)

// Event is a kind of change that may make an unschedulable pod schedulable.
type Event uint32

// The events plugins wait for; a set is their bitwise or.
const (
	NodeAdded Event = 1 << iota
	NodeLabelsChanged
	NodeTaintsChanged
	NodeResourcesGrown
	PodRemoved     // a pod left a node, or ended
	PodAdded       // a pod was bound, or its labels changed
	VolumesChanged // claims, volumes, storage classes, CSI nodes and capacities
	PodChanged     // the waiting pod itself
	NamespaceChanged
	NodeFeaturesChanged // declared features
	DevicesChanged      // claims of devices, device classes, resource slices
	ClassesChanged      // device classes
)

// View is the cell as one scheduling cycle sees it.
type View interface {
	// Nodes are all nodes, Nodes()[i].Index == i.
	Nodes() []*Node
	NodeByName(name string) *Node
	// Topology is the topology of one key.
	Topology(key string) *Topology
	// ImageNodes is how many nodes hold an image, and a number that is larger
	// each time that has changed.
	ImageNodes(name string) (nodes int, version uint64)
	// Groups are the groups of pods on nodes.
	Groups() map[*Group]struct{}
	// Held are the affinity terms that pods on nodes have, by Term.Key.
	Held(kind TermKind) map[string]*HeldTerm
	// Repelled tells whether nodes have been cleared for pods with required
	// anti-affinity: a filter may then be told of terms that no pod on a node has.
	Repelled() bool
	// Keep returns what is kept under key, up to date, or makes it. Keys begin
	// with the plugin's name. What is kept is shared by all pods: it depends on
	// nothing but the key and the cell.
	Keep(key string, make func() Lasting) Lasting
	NamespaceLabels(namespace string) labels.Set
	// Selectors are the selectors of the Services and controllers the pod
	// belongs to, merged; nil when there are none.
	Selectors(pod *v1.Pod) labels.Selector
	Volumes() VolumeView
	Devices() DeviceView
}

// VolumeView reads storage objects. Each getter returns nil for what is not there.
type VolumeView interface {
	// Claim is a claim. A node that a decision of the scheduler selects for it
	// shows before it is written.
	Claim(namespace, name string) *v1.PersistentVolumeClaim
	Volume(name string) *v1.PersistentVolume
	Class(name string) *storagev1.StorageClass
	// AvailableVolumes are the volumes of a class. Those that a decision of the
	// scheduler gives to a claim show that claim before it is written.
	AvailableVolumes(class string) []*v1.PersistentVolume
	// Capacities is how much a driver can make of a class, and where; limited is
	// false for a driver that does not say.
	Capacities(driver, class string) (published []*storagev1.CSIStorageCapacity, limited bool)
	// CSINode tells what the CSI drivers of a node can do.
	CSINode(node string) *storagev1.CSINode
	// Attachments are the volumes attached, or to be attached, to a node.
	Attachments(node string) []*storagev1.VolumeAttachment
	// ClaimUsers are the UIDs of pods on nodes that use the claim.
	ClaimUsers(namespace, name string) []types.UID
}

// DeviceView reads objects of dynamic resource allocation. Each getter returns nil
// for what is not there. A claim shows what the scheduler has written to it, even
// before that is seen back.
type DeviceView interface {
	Claim(namespace, name string) *resourcev1.ResourceClaim
	// Pending tells whether devices have been chosen for a claim by a decision
	// that is being carried out.
	Pending(claim types.UID) bool
	// Allocated are the claims that have devices, the pending ones included.
	Allocated() []*resourcev1.ResourceClaim
	Class(name string) *resourcev1.DeviceClass
	// ClassFor is the class whose devices are had by the name of an extended
	// resource: the one that names it, or the one that is named by it.
	ClassFor(resource v1.ResourceName) *resourcev1.DeviceClass
	// MadeFor is the claim that an earlier attempt made for the extended resources
	// of a pod.
	MadeFor(pod *v1.Pod) *resourcev1.ResourceClaim
	Classes() []*resourcev1.DeviceClass
	Slices() []*resourcev1.ResourceSlice
}

// Plugin is the part all plugins share.
type Plugin interface {
	// Name is the plugin's name in configuration, logs and metrics.
	Name() string
}

// FilterPlugin rules out nodes.
type FilterPlugin interface {
	Plugin
	Scope() Scope
	// Events are the changes that can make a pod pass that this plugin rejected.
	Events() Event
	// Compile returns the pod's filter; nil when the plugin has nothing against
	// any node. A non-nil Status rejects the pod on all nodes.
	Compile(view View, pod *Pod) (Filter, *Status)
}

// Filter judges nodes for one pod.
type Filter interface {
	Filter(node *Node) *Status
}

// Adjuster can follow pods coming and going.
type Adjuster interface {
	// Adjust accounts for pod having come to (n=1) or left (n=-1) node.
	Adjust(node *Node, pod *Pod, n int)
}

// Adjustable is a Filter with CellScope that can follow pods coming and going,
// as it must when the scheduler tries what an eviction would change.
type Adjustable interface {
	Filter
	Adjuster
}

// Lasting is something compiled over the whole cell that View.Keep keeps: it is
// told of every pod that comes or goes, and thrown away when nodes come, go or
// change labels or taints, and when labels of namespaces change.
type Lasting interface {
	Adjuster
}

// Indexed is a Filter that needs no more of a node than its Index. It never fails.
type Indexed interface {
	FilterAt(index int) *Status
}

// ScorePlugin ranks nodes.
type ScorePlugin interface {
	Plugin
	// ScoreScope is NodeScope when Score looks at the pod and the node alone;
	// Normalize always sees all feasible nodes.
	ScoreScope() Scope
	// CompileScore returns the pod's scorer; nil when the plugin is indifferent.
	CompileScore(view View, pod *Pod) Scorer
}

// Scorer ranks nodes for one pod.
type Scorer interface {
	Score(node *Node) int64
	// Normalize turns the raw scores of the feasible nodes into 0..MaxNodeScore;
	// scores[i] is that of the node with Index nodes[i].
	Normalize(nodes []int32, scores []int64)
}

// IndexedScorer is a Scorer that needs no more of a node than its Index.
type IndexedScorer interface {
	ScoreAt(index int) int64
}

// Preparer is a Scorer that has to see which nodes are feasible before it scores.
type Preparer interface {
	Prepare(feasible []int32)
}

// Versioned is a Filter or a Scorer with NodeScope that looks at something beside
// the pod and the node; while Version stays the same, so does what it says.
type Versioned interface {
	Version() uint64
}

// Normalization is a usual way to normalize.
type Normalization int8

// The ways of normalizing.
const (
	AsIs          Normalization = iota + 1 // scores are in range as they are
	ByMax                                  // the largest becomes MaxNodeScore
	ByMaxReversed                          // the largest becomes 0
)

// Of normalizes one score, where highest is the largest of all.
func (n Normalization) Of(score, highest int64) int64 {
	switch {
	case n == AsIs:
		return score
	case highest == 0 && n == ByMaxReversed:
		return MaxNodeScore
	case highest == 0:
		return 0
	case n == ByMaxReversed:
		return MaxNodeScore - score*MaxNodeScore/highest
	}
	return score * MaxNodeScore / highest
}

// Apply normalizes all scores.
func (n Normalization) Apply(scores []int64) {
	if n == AsIs {
		return
	}
	var highest int64
	for _, s := range scores {
		highest = max(highest, s)
	}
	for i, s := range scores {
		scores[i] = n.Of(s, highest)
	}
}

// Usual is a Scorer whose Normalize does what Normalization says, so that the
// scheduler can do it for those nodes alone whose score changed.
type Usual interface {
	Normalization() Normalization
}

// QueueSortPlugin orders pending pods.
type QueueSortPlugin interface {
	Plugin
	// Less tells whether a is scheduled before b.
	Less(a, b QueuedPod) bool
}

// QueuedPod is a pod in the queue.
type QueuedPod struct {
	Pod *v1.Pod
	// Since is when the pod came to the queue first, in nanoseconds.
	Since int64
	// Turn is the round in which the pod's namespace has its turn with this pod,
	// if namespaces of one priority are taken in turn.
	Turn int64
}

// GatePlugin keeps pods out of the queue.
type GatePlugin interface {
	Plugin
	Gate(pod *v1.Pod) *Status
}
