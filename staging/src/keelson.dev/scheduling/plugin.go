// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduling

import v1 "k8s.io/api/core/v1"

// MaxNodeScore is the highest normalized score of a node.
const MaxNodeScore = 100

// Plugin lists the extension points that a plugin implements. Those that it does not implement are
// nil. The scheduler copies the struct when it starts and never changes it.
type Plugin struct {
	// Name is the plugin's name in configuration, logs and metrics.
	Name string
	// Filter rejects nodes.
	Filter *FilterPoint
	// Score ranks the nodes that no filter rejected.
	Score *ScorePoint
	// Gate keeps a pod out of the queue as long as it returns a Status. The scheduler calls it when
	// the pod is created and when it changes, from several goroutines.
	Gate func(pod *v1.Pod) *Status
	// Less reports whether a is scheduled before b. There is one queue for all profiles, so one
	// plugin orders it. Less is called under the queue's lock.
	Less func(a, b QueuedPod) bool
}

// FilterPoint is the extension point that rejects nodes.
type FilterPoint struct {
	// Scope says how much of the cell (the scheduler's picture of all nodes and pods) the filters
	// look at.
	Scope Scope
	// Events are the changes after which a pod that this plugin has rejected may fit. The pod waits
	// for one of them before the scheduler tries it again.
	Events Event
	// Compile reads one pod and returns its filter. The zero Filter accepts every node. If Compile
	// returns a Status, the pod is rejected on all nodes. If Scope is NodeScope, the filter is used
	// for all pods of the same class as pod (pods with the same scheduling requirements).
	Compile func(view View, pod *Pod) (Filter, *Status)
}

// Filter evaluates nodes for one pod or, if the plugin's Scope is NodeScope, for a class of pods
// (pods with the same scheduling requirements). Exactly one of Check and CheckAt is set.
type Filter struct {
	// Check returns a Status if the filter rejects the node, or nil. node may be a copy with other
	// pods on it, because the scheduler uses such copies to try out evictions.
	Check func(node *Node) *Status
	// CheckAt is like Check, for a filter that needs only the node's index. It is faster. It must
	// not return Failed.
	CheckAt func(index int) *Status
	// Adjust updates the filter for a pod that is added to a node (n is 1) or removed from it (n is
	// -1). It is optional, but a filter whose Scope is CellScope and that depends on pods of other
	// nodes needs it, because the scheduler tries out evictions. The scheduler reverses each change
	// that it has only tried.
	Adjust func(node *Node, pod *Pod, n int)
	// Version returns a number that changes when the results of a filter whose Scope is NodeScope
	// change for a reason other than the pod or the node. The scheduler then computes the results
	// again. It is optional.
	Version func() uint64
}

// ScorePoint is the extension point that ranks nodes.
type ScorePoint struct {
	// Scope says how much of the cell (the scheduler's picture of all nodes and pods) Score looks
	// at. Normalize always gets all feasible nodes.
	Scope Scope
	// Compile reads one pod and returns its scorer. The zero Scorer gives all nodes the same score,
	// and the scheduler skips it. If Scope is NodeScope, the scorer is used for all pods of the
	// same class as pod (pods with the same scheduling requirements).
	Compile func(view View, pod *Pod) Scorer
}

// Scorer ranks nodes for one pod or, if the plugin's Scope is NodeScope, for a class of pods (pods
// with the same scheduling requirements). Exactly one of Score and ScoreAt is set. Normalize is set
// only if no Normalization is suitable.
type Scorer struct {
	// Score returns the raw score of a node.
	Score func(node *Node) int64
	// ScoreAt is like Score, for a scorer that needs only the node's index. It is faster. A scorer
	// whose Scope is NodeScope must set Score instead.
	ScoreAt func(index int) int64
	// Normalization maps raw scores to 0..MaxNodeScore in one of the usual ways. It is faster than
	// Normalize, because the scheduler updates only nodes whose raw score has changed.
	Normalization Normalization
	// Normalize maps the raw scores to 0..MaxNodeScore in place, in a way for which there is no
	// Normalization. scores[i] is the score of the node with index nodes[i].
	Normalize func(nodes []int32, scores []int64)
	// Prepare is called with the indexes of the feasible nodes before a scorer whose Scope is
	// CellScope scores them. It is optional.
	Prepare func(feasible []int32)
	// Version returns a number that changes when the scores of a scorer whose Scope is NodeScope
	// change for a reason other than the pod or the node. It is optional.
	Version func() uint64
}

// QueuedPod is a pod in the queue.
type QueuedPod struct {
	Pod *v1.Pod
	// Since is the time at which the pod first entered the queue, in nanoseconds since 1970.
	Since int64
	// Turn is a number with which Less can let namespaces take turns: within one priority, it is
	// higher for each further pod of the same namespace.
	Turn int64
}

// Code says what a Status means for the pod.
type Code int8

// The codes of a Status.
const (
	// Unschedulable means that the pod does not fit now. Removing other pods may help.
	Unschedulable Code = iota + 1
	// Unresolvable means that the pod does not fit, and that removing other pods would not help.
	Unresolvable
	// Waiting means that an object that the pod needs is about to be created for it. The scheduler
	// tries the pod again when that happens, and does not update the pod's status before. Only
	// Compile may return it.
	Waiting
	// Failed means that the plugin could not decide. The pod gets no node and is retried with
	// backoff, as when a plugin of Kubernetes returns an error. Compile may return it, and so may
	// Check of a filter whose Scope is CellScope.
	Failed
)

// Status says why a plugin rejects a node or a pod. A nil Status means that it does not. Users see
// the reasons, so treat their texts as part of the API. A Status may be shared and must not be
// modified.
type Status struct {
	Code    Code
	Plugin  string
	Reasons []string
}

// Scope says how much of the cell (the scheduler's picture of all nodes and the pods on them) a
// plugin looks at to evaluate one node.
type Scope int8

// The scopes of a plugin.
const (
	// NodeScope plugins look at the node alone, and at those fields of the pod that define its
	// class (the set of pods with the same scheduling requirements): node name, node selector, node
	// affinity, tolerations, requests, host ports and images. The scheduler keeps their results for
	// all pods of the class.
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
	NodeLabelsChanged                     // a node's labels changed
	NodeTaintsChanged                     // a node's taints changed, or it was cordoned or uncordoned
	NodeResourcesGrown                    // a node has more of a resource
	PodRemoved                            // a pod was removed from a node, or has ended
	PodAdded                              // a pod was bound to a node, or its labels changed
	VolumesChanged                        // a claim, volume, storage class, CSI node or capacity changed
	PodChanged                            // the waiting pod itself changed
	NamespaceChanged                      // a namespace's labels changed
	NodeFeaturesChanged                   // a node's declared features changed
	DevicesChanged                        // a resource claim, device class or resource slice changed
	ClassesChanged                        // a device class changed
)

// Normalization is one of the usual ways to map raw scores to 0..MaxNodeScore.
type Normalization int8

// The usual normalizations.
const (
	AsIs          Normalization = iota // raw scores are already in the range
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
