// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package webhooks keeps the cluster working while an admission webhook does not answer.
//
// The admission plugins for webhooks are those of Kubernetes' library and behave as in Kubernetes.
// This package wraps their connections to webhooks. It records the health of every endpoint as a
// circuit: consecutive failures open the circuit, and an answer closes it.
//
// Invariants:
//
//   - A webhook with a closed circuit is called for all requests, as in Kubernetes.
//   - A request without an excuse (see excused) is never admitted without review. The webhook is
//     called even if its circuit is open, and its failurePolicy decides about failures.
//   - A request with an excuse does not wait for a webhook with an open circuit: it skips the
//     webhook. Audit annotations and a warning report this.
//   - Answers are read up to a limit, within the timeout of the webhook.
//
// Webhooks that share an endpoint share its circuit. Circuits are kept in memory, and each API
// server has its own.
package webhooks
