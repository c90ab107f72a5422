// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package server is the kubelet's HTTPS API on port 10250: container logs, exec, attach,
// port-forward, the node's pods, statistics and metrics, as in Kubernetes.
//
// Every request is first authenticated (client certificate, or bearer token by TokenReview) and
// authorized (SubjectAccessReview for a subresource of this node, with the verb of the HTTP
// method). Exec, attach, port-forward and run always require create: WebSockets are opened by a
// GET, and permission to read a node must not suffice to run commands in its containers.
//
// The server asks the runtime for a URL of its streaming server. It relays the streams of exec and
// attach, and proxies the connection of port-forward. Logs are read from the files that the runtime
// writes.
//
// There is no read-only port.
package server
