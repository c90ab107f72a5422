// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// Group and Version are the API group and version of the kinds in this package.
	Group   = "scheduling.keelson.dev"
	Version = "v1alpha1"
	// BatchPath is the path to post a BindingBatch to. The client needs the verb
	// create on bindingbatches of the group, and create on pods/binding for each pod.
	BatchPath = "/apis/" + Group + "/" + Version + "/bindingbatches"
	// MaxBindings is the maximum number of bindings in a batch without AllOrNothing.
	MaxBindings = 512
	// MaxGang is the maximum number of bindings in a batch with AllOrNothing.
	MaxGang = 8192
	// VerdictPath is the path to post a VerdictBatch to. The client needs the verb
	// create on verdictbatches of the group, and the permissions for the changes of each pod (see
	// the package).
	VerdictPath = "/apis/" + Group + "/" + Version + "/verdictbatches"
	// MaxVerdicts is the maximum number of verdicts in a batch, and MaxVictims the maximum number of
	// victims of all its verdicts together.
	MaxVerdicts = 256
	MaxVictims  = 1024
)

// BindingBatch binds many pods to nodes.
type BindingBatch struct {
	metav1.TypeMeta `json:",inline"`
	// ObjectMeta is ignored: batches are not stored.
	metav1.ObjectMeta `json:"metadata,omitempty,omitzero"`

	// Bindings are the pods to bind: at most 512, or at most 8192 with AllOrNothing.
	// +listType=atomic
	Bindings []Binding `json:"bindings,omitempty"`
	// AllOrNothing makes the server bind either all pods or none. If it rejects a binding, the
	// results of the other bindings are conflicts. Once the server has begun to bind, a pod that is
	// deleted or bound by another client in the meantime counts as bound.
	AllOrNothing bool `json:"allOrNothing,omitempty"`
	// ReportingController is the controller named in a Scheduled event for each bound pod.
	// No events are written if it is empty.
	ReportingController string `json:"reportingController,omitempty"`
	// ReportingInstance is the instance of the controller named in events.
	ReportingInstance string `json:"reportingInstance,omitempty"`

	// Results is set in answers: one result for each binding, in the same order.
	// +listType=atomic
	Results []Result `json:"results,omitempty"`
}

// Binding assigns a pod to a node.
type Binding struct {
	// Namespace is the namespace of the pod.
	Namespace string `json:"namespace"`
	// Name is the name of the pod.
	Name string `json:"name"`
	// UID is a precondition: only a pod with this UID is bound. If it is empty, any pod with the
	// name is bound.
	UID types.UID `json:"uid,omitempty"`
	// Node is the name of the node.
	Node string `json:"node"`
}

// Result is the outcome of one part of a batch: the status that the answer to a separate request
// would have had.
type Result struct {
	// Code is the HTTP status code.
	Code int32 `json:"code"`
	// Reason is the machine-readable reason of a failure.
	Reason string `json:"reason,omitempty"`
	// Message is the description of a failure.
	Message string `json:"message,omitempty"`
}

// VerdictBatch reports scheduling decisions about pods that got no node.
type VerdictBatch struct {
	metav1.TypeMeta `json:",inline"`
	// ObjectMeta is ignored: batches are not stored.
	metav1.ObjectMeta `json:"metadata,omitempty,omitzero"`

	// Verdicts are the decisions: at most 256, with at most 1024 victims together.
	// +listType=atomic
	Verdicts []Verdict `json:"verdicts,omitempty"`
	// ReportingController is the scheduler that decided. Events and the conditions of victims name it.
	ReportingController string `json:"reportingController,omitempty"`
	// ReportingInstance is the instance of the scheduler named in events.
	ReportingInstance string `json:"reportingInstance,omitempty"`

	// Results is set in answers: one result for each verdict, in the same order.
	// +listType=atomic
	Results []VerdictResult `json:"results,omitempty"`
}

// Verdict is the decision about one pod that got no node. The server deletes its victims after it
// has written the pod's status, and deletes none if the pod no longer exists.
type Verdict struct {
	PodRef `json:",inline"`
	// Reason is the reason of the pod's condition PodScheduled, which becomes False. If empty, the
	// condition does not change.
	Reason string `json:"reason,omitempty"`
	// Message is the message of the condition.
	Message string `json:"message,omitempty"`
	// Generation is the generation of the pod that the decision is about.
	Generation int64 `json:"generation,omitempty"`
	// NominatedNode is the node on which the victims make room for the pod. It is empty if there is
	// none.
	NominatedNode string `json:"nominatedNode,omitempty"`
	// Event asks for a FailedScheduling event with the Message.
	Event bool `json:"event,omitempty"`
	// PodGroup is the name of the PodGroup for which the victims are preempted. It is in the namespace of
	// the pod. If it is empty, the victims are preempted for the pod.
	PodGroup string `json:"podGroup,omitempty"`
	// PodGroupUID is the UID of the PodGroup.
	PodGroupUID types.UID `json:"podGroupUID,omitempty"`
	// Victims are the pods to preempt.
	// +listType=atomic
	Victims []PodRef `json:"victims,omitempty"`
}

// PodRef names a pod.
type PodRef struct {
	// Namespace is the namespace of the pod.
	Namespace string `json:"namespace"`
	// Name is the name of the pod.
	Name string `json:"name"`
	// UID is a precondition: only a pod with this UID is changed. If it is empty, any pod with the
	// name is changed.
	UID types.UID `json:"uid,omitempty"`
}

// VerdictResult is the outcome of a verdict. The embedded Result is that of writing the pod's
// status.
type VerdictResult struct {
	Result `json:",inline"`
	// Victims are the outcomes of the preemptions, in the order of the verdict's victims.
	// +listType=atomic
	Victims []Result `json:"victims,omitempty"`
}

// The annotations of a gang. Pods with the same namespace, schedulerName and value of AnnGang are a
// gang. The scheduler binds its first pods only when AnnGangSize of its pods fit on nodes at the
// same time. It binds further pods of the gang one by one.
const (
	// AnnGang is the annotation of a pod with the name of its gang.
	AnnGang = Group + "/gang"
	// AnnGangSize is the annotation of a pod with the number of pods of its gang that must fit on nodes
	// at once before the scheduler binds any of them.
	AnnGangSize = Group + "/gang-size"
)
