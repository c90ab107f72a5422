// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package aggregation joins the APIs of extension servers to this server's own.
//
// An APIService says who answers a group and version: this server, or a service
// of the cluster, to which requests are carried with the user's name in headers
// and this server's certificate as the proof that it may name users. Those of
// this server's own groups and of custom resources are kept automatically.
// Discovery and OpenAPI documents tell of all alike, in the order of the
// priorities that APIServices have.
//
// Whether an APIService is available is found out, and written to its status,
// by the controllers of the library k8s.io/kube-aggregator, and so is what is
// kept automatically; routing, discovery and documents are this package's.
//
// A request for an APIService that is not available, or that has just gone, is
// refused; none is ever sent elsewhere, and redirects are not followed. What
// extension servers say of themselves is fetched in the background: a slow or
// dead one delays nobody but its own clients.
package aggregation
