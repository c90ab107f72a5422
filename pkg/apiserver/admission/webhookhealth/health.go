// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package webhookhealth defines the document in which an API server reports the health of admission
// webhooks, for the server and for clients that read it.
package webhookhealth

import "time"

// Path is the path of the Document on an API server.
const Path = "/debug/webhooks"

// States of a webhook's circuit.
const (
	Closed   = "Closed"   // the webhook answers
	Open     = "Open"     // failing; requests that keep the cluster alive are admitted without it
	HalfOpen = "HalfOpen" // failing, and being probed
)

// Document lists all configured webhooks.
type Document struct {
	Webhooks []Webhook `json:"webhooks"`
}

// Webhook is one webhook of a configuration, with the health of its endpoint.
type Webhook struct {
	Type           string `json:"type"` // Mutating or Validating
	Configuration  string `json:"configuration"`
	Name           string `json:"name"`
	URL            string `json:"url"`
	FailurePolicy  string `json:"failurePolicy"`
	TimeoutSeconds int32  `json:"timeoutSeconds"`
	Health
}

// Health is the health of an endpoint since the start of the server.
type Health struct {
	State    string `json:"state"`
	Calls    uint64 `json:"calls"`
	Failures uint64 `json:"failures"`
	// ConsecutiveFailures is the number of failures since the last answer.
	ConsecutiveFailures int `json:"consecutiveFailures"`
	// PassedOver is the number of requests that were admitted without review.
	PassedOver uint64 `json:"passedOver"`
	// Median and Slow (99th percentile) are latencies of recent calls, in seconds.
	Median float64 `json:"medianSeconds"`
	Slow   float64 `json:"p99Seconds"`
	// Since is the time of the first of the consecutive failures.
	Since       *time.Time `json:"failingSince,omitempty"`
	LastAnswer  *time.Time `json:"lastAnswer,omitempty"`
	LastFailure *time.Time `json:"lastFailure,omitempty"`
	// LastReason is the reason of the last failure.
	LastReason string `json:"lastFailureReason,omitempty"`
}
