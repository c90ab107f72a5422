// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package proxy makes the virtual addresses of Services work on a node: it follows
// Services, EndpointSlices, ServiceCIDRs and its own Node, and keeps nftables tables that
// send new connections to endpoints.
//
//	objects → dirty names → Proxy.loop (one goroutine owns the state)
//	                            service.Decide    what a service means here
//	                            ruleset.Table     as elements of sets and maps
//	                            kernel.Table      in one transaction
//	                            conntrack, healthcheck
//
// What there is of Services and their endpoints is kept once, as bytes where there is
// much of it (types service.Slice, ruleset.Endpoints): not as objects of the API.
//
// Nothing waits for a period: a change is made as soon as the one before it is, and what
// comes meanwhile is made together. The cost of a change is its own size.
//
// When the process starts it finds the table that was there, and only changes what
// differs, so that killing and starting it is not seen by any packet. When the kernel
// refuses a transaction, or somebody else has removed the table, the whole table is
// compared or made again.
//
// Ending the process leaves the tables as they are.
package proxy
