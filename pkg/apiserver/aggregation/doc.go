// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package aggregation adds the APIs of extension servers to this server's own.
//
// An APIService says who serves a group version: this server, or a service of the cluster. The
// aggregator forwards requests to the service with the user's name in headers and with this
// server's client certificate, which extension servers trust to name users. The APIServices of this
// server's own groups and of custom resources are maintained automatically. Discovery and OpenAPI
// documents include all groups, in the order of the priorities of APIServices.
//
// The controllers of the library k8s.io/kube-aggregator check whether an APIService is available
// and write that to its status. They also maintain the automatic APIServices. This package
// implements routing, discovery and documents.
//
// A request for an APIService that is not available, or was just deleted, is rejected. It is never
// sent elsewhere, and redirects are not followed. Discovery and OpenAPI of extension servers are
// fetched in the background, so that a slow server delays only its own clients.
package aggregation
