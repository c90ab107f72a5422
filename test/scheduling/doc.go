// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package scheduling compares the scheduler with a plain, slow reference that is
// written from what is documented of each plugin, and shares no code with it:
// for random cells and pods both must find the same nodes feasible, with the
// same first objection against the others, and give each plugin's scores and
// the final ranking alike. A cell changes between pods, so that what the
// scheduler keeps from one to the next is compared as well.
//
//	go test ./test/scheduling                                     a few hundred cells
//	go test ./test/scheduling -run Differential -cells 100000      all of them
//	go test ./test/scheduling -run Differential -cells 1 -from N   the one of seed N
package scheduling
