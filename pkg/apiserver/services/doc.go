// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package services gives services their addresses and node ports, and takes
// them back.
//
// A cluster IP is taken by creating an IPAddress object of its name, a node port
// by setting its bit in the one stored bitmap (/registry/ranges/servicenodeports,
// in Kubernetes' format). Both are transactions of the store, so that any number
// of servers may allocate at once and none hands out what another has. What a
// server that was killed between an allocation and its service leaves behind is
// found and returned by the repair loop.
//
// The package does not validate services: what is malformed is left as it is,
// for validation to refuse.
package services
