// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package webhooks keeps a dead admission webhook from taking the cluster down.
//
// It stands between the admission plugins, which are the library's and behave as
// Kubernetes' do, and the connections to webhooks. Of every endpoint it keeps
// what is known of its health, and a circuit: failures in a row open it, an
// answer closes it.
//
// Invariants:
//
//   - A webhook whose circuit is closed is called as Kubernetes calls it, for
//     everybody.
//   - Who has no excuse (see excused) is never let through: the webhook is called
//     however often it failed, and its failurePolicy decides.
//   - A request with an excuse passes over a webhook whose circuit is open, and
//     waits for nothing. The webhook's audit annotations and a warning say so.
//   - An answer is read up to a limit, within the time the webhook has.
//
// It does not know names of webhooks but for showing them: webhooks that share an
// endpoint share its circuit. What it knows is lost with the process, and each
// API server learns for itself.
package webhooks
