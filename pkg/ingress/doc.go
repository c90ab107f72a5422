// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package ingress serves the Ingresses whose IngressClass names this proxy as its controller. It
// forwards HTTP and HTTPS requests from outside of the cluster, by host and path, to the endpoints
// of Services.
//
// Ingresses are compiled into a routing table (Table), which is immutable. When Ingresses,
// Services, EndpointSlices or the Secrets of certificates change, a new table replaces the old one.
// Requests in progress continue with the table with which they began.
//
// Text in an Ingress never becomes part of a configuration file: the proxy only compares hosts, paths
// and names, and reads only one annotation. It does not use Services of type ExternalName, or
// endpoints with loopback or link-local addresses, as backends. So the authors of Ingresses can reach
// only pods.
//
// A host belongs to the namespace of the Ingress that has named it for the longest time. Rules and
// certificates for the host are used only if they are from that namespace. The owner can let other
// namespaces add rules, but not certificates. Which namespace owns a host depends only on the
// objects, not on the order in which the proxy reads them.
//
// Clients and endpoints may stall. Limits bound the resources that they hold, so that the process
// does not run out of memory. The rate of requests is not limited.
//
// The package reads only those Secrets that Ingresses name, each of them by its name. Package
// controllers/ingresstls grants the proxy no other access to Secrets.
package ingress
