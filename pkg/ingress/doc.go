// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package ingress serves Ingresses of the class that names it: HTTP and HTTPS
// from outside the cluster, by host and path, to the endpoints of Services.
//
// What is asked for is compiled into a Table, which never changes; a new one
// takes its place when Ingresses, Services, EndpointSlices or the Secrets of
// certificates change, and requests under way go on with the old.
//
// Nothing in an Ingress is text of a configuration: hosts, paths and names are
// compared, never interpreted, and one annotation is read. Services of type
// ExternalName and endpoints on loopback or link-local addresses are not used as
// backends, so that authors of Ingresses can reach only pods.
//
// A host belongs to the namespace of the oldest Ingress that names it. No path of
// it is served from another namespace, and no other certificate is shown for it,
// unless its owner shares it. The owner depends only on the objects, not on their order.
//
// Clients and endpoints may stall: Limits bound both, so that the process does not
// run out of memory. Rates of requests are not limited.
//
// Of Secrets it reads those that Ingresses name, one by one: package
// controllers/ingresstls grants no more.
package ingress
