// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package webhooks keeps a dead admission webhook from taking the cluster down.
//
// It sits between the admission plugins, which are the library's and behave as in Kubernetes, and
// the connections to webhooks. It records the health of every endpoint, with a circuit: consecutive
// failures open the circuit, and an answer closes it.
//
// Invariants:
//
//   - A webhook with a closed circuit is called as in Kubernetes, for all requests.
//   - A request without an excuse (see excused) is never admitted without review: the webhook is
//     called however often it failed, and its failurePolicy decides.
//   - A request with an excuse skips a webhook with an open circuit and does not wait. The
//     webhook's audit annotations and a warning report that.
//   - Answers are read up to a limit, within the timeout of the webhook.
//
// Circuits belong to endpoints and not to webhooks: webhooks that share an endpoint share its
// circuit. Circuits are kept in memory, and each API server has its own.
package webhooks
