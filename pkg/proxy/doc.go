// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package proxy makes the virtual addresses of Services work on a node. It watches Services,
// EndpointSlices, ServiceCIDRs and its own Node. It writes nftables tables that send new connections
// to endpoints.
//
//	caches → names of changed services → Proxy.round (one goroutine owns the state)
//	                                         service.Decide  what a service means on this node
//	                                         ruleset.Table   the same as elements of sets and maps
//	                                         kernel.Table    writes them in one transaction
//	                                         conntrack, healthcheck
//
// Services and endpoints are kept once, in compact types (service.Slice, ruleset.Endpoints) instead
// of API objects.
//
// A change is applied as soon as the change before it has been applied; changes that arrive
// meanwhile are applied together. The cost of a change depends on its own size, not on the number
// of services.
//
// A process that starts reads the existing table and writes only the differences, so a restart
// affects no packet. If the kernel rejects a transaction, or the table was deleted, the proxy
// compares or replaces the whole table.
//
// The tables stay when the process ends.
package proxy
