// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package kernel keeps the proxy's nftables tables, "keelson-proxy" of the families ip and ip6, by
// netlink. It runs no other program.
//
// A table has a layout: base chains, sets and a few rules. The layout depends on Settings alone,
// and its hash is the name of an empty chain. Services are elements of the sets (package ruleset).
// When the process starts, a table with the right layout is updated element by element, and any
// other table is replaced. Each of these is one transaction, so that every packet is handled by the
// old table or by the new one.
//
// Each ruleset.Class in use has a chain that chooses an endpoint. The chain is made together with
// the first element that needs it.
//
// A Table belongs to one goroutine.
package kernel
