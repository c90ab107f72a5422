// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package webhookhealth defines the JSON document in which an API server reports the health of
// admission webhooks. Both the server and clients use it.
package webhookhealth

import "time"

// Path is the path of the Document on an API server.
const Path = "/debug/webhooks"

// Values of Health.State. A circuit (see package webhooks) is open while the webhook is failing.
const (
	Closed   = "Closed"   // the webhook answers
	Open     = "Open"     // failing; requests that keep the cluster alive are admitted without it
	HalfOpen = "HalfOpen" // failing, and a review was sent to find out whether the webhook answers again
)

// Document is what the API server serves at the URL path Path. It lists all configured webhooks.
type Document struct {
	Webhooks []Webhook `json:"webhooks"`
}

// Webhook is a webhook in a webhook configuration, with the health of its endpoint.
type Webhook struct {
	Type           string `json:"type"` // Mutating or Validating
	Configuration  string `json:"configuration"`
	Name           string `json:"name"`
	URL            string `json:"url"`
	FailurePolicy  string `json:"failurePolicy"`
	TimeoutSeconds int32  `json:"timeoutSeconds"`
	Health
}

// Health is the health of a webhook's endpoint. Numbers count from the start of the server.
type Health struct {
	State    string `json:"state"`
	Calls    uint64 `json:"calls"`
	Failures uint64 `json:"failures"`
	// ConsecutiveFailures is the number of failed calls since the last answer.
	ConsecutiveFailures int `json:"consecutiveFailures"`
	// PassedOver is the number of requests that were admitted without calling the webhook.
	PassedOver uint64 `json:"passedOver"`
	// Median and Slow (99th percentile) are latencies of the most recent calls, in seconds.
	Median float64 `json:"medianSeconds"`
	Slow   float64 `json:"p99Seconds"`
	// Since is the time of the first of the consecutive failures. It is nil if there are none.
	Since       *time.Time `json:"failingSince,omitempty"`
	LastAnswer  *time.Time `json:"lastAnswer,omitempty"`
	LastFailure *time.Time `json:"lastFailure,omitempty"`
	// LastReason is the reason of the last failure. It stays when the webhook answers again.
	LastReason string `json:"lastFailureReason,omitempty"`
}
