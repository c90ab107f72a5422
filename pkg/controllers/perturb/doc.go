// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package perturb runs controllers against the real API server over memory, in
// virtual time, while what they see and what comes of their calls is disturbed
// as a network, a busy server or kill -9 would. It is for tests alone.
//
// A Cell is one API server within a testing/synctest bubble, used by many runs;
// each run begins with the state of the server's start. A run has a seed, and
// the seed says which disturbances there are and how many:
//
//   - calls that fail with conflicts, time-outs, too many requests, errors of the
//     server or a broken connection, before or after they took effect;
//   - watch events that come late, each resource by its own measure, so that
//     changes of different resources are seen in another order than they happened;
//   - events that come twice, and watches that are cut, and either go on where they
//     were or have to list again, so that what happened in between is never seen;
//   - lists as of some seconds ago, as another API server's cache gives after a restart;
//   - a process that dies before or after any write, loses all it knew, and starts anew.
//
// What the API promises stays promised: a watch delivers the changes of one
// resource in order, and a read that asks for the present gets it.
//
// Every decision is drawn from the seed, the call and how often it was made
// before, not from one sequence, so that it does not depend on which goroutine
// came first. What is left to chance is the runtime's choice among goroutines
// that are ready at the same virtual instant.
//
// When the script of a row is over the disturbances end, virtual minutes pass,
// and State is what the cluster looks like, without what differs between any
// two runs: identifiers, versions, times, random parts of names.
package perturb
