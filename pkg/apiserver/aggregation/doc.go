// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package aggregation adds the APIs of extension servers to this server's own.
//
// An APIService names the server of a group version: this server, or a service of the cluster. The
// aggregator forwards requests to the service. It adds headers with the user's name, and presents a
// client certificate that extension servers trust to name users. It creates the APIServices of this
// server's own groups and of custom resources. Discovery and OpenAPI documents include all groups,
// in the order of the priorities of APIServices.
//
// Controllers of k8s.io/kube-aggregator check whether each APIService is available and write the
// result to its status. They also write the APIServices that are created automatically. This
// package implements routing, discovery and documents.
//
// A request for an APIService that is not available, or was just deleted, is rejected and sent to
// no other server. Redirects are not followed. Discovery and OpenAPI of extension servers are
// fetched in the background, so that a slow extension server delays only requests for its own API.
package aggregation
