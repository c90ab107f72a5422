// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package perturb runs controllers against the real API server in virtual time, over connections in
// memory, and injects faults like those of a network, a busy server or kill -9. It is used only by
// tests.
//
// A Cell is one API server within a testing/synctest bubble. It is used for many runs; each run
// starts with the state after the server's start. Each run has a seed, which determines which
// faults occur and how often:
//
//   - calls that fail with conflicts, timeouts, "too many requests", server errors or a broken
//     connection, before or after they took effect;
//   - delayed watch events, with a different delay for each resource, so that changes of different
//     resources are seen in another order than they happened;
//   - duplicated events, and watches that break. A watch either resumes or must list again, and
//     then the changes in between are never seen;
//   - lists of the state some seconds ago, as another API server's cache returns after a restart;
//   - a process that is killed before or after any write, loses its memory, and is started again.
//
// The API's guarantees still hold: a watch delivers the changes of one resource in order, and a
// read that asks for the latest state gets it.
//
// Every decision is derived from the seed, the call, and the number of earlier calls of that kind.
// It is not drawn from one random sequence, so it does not depend on which goroutine runs first.
// Only the runtime's choice among goroutines that are ready at the same virtual instant is left to
// chance.
//
// When the script of a scenario is over, the faults end and some virtual minutes pass. Then the
// state of the cluster is compared with that of a run without faults. The comparison ignores what
// differs between any two runs: identifiers, versions, times, and random parts of names.
package perturb
