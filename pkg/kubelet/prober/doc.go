// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package prober asks containers whether they have started, are alive and are
// ready, as their probes say, and runs the handlers of their lifecycle.
//
// A probe belongs to one run of a container: it begins with it, its state starts
// anew with the next run. While a startup probe has not succeeded the other
// probes of the container wait. Results count once a threshold of equal answers
// in a row is reached; the owner is told of each change. A run that an earlier
// process probed begins with what the API has of it (KEP-4781).
//
// The first probe of a run is made as soon as its initial delay has passed, not
// up to a period later.
package prober
