// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package scheduling compares the scheduler with a reference: simple, slow code that is written
// from the documentation of each plugin and shares no code with the scheduler. For random clusters
// (cells) and pods, both must find the same nodes that fit, the same plugin that rejects each other
// node first, the same scores of each plugin, and the same ranking. The cell changes between pods,
// so that the scheduler's caches are tested too.
//
//	go test ./test/scheduling                                     a few hundred cells
//	go test ./test/scheduling -run Differential -cells 100000     that many cells
//	go test ./test/scheduling -run Differential -cells 1 -from N  the cell of seed N
package scheduling
