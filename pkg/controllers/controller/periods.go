// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import "time"

// Autoscaling is how autoscalers of pods go about.
type Autoscaling struct {
	// Period is how often one is looked at.
	Period time.Duration
	// DownWindow is for how long the highest proposal holds, where nothing else is asked for.
	DownWindow time.Duration
	// Tolerance is by how much usage may be off, where nothing else is asked for.
	Tolerance float64
	// CPUInitialization is for how long after its start what a pod uses may tell
	// nothing; ReadinessDelay for how long a pod that is not ready has not been yet.
	CPUInitialization, ReadinessDelay time.Duration
}

// Periods are how often things are done in any case.
type Periods struct {
	// Quotas: count everything. Claims: look at those that wait for a volume.
	// Namespaces: look at those that are being deleted.
	// Attachments: look at the volumes of all nodes; 0: never.
	Quotas, Claims, Namespaces, Attachments time.Duration
	// LegacyTokens: how long a token nobody asked for may be unused, and then
	// marked, before it goes.
	LegacyTokens time.Duration
}

// DefaultAutoscaling is what Kubernetes has.
func DefaultAutoscaling() Autoscaling {
	return Autoscaling{
		Period: 15 * time.Second, DownWindow: 5 * time.Minute, Tolerance: 0.1,
		CPUInitialization: 5 * time.Minute, ReadinessDelay: 30 * time.Second,
	}
}

// DefaultSlices are what Kubernetes has.
func DefaultSlices() Slices { return Slices{MaxEndpoints: 100, MaxMirrored: 1000} }

// DefaultPeriods are what Kubernetes has.
func DefaultPeriods() Periods {
	return Periods{Quotas: 5 * time.Minute, Claims: 15 * time.Second, Namespaces: 5 * time.Minute, Attachments: time.Minute, LegacyTokens: 365 * 24 * time.Hour}
}
