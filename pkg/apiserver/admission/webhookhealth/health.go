// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package webhookhealth is the document in which an API server tells how its
// admission webhooks are doing. It is for the server and for those who read the
// document, and holds nothing but the document's shape.
package webhookhealth

import "time"

// Path is where an API server answers with a Document.
const Path = "/debug/webhooks"

// The states of a webhook's circuit.
const (
	Closed   = "Closed"   // the webhook answers
	Open     = "Open"     // it is failing: what keeps the cluster alive passes over it
	HalfOpen = "HalfOpen" // it is failing, and being probed
)

// Document is every webhook that is configured.
type Document struct {
	Webhooks []Webhook `json:"webhooks"`
}

// Webhook is one webhook of a configuration, and its endpoint's health.
type Webhook struct {
	Type           string `json:"type"` // Mutating or Validating
	Configuration  string `json:"configuration"`
	Name           string `json:"name"`
	URL            string `json:"url"`
	FailurePolicy  string `json:"failurePolicy"`
	TimeoutSeconds int32  `json:"timeoutSeconds"`
	Health
}

// Health is what is known of an endpoint since the server began.
type Health struct {
	State    string `json:"state"`
	Calls    uint64 `json:"calls"`
	Failures uint64 `json:"failures"`
	// ConsecutiveFailures are those since the last answer.
	ConsecutiveFailures int `json:"consecutiveFailures"`
	// PassedOver are requests that went through without being reviewed.
	PassedOver uint64 `json:"passedOver"`
	// Median and Slow (the 99th percentile) are of the last calls, in seconds.
	Median float64 `json:"medianSeconds"`
	Slow   float64 `json:"p99Seconds"`
	// Since is when the failures in a row began.
	Since       *time.Time `json:"failingSince,omitempty"`
	LastAnswer  *time.Time `json:"lastAnswer,omitempty"`
	LastFailure *time.Time `json:"lastFailure,omitempty"`
	// LastReason is why the last failure was one.
	LastReason string `json:"lastFailureReason,omitempty"`
}
