// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package ingress serves Ingresses of its class: it forwards HTTP and HTTPS requests from outside of
// the cluster, by host and path, to the endpoints of Services.
//
// Ingresses are compiled into a Table, which never changes. When Ingresses, Services,
// EndpointSlices or the Secrets of certificates change, a new table replaces it. Running requests
// continue with the old table.
//
// Nothing in an Ingress becomes text of a configuration: hosts, paths and names are compared, never
// interpreted, and only one annotation is read. Services of type ExternalName and endpoints with
// loopback or link-local addresses are not used as backends, so that authors of Ingresses can reach
// only pods.
//
// A host belongs to the namespace of the oldest Ingress that names it. No other namespace serves
// paths or certificates of that host, unless the owner shares it. The owner depends only on the
// objects, not on their order.
//
// Clients and endpoints may stall. Limits bound the resources that they hold, so that the process
// does not run out of memory. Request rates are not limited.
//
// The package reads only Secrets that Ingresses name, one by one. Package controllers/ingresstls
// grants it no other rights to Secrets.
package ingress
