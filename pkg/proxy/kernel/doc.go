// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package kernel writes the proxy's nftables tables, which are named "keelson-proxy" in the families
// ip and ip6. It uses netlink and runs no other program.
//
// The layout of a table consists of its base chains, its sets and a few rules. The layout depends only
// on Settings. A hash of the layout is the name of an empty chain in the table. Services are elements
// of the sets (package ruleset). When the process starts, a table with the right layout is updated
// element by element, and any other table is replaced. Both happen in one transaction, so that every
// packet is handled either by the old or by the new table.
//
// Each ruleset.Class in use (a way to choose an endpoint) has a chain, whose rules choose the
// endpoint. The chain is created together with the first element that needs it.
//
// A Table must be used by one goroutine only.
package kernel
