// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rollout changes the release of all machines of a cluster: to another one, or back. It uses
// only the API; the agent of each machine does the work (package upgrade).
//
// Invariants:
//
//   - A plan changes nothing. It is computed from a State, which has been read before.
//   - Machines change one after the other. In an upgrade, control planes come first, because no program
//     may be newer than the API servers; a return has the reverse order. Meanwhile, the agent of each machine
//     avoids API servers that are older than its release.
//   - The next machine follows only if the one before runs the wanted release and its node is ready. A
//     failure ends the rollout.
//   - All state is in the Machines. A rollout that was interrupted can be repeated: machines that run the
//     wanted release already are left alone.
//   - When a machine has reached an end, its specification asks for no release any more. Otherwise a
//     restored backup would make all machines switch at once.
package rollout
