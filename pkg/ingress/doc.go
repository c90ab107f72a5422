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
// compared, never interpreted, and one annotation is read. A Service of type
// ExternalName and endpoints on loopback or link-local addresses are nowhere to
// go, so that who may write an Ingress reaches no more than pods.
//
// A host belongs to the namespace of the oldest Ingress that names it. No path of
// it is served from another namespace, and no other certificate is shown for it,
// unless its owner shares it. This follows from the objects alone, in any order.
//
// Clients and endpoints are not trusted to go on: each has Limits, and what they
// hold fits the memory of the process. Rates of requests are not limited.
//
// Of Secrets it reads those that Ingresses name, one by one: package
// controllers/ingresstls grants no more.
package ingress
