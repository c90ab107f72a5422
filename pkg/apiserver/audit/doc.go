// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package audit takes down what is asked of the server: how much of which
// request is the policy's to say (the library's evaluator), and where it goes
// is a log file, a server, or both.
//
// A backend in batch mode has a queue. What the backend does not take in time
// waits in memory, bounded by events and by bytes; then in a ring of files,
// bounded by bytes; then the oldest file is dropped, and counted. Batches leave a
// queue in the order in which events came; one that has to be sent again may
// come after later ones. What a killed process left in files, the next one sends:
// the oldest file twice, perhaps. Events at which the backend errs each time, and
// not at others, let these go first and are given up in the end.
//
// Without a policy there is nothing of this, and requests pay nothing for it.
package audit
