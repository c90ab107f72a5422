// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package perturb tests controllers with injected faults. It runs them with a real API server in
// virtual time, over connections in memory. The faults are like those of a network, a busy server,
// or kill -9.
//
// A Cell is one API server within a testing/synctest bubble. A test uses it for many runs; each run
// starts with the state that the server had after its start. Each run has a seed, which determines
// which faults occur and how often:
//
//   - requests that fail with conflicts, timeouts, "too many requests", server errors or a broken
//     connection, before or after the server carried them out;
//   - delayed watch events, with a different delay for each resource, so that the controller may
//     see changes of different resources in another order than they happened;
//   - duplicated events, and watches that break. The client then resumes the watch or lists again;
//     in the second case it never sees the changes in between;
//   - lists that return the state of some seconds ago, as another API server's cache may do after
//     a restart;
//   - a process that is killed before or after any write, loses its memory, and is started again.
//
// The API's guarantees still hold: a watch delivers the changes of one resource in order, and a
// request for the latest state gets it.
//
// Whether a fault occurs depends only on the seed, the request, and the number of earlier requests
// of the same kind. There is no common sequence of random numbers, so it does not matter which
// goroutine runs first. The only thing left to chance is the order in which the Go runtime runs
// goroutines that are ready at the same virtual instant.
//
// When the script of a scenario has ended, the faults end and some virtual minutes pass. Then the
// state of the cluster is compared with that of a run without faults. The comparison ignores what
// differs between any two runs: UIDs, resource versions, times, and random parts of names.
package perturb
