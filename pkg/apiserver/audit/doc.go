// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package audit records audit events of requests in a log file, with a webhook, or both. The policy
// decides how much of each request is recorded (the library's evaluator).
//
// A backend in batch mode has a queue. Events that the backend does not accept in time wait in
// memory, limited by number and size, and then in a ring of files, limited by size. When the ring
// is full, the oldest file is dropped and its events are counted. Batches leave a queue in the
// order of events, except that a retried batch may come after later ones. The next process sends
// the files that a killed process left, and may send the oldest one twice. If the backend rejects
// some events again and again while it accepts others, these events are moved behind the others and
// finally dropped.
//
// Without a policy, auditing is off and costs requests nothing.
package audit
