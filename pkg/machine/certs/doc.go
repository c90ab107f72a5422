// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package certs keeps the certificates of a machine: it lists and renews them, warns before they
// expire, and replaces the authorities of a cluster without a restart.
//
// A rotation goes through states that all machines must agree on: both generations of authorities are
// trusted, the new one signs, only the new one is trusted. The state is in a ConfigMap. [Rotation]
// writes it, and the [Agent] of each machine applies it and reports that in an annotation of its Node.
// docs/decisions/0037-authorities.md has the reasons.
//
// Invariants:
//
//   - A state is written only after all machines have applied the one before it.
//   - An authority signs on a machine only if the machine trusts it.
//   - All state of a rotation is in the cluster, so that it can be interrupted at any point and
//     continued, on another control plane too.
//   - Each file is replaced as a whole, and between two files the machine works.
//   - No private key leaves a control plane, except encrypted with a key that only control planes have.
//
// The package does not replace the keys that sign tokens of service accounts, and does not restart
// etcd, which reads its authorities only when it starts.
package certs
