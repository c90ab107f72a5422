// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduling

import v1 "k8s.io/api/core/v1"

// MaxNodeScore is the highest normalized score of a node.
const MaxNodeScore = 100

// Plugin lists what one plugin implements. An extension point that is nil is not implemented.
// The scheduler copies the struct when it starts and never changes it.
type Plugin struct {
	// Name is the plugin's name in configuration, logs and metrics.
	Name string
	// Filter rejects nodes.
	Filter *FilterPoint
	// Score ranks the nodes that no filter rejected.
	Score *ScorePoint
	// Gate keeps a pod out of the queue while it returns a Status. It is called again when the
	// pod changes. It is called from several goroutines.
	Gate func(pod *v1.Pod) *Status
	// Less reports whether a is scheduled before b. One plugin orders the queue of all profiles.
	// It is called under the queue's lock.
	Less func(a, b QueuedPod) bool
}

// FilterPoint is the extension point that rejects nodes.
type FilterPoint struct {
	// Scope is how much of the cell the filters look at.
	Scope Scope
	// Events are the changes that can make a pod fit that this plugin rejected. A pod waits for
	// one of them before it is tried again.
	Events Event
	// Compile reads one pod and returns its filter; the zero Filter accepts every node. A Status
	// rejects the pod on all nodes. With NodeScope the filter is used for all pods of the class.
	Compile func(view View, pod *Pod) (Filter, *Status)
}

// Filter evaluates nodes for one pod, or for one class of pods. Set either Check or CheckAt.
type Filter struct {
	// Check returns the objection to a node, or nil. The node may be a copy with other pods on
	// it: the scheduler tries evictions that way.
	Check func(node *Node) *Status
	// CheckAt does the same as Check, for a filter that needs only the node's index. It is faster
	// and must not return Failed.
	CheckAt func(index int) *Status
	// Adjust, which is optional, accounts for a pod added to a node (n is 1) or removed from it
	// (n is -1). A filter with CellScope that depends on pods of other nodes needs it, because
	// the scheduler tries evictions. Each change that was only tried is reversed.
	Adjust func(node *Node, pod *Pod, n int)
	// Version, which is optional, changes when something beside the pod and the node changes
	// the results of a filter with NodeScope. Results are then computed again.
	Version func() uint64
}

// ScorePoint is the extension point that ranks nodes.
type ScorePoint struct {
	// Scope is how much of the cell Score looks at. Normalize always gets all feasible nodes.
	Scope Scope
	// Compile reads one pod and returns its scorer. The zero Scorer ranks all nodes equally and
	// is left out of the sum. With NodeScope the scorer is used for all pods of the class.
	Compile func(view View, pod *Pod) Scorer
}

// Scorer ranks nodes for one pod, or for one class of pods. Set either Score or ScoreAt. Set Normalize
// only if no Normalization fits.
type Scorer struct {
	// Score returns the raw score of a node.
	Score func(node *Node) int64
	// ScoreAt does the same as Score, for a scorer that needs only the node's index. It is faster.
	// A scorer with NodeScope sets Score.
	ScoreAt func(index int) int64
	// Normalization maps raw scores to 0..MaxNodeScore in one of the usual ways. With it, unlike
	// with Normalize, the scheduler updates only nodes whose score changed.
	Normalization Normalization
	// Normalize maps the raw scores to 0..MaxNodeScore in place, in a way that no Normalization
	// offers. scores[i] is the score of the node with index nodes[i].
	Normalize func(nodes []int32, scores []int64)
	// Prepare, which is optional, gets the feasible nodes before a scorer with CellScope scores
	// them.
	Prepare func(feasible []int32)
	// Version, which is optional, changes when something beside the pod and the node changes
	// the scores of a scorer with NodeScope.
	Version func() uint64
}

// QueuedPod is a pod in the queue.
type QueuedPod struct {
	Pod *v1.Pod
	// Since is when the pod entered the queue for the first time, in nanoseconds.
	Since int64
	// Turn is the round in which the pod's namespace may schedule this pod, when namespaces take
	// turns within one priority.
	Turn int64
}

// Code is the kind of an objection.
type Code int8

// The codes of a Status.
const (
	// Unschedulable means that the pod does not fit now. Removing other pods may help.
	Unschedulable Code = iota + 1
	// Unresolvable means that the pod does not fit, and that removing other pods does not help.
	Unresolvable
	// Waiting means that something which the pod needs is about to be created for it. The pod is
	// tried again then. Until then its status is not updated. Only Compile may return it.
	Waiting
	// Failed means that the plugin could not find out. The pod gets no node and is retried with
	// backoff, as when a plugin of Kubernetes returns an error. Compile may return it, and Check
	// of a filter with CellScope.
	Failed
)

// Status is a plugin's objection to a node or a pod. A nil Status means no objection. Users see
// the reasons: treat them as part of the API. A Status is shared and must not be modified.
type Status struct {
	Code    Code
	Plugin  string
	Reasons []string
}

// Scope is how much of the cell a plugin looks at to evaluate one node.
type Scope int8

// The scopes of a plugin.
const (
	// NodeScope plugins look at the node alone, and at those fields of the pod that define its
	// class: node name, node selector, node affinity, tolerations, requests, host ports and images.
	// The scheduler keeps their results for all pods of the class.
	NodeScope Scope = iota
	// CellScope plugins also look at other nodes and their pods, or at parts of the pod that do not
	// belong to its class.
	CellScope
)

// Event is a set of kinds of changes that may let an unschedulable pod fit.
type Event uint32

// The kinds of changes. Combine them with |.
const (
	NodeAdded           Event = 1 << iota // a node was added
	NodeLabelsChanged                     // labels of a node
	NodeTaintsChanged                     // taints of a node, or its cordon
	NodeResourcesGrown                    // a node has more of a resource
	PodRemoved                            // a pod left a node, or ended
	PodAdded                              // a pod was bound, or its labels changed
	VolumesChanged                        // claims, volumes, storage classes, CSI nodes, capacities
	PodChanged                            // the waiting pod itself
	NamespaceChanged                      // labels of a namespace
	NodeFeaturesChanged                   // declared features of a node
	DevicesChanged                        // resource claims, device classes, resource slices
	ClassesChanged                        // device classes
)

// Normalization is a usual way to map raw scores to 0..MaxNodeScore.
type Normalization int8

// The usual normalizations.
const (
	AsIs          Normalization = iota // raw scores are in range already
	ByMax                              // the highest raw score becomes MaxNodeScore
	ByMaxReversed                      // the highest raw score becomes 0
)

// Of normalizes one score. highest is the highest raw score of all nodes.
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

// Apply normalizes all scores in place.
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
