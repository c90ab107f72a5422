// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package audit records audit events of requests in a log file, with a webhook, or both. The audit
// policy decides which requests are recorded, and how much of each. The library k8s.io/apiserver
// evaluates the policy.
//
// A backend in batch mode has a queue. Events that the backend does not accept in time wait in
// memory, limited by number and size, and then in a ring of files, limited by size. When the ring
// is full, the oldest file is deleted, and its events are counted as dropped. Batches are sent in
// the order of their events, except that a retried batch may be sent after later ones. When a
// process has been killed, the next process sends the files that it left. It may send the oldest
// file a second time. If the backend repeatedly rejects some events while it accepts others, the
// rejected events are moved behind the others and finally dropped.
//
// Without a policy, there are no audit events, and requests do no work for auditing.
package audit
