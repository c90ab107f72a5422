// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package scheduling compares the scheduler with a plain, slow reference that is written from the
// documentation of each plugin and shares no code with it. For random cells and pods both must find
// the same feasible nodes, the same first objection to other nodes, the same scores of each plugin,
// and the same ranking. The cell changes between pods, so that caches are tested as well.
//
//	go test ./test/scheduling                                     a few hundred cells
//	go test ./test/scheduling -run Differential -cells 100000      all of them
//	go test ./test/scheduling -run Differential -cells 1 -from N   the one of seed N
package scheduling
