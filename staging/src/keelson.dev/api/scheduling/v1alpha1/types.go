// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 has the kinds of scheduling.keelson.dev/v1alpha1.
//
// A BindingBatch binds many pods in one request: each as a POST of a Binding to
// pods/binding would, with the same preconditions and errors, and without the
// cost of a request for each. Bindings do not depend on each other: some may
// fail. A server that is not Keelson's answers 404.
package v1alpha1

import "k8s.io/apimachinery/pkg/types"

const (
	// Group and Version are those of the kinds here.
	Group   = "scheduling.keelson.dev"
	Version = "v1alpha1"
	// BatchPath is where a BindingBatch is posted to. Who posts needs the verb
	// create on bindingbatches of the group.
	BatchPath = "/apis/" + Group + "/" + Version + "/bindingbatches"
	// MaxBindings is how many bindings a batch may have.
	MaxBindings = 512
)

// BindingBatch is the body of a request.
type BindingBatch struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"`
	Bindings   []Binding `json:"bindings"`
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
