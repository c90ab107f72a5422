// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package kernel keeps the proxy's nftables tables, "keelson-proxy" of the families
// ip and ip6, by netlink. It starts no program and needs none installed.
//
// A table has a layout: base chains, sets and a few rules, which follow from
// Settings alone and carry their hash in the name of an empty chain. Services are elements
// of the sets (package ruleset). A table that has the right layout when the
// process starts is gone on with, element by element; one that has not is replaced. Either
// is one transaction: a packet sees the old table or the new one.
//
// For each ruleset.Class in use there is a chain that chooses an endpoint.
// Chains are made with the first element that needs them.
//
// A Table is owned by one goroutine.
package kernel
