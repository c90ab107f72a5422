// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 has the kinds of the group scheduling.keelson.dev/v1alpha1.
//
// A BindingBatch binds many pods in one request. Each binding has the same preconditions and
// errors as a POST of a Binding to pods/binding. By default, bindings are independent: some can
// succeed and others fail. With AllOrNothing, either all are made or none.
//
// A VerdictBatch reports many pods that could not be scheduled. For each pod it has the condition
// to write to the pod's status and the pods to delete in order to make room for it (victims). It
// replaces one write of pods/status for each pod, and one write of pods/status and one delete for
// each victim. The two writes of a victim that terminates gracefully become one.
//
// A client needs the verb create on bindingbatches or verdictbatches of the group to send
// a batch. In addition, each part needs the right that the request it replaces would need:
// create on pods/binding; patch on pods/status; patch on pods/status and delete on pods for
// a victim; create on events of events.k8s.io for an event, which is left out if the right
// is missing. The audit log has an event for the batch and one for each of these requests.
// The latter have the batch's audit ID in the annotation scheduling.keelson.dev/batch.
// Write options, such as dryRun, are rejected with 400.
//
// The server may write several objects of a batch in one transaction of the store. These objects
// have the same resourceVersion.
//
// Other API servers respond with 404.
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// Group and Version are the API group and version of the kinds in this package.
	Group   = "scheduling.keelson.dev"
	Version = "v1alpha1"
	// BatchPath is the path for POST of a BindingBatch. The client needs the verb create on
	// bindingbatches of the group, and the right to make each binding.
	BatchPath = "/apis/" + Group + "/" + Version + "/bindingbatches"
	// MaxBindings is the maximum number of bindings in a batch.
	MaxBindings = 512
	// MaxGang is the maximum number of bindings in a batch with AllOrNothing.
	MaxGang = 8192
	// VerdictPath is the path for POST of a VerdictBatch. The client needs the verb create on
	// verdictbatches of the group, and the right to make each write.
	VerdictPath = "/apis/" + Group + "/" + Version + "/verdictbatches"
	// MaxVerdicts is the maximum number of verdicts in a batch. MaxVictims is the maximum number
	// of victims of all verdicts of a batch together.
	MaxVerdicts = 256
	MaxVictims  = 1024
)

// BindingBatch is a request to bind many pods.
type BindingBatch struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"`
	Bindings   []Binding `json:"bindings"`
	// AllOrNothing rejects the whole batch if one binding is rejected; the results of the others
	// are conflicts. The check comes before the first write: if a pod is deleted or bound by
	// another client in between, the other bindings are still made.
	AllOrNothing bool `json:"allOrNothing,omitempty"`
	// ReportingController, if set, makes the server write an event Scheduled from this controller
	// for each pod that is bound. ReportingInstance is the instance of the controller.
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
	// UID is a precondition: only a pod with this UID is bound. Empty: any pod of the name.
	UID types.UID `json:"uid,omitempty"`
	// Node is the name of the node.
	Node string `json:"node"`
}

// BindingBatchResult is the response. Results are in the order of the bindings.
type BindingBatchResult struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Results    []Result `json:"results"`
}

// Result is the result of one binding, with the code, reason and message that a POST to
// pods/binding would have returned.
type Result struct {
	// Code is the HTTP status code.
	Code int32 `json:"code"`
	// Reason is the machine-readable reason of a failure.
	Reason string `json:"reason,omitempty"`
	// Message is the description of a failure.
	Message string `json:"message,omitempty"`
}

// VerdictBatch is a request to report many pods that could not be scheduled.
type VerdictBatch struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"`
	Verdicts   []Verdict `json:"verdicts"`
	// ReportingController is the controller that events come from. ReportingInstance is the
	// instance of the controller.
	ReportingController string `json:"reportingController"`
	ReportingInstance   string `json:"reportingInstance,omitempty"`
}

// Verdict reports one pod that could not be scheduled. The server writes the pod's status first
// and then deletes the victims. If the pod no longer exists, the victims are kept.
type Verdict struct {
	PodRef `json:",inline"`
	// Reason and Message are written to the condition PodScheduled, with status False and the
	// observed Generation. If Reason is empty, the condition is left as it is.
	Reason     string `json:"reason,omitempty"`
	Message    string `json:"message,omitempty"`
	Generation int64  `json:"generation,omitempty"`
	// NominatedNode is the node on which victims make room for the pod, or empty if there is
	// none.
	NominatedNode string `json:"nominatedNode,omitempty"`
	// Event asks for an event FailedScheduling with the Message.
	Event bool `json:"event,omitempty"`
	// Victims are pods to delete because this pod preempts them.
	Victims []PodRef `json:"victims,omitempty"`
}

// PodRef refers to a pod. If UID is set, the pod must have it.
type PodRef struct {
	// Namespace is the namespace of the pod.
	Namespace string `json:"namespace"`
	// Name is the name of the pod.
	Name string `json:"name"`
	// UID is a precondition: only a pod with this UID is changed. Empty: any pod of the name.
	UID types.UID `json:"uid,omitempty"`
}

// VerdictBatchResult is the response. Results are in the order of the verdicts.
type VerdictBatchResult struct {
	APIVersion string          `json:"apiVersion"`
	Kind       string          `json:"kind"`
	Results    []VerdictResult `json:"results"`
}

// VerdictResult is the result of one verdict: of the write of the pod's status, and of the delete
// of each victim.
type VerdictResult struct {
	Result `json:",inline"`
	// Victims are the outcomes of the preemptions, in the order of the verdict's victims.
	// +listType=atomic
	Victims []Result `json:"victims,omitempty"`
}

// Pods of one namespace with the same name in the annotation AnnGang form a gang. They are
// scheduled only if as many of them as AnnGangSize says fit at the same time.
const (
	AnnGang     = Group + "/gang"
	AnnGangSize = Group + "/gang-size"
)
