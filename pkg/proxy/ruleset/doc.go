// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package ruleset computes the contents of the proxy's nftables table, and how they change when a
// service changes. Its results depend only on its inputs.
//
// The rules of the table never change while the proxy runs. All data about services is in the
// elements of a dozen sets and maps, whose keys consist of fields of a packet, such as
// address.protocol.port. The first packet of a connection is looked up in these maps, in this order:
//
//	services   address.protocol.port         → class          what happens to the packet
//	classes    class                         → chain          made by package kernel
//	frontends  address.protocol.port         → cluster IP.protocol.port
//	endpoints  cluster IP.protocol.port.slot → address.port
//
// A Class is a way to choose one of n endpoints. All services with three endpoints share one chain,
// which looks up a random slot of three in the endpoints map. So a new endpoint costs the same few
// elements (its slot, and the service's class removed and added), whatever the size of the service
// and the number of services. When an endpoint is removed, the last endpoint moves into its slot.
//
// Addresses other than the cluster IP are translated to it by the frontends map. A node port is a
// frontend with the unspecified address.
//
// Invariants of a Table, whatever the order of the changes that led to it:
//
//   - The slots of a service are 0 to n-1, and its class has the number n.
//   - Every element belongs to a service, or is a departed UDP frontend for which Forget was not
//     called yet.
//   - If two services claim the same frontend, the older service has it.
//
// Only the order of endpoints in their slots depends on history.
//
// A Table belongs to one goroutine.
package ruleset
