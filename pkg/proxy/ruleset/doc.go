// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package ruleset is the proxy's picture of an nftables table, and how it
// changes when a service does. It is pure: no kernel, no clock, no API.
//
// The rules of the table never change while the proxy runs; everything about
// services is in the elements of a dozen sets and maps, whose keys are the
// bytes of a packet. What follows for a packet of a new connection:
//
//	services   address.protocol.port       → class        what happens to it
//	classes    class                       → chain        (made by package kernel)
//	frontends  address.protocol.port       → cluster IP.protocol.port
//	endpoints  cluster IP.protocol.port.slot → address.port
//
// A Class says how an endpoint is chosen among how many: all services with
// three endpoints share one chain, which looks a random slot of three up in
// the endpoints map. So an endpoint that comes costs two elements (its slot and
// the new class), whatever the size of the service and the number of services;
// one that goes lets the last endpoint move into its slot.
//
// Addresses other than the cluster IP are translated to it by the frontends
// map; a node port is a frontend with the unspecified address.
//
// Invariants of a Table, whatever the order of the changes that led to it:
// slots of a service are 0..n-1 and its class says n; every element is there
// exactly because some service wants it, or is a UDP frontend that services had until
// Forget is called; of two services that claim the same
// frontend the older has it. Only the order of endpoints in their slots depends
// on history.
//
// A Table is owned by one goroutine.
package ruleset
