// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 has the kinds of scheduling.keelson.dev/v1alpha1.
//
// A BindingBatch binds many pods in one request: each as a POST of a Binding to
// pods/binding would, with the same preconditions and errors, and without the
// cost of a request for each. Bindings do not depend on each other: some may
// fail. With AllOrNothing none is done unless every one can be.
//
// A VerdictBatch tells of many pods that got no node: of each what its status is
// to say, and which pods are to make room for it. It stands for a write of
// pods/status of each pod, and for a write of pods/status and a delete of each
// victim, which are written together where the victim ends gracefully.
//
// A client needs the verb create on bindingbatches or verdictbatches of the group to send
// a batch. In addition, each part needs the right that the request it replaces would need:
// create on pods/binding; patch on pods/status; patch on pods/status and delete on pods for
// a victim; create on events of events.k8s.io for an event, which is left out if the right
// is missing. The audit log has an event for the batch and one for each of these requests.
// The latter have the batch's audit ID in the annotation scheduling.keelson.dev/batch.
// Write options, such as dryRun, are rejected with 400.
//
// What a batch writes to different objects may happen in one transaction of the
// store: they have the same resourceVersion then.
//
// A server that is not Keelson's answers 404.
package v1alpha1

import "k8s.io/apimachinery/pkg/types"

const (
	// Group and Version are those of the kinds here.
	Group   = "scheduling.keelson.dev"
	Version = "v1alpha1"
	// BatchPath is the path to post a BindingBatch to. The client needs the verb
	// create on bindingbatches of the group, and the right to each binding.
	BatchPath = "/apis/" + Group + "/" + Version + "/bindingbatches"
	// MaxBindings is how many bindings a batch may have.
	MaxBindings = 512
	// MaxGang is how many bindings a batch may have that is all or nothing.
	MaxGang = 8192
	// VerdictPath is the path to post a VerdictBatch to. The client needs the verb
	// create on verdictbatches of the group, and the right to each write.
	VerdictPath = "/apis/" + Group + "/" + Version + "/verdictbatches"
	// MaxVerdicts is how many verdicts a batch may have, MaxVictims how many
	// victims they may have together.
	MaxVerdicts = 256
	MaxVictims  = 1024
)

// BindingBatch is the body of a request.
type BindingBatch struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"`
	Bindings   []Binding `json:"bindings"`
	// AllOrNothing asks for no binding to be done when one of them is refused; the
	// others are answered with a conflict then. Once begun, all are done: a pod
	// that is deleted or bound by another meanwhile is as one that was right after.
	AllOrNothing bool `json:"allOrNothing,omitempty"`
	// ReportingController, if set, is who a Scheduled event is written for with
	// each pod that is bound; ReportingInstance is which one of them.
	ReportingController string `json:"reportingController,omitempty"`
	ReportingInstance   string `json:"reportingInstance,omitempty"`
}

// Binding gives a pod a node.
type Binding struct {
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	UID       types.UID `json:"uid,omitempty"`
	Node      string    `json:"node"`
}

// BindingBatchResult is the answer; Results are in the order of the bindings.
type BindingBatchResult struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Results    []Result `json:"results"`
}

// Result is what became of a binding: what the status of an answer of
// pods/binding would be.
type Result struct {
	Code    int32  `json:"code"`
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
}

// VerdictBatch is the body of a request.
type VerdictBatch struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"`
	Verdicts   []Verdict `json:"verdicts"`
	// ReportingController is who decided, and who events are written for;
	// ReportingInstance is which one of them.
	ReportingController string `json:"reportingController"`
	ReportingInstance   string `json:"reportingInstance,omitempty"`
}

// Verdict is what a pod that got no node is to be told. Its victims are told to
// go after its status has been written, and not at all when it is gone itself.
type Verdict struct {
	PodRef `json:",inline"`
	// Reason and Message are those of its condition PodScheduled, which is False
	// for the Generation that was looked at. No Reason: the condition stays.
	Reason     string `json:"reason,omitempty"`
	Message    string `json:"message,omitempty"`
	Generation int64  `json:"generation,omitempty"`
	// NominatedNode is the node that is cleared for it; empty: none.
	NominatedNode string `json:"nominatedNode,omitempty"`
	// Event asks for a FailedScheduling event with the Message.
	Event bool `json:"event,omitempty"`
	// Victims are deleted, as those whom the scheduler has preempted.
	Victims []PodRef `json:"victims,omitempty"`
}

// PodRef names a pod. A UID is a precondition.
type PodRef struct {
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	UID       types.UID `json:"uid,omitempty"`
}

// VerdictBatchResult is the answer; Results are in the order of the verdicts.
type VerdictBatchResult struct {
	APIVersion string          `json:"apiVersion"`
	Kind       string          `json:"kind"`
	Results    []VerdictResult `json:"results"`
}

// VerdictResult is what became of a verdict: how the write of the pod's status
// ended, and of each victim how its deletion did.
type VerdictResult struct {
	Result  `json:",inline"`
	Victims []Result `json:"victims,omitempty"`
}

// The annotations by which pods form a gang: those of one namespace with the same
// name in AnnGang are placed only when as many as AnnGangSize says fit at once.
const (
	AnnGang     = Group + "/gang"
	AnnGangSize = Group + "/gang-size"
)
